"""`provnet member`: whether a picture was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.text import Text

from provnet.answers.queries import read_queries
from provnet.base.errors import ProvnetError
from provnet.base.files import brief, shown
from provnet.base.options import Member
from provnet.base.words import path_word
from provnet.cli.output import (
    console,
    emit_json,
    is_first_process,
    note,
    say,
)
from provnet.cli.rundata import begin, open_others
from provnet.report.records import percent
from provnet.runs.data import find_data
from provnet.runs.run import Run
from provnet.tools.membership.compute import decides, member_scores
from provnet.tools.membership.member import Heldout, Membership, compared, draw_samples, memberships, read_heldout
from provnet.tools.spans import Copied, copied_passages

MOST = 5_000  # held-out pictures that are scored
AGREE = {"bytes": "bytes agree with", "pixels": "pixels agree with", "content": "content agrees with"}
AGREE |= {"view": "the network sees the same of", "picture": "made of"}
STYLES = {
    "member": "bold",
    "distorted copy of a member": "bold",
    "added after training": "bold",
    "not a member": "",
    "cannot say": "yellow",
}


def member(asked: Member) -> None:
    """Say of pictures whether the run was trained on them, on distorted copies of them, or not."""
    loaded, state, _ = begin(asked)
    queries = read_queries(loaded, asked.image, asked.data_dir, strict=False)
    kept = read_heldout(asked.run, state)
    heldout = (
        kept
        if asked.nonmembers is None and kept is not None
        else _heldout(loaded, asked.run, kept, asked.nonmembers, asked.data_dir)
    )
    images = np.stack([query.image for query in queries])
    hashes = [query.sha256 for query in queries]
    pixels = [query.pixel_sha256 for query in queries]
    found = memberships(loaded, images, hashes, pixel_sha256=pixels, heldout=heldout, warn=False)
    found = _compare_pictures(loaded, asked, images, [query.picture for query in queries], found)
    withheld = int(loaded.samples.withheld.sum())
    if withheld:
        note(f"{withheld:,} withheld samples are treated as unknown: neither named nor matched")
    passages = _passages(loaded, asked, [query.text for query in queries])
    if asked.json:
        rows = [{"input": query.name, **one.to_json()} for query, one in zip(queries, found, strict=True)]
        for row, some in zip(rows, passages, strict=False):
            row["passages"] = [asdict(one) for one in some]
        emit_json(rows)
    elif is_first_process():
        for place, (query, one) in enumerate(zip(queries, found, strict=True)):
            _show(query.name, one)
            for each in passages[place] if passages else ():
                _show_passage(each)


def _passages(run: Run, asked: Member, texts: list[str]) -> list[list[Copied]]:
    """What training texts hold of each text; nothing where samples are no texts."""
    if not all(texts):
        return []
    data = find_data(run.config, run.samples, None, asked.data_dir, progress=not asked.json).data
    if data is None or data.items is None:
        note("passages are not compared: the training texts cannot be opened", "warning")
        return [[] for _ in texts]
    hidden = {name for name, out in zip(run.samples.sample_ids, run.samples.withheld, strict=True) if out}
    shown_rows = [row for row, name in enumerate(data.samples.sample_ids) if name not in hidden]
    test = run.test(data_dir=asked.data_dir)
    fresh = [] if test is None else [str(item) for item in test.items or ()]
    return copied_passages(data.select(np.array(shown_rows)), fresh, texts, progress=not asked.json)


def _show_passage(one: Copied) -> None:
    """A line for a passage."""
    where = f"{shown(one.sample_id)}, from character {one.at:,} on  sha256 {one.sha256[:12]}"
    if one.limit is None:
        say(f"  exact: characters {one.start:,} to {one.end:,}, “{brief(one.text)}”, stand in {where}")
    else:
        least = f"one fresh passage in 1,000 reaches {percent(one.limit)}"
        say(f"  near: {percent(one.similarity)} of characters {one.start:,} to {one.end:,} stand in {where}; {least}")


def _compare_pictures(
    run: Run, asked: Member, images: np.ndarray, pictures: Sequence[np.ndarray | None], found: list[Membership]
) -> list[Membership]:
    """The verdicts after whole pictures were compared with those of training, where they can be opened."""
    settled = all(one.agrees in ("bytes", "pixels") for one in found)
    if settled or all(picture is None for picture in pictures):
        return found
    data = find_data(run.config, run.samples, None, asked.data_dir, progress=not asked.json)
    if data.data is None:
        note(f"pictures cannot be compared with those of training, their scores alone are: {data.why}", "warning")
    return compared(run, data.parts, images, pictures, found)


def _heldout(run: Run, folder: Path, kept: Heldout | None, source: str | None, data_dir: str | None) -> Heldout | None:

    try:
        others = open_others(run, source, data_dir)
    except ProvnetError as error:
        if source is not None:
            raise
        note(f"there are no held-out pictures to compare with: {error}", "warning")
        return None
    seen = {row.tobytes() for row in run.samples.pixel_sha256}
    fresh = [i for i, row in enumerate(others.samples.pixel_sha256) if row.tobytes() not in seen]
    if not fresh:
        note("every held-out picture is a training sample, so there is none to compare with", "warning")
        return None
    chosen = draw_samples(others.select(np.array(fresh, dtype=np.int64)), MOST, seed=0)
    score = decides(run.network)
    scored = member_scores(run, chosen.images, warn=False)
    values = np.sort(scored.values[score][scored.named])
    if len(values) < len(chosen):
        note(f"for {len(chosen) - len(values):,} held-out pictures no sample may be named: they are not compared with")
    if not len(values):
        return None
    if kept is None:
        note(f"what distorted members score is not known; measure it: provnet audit {path_word(folder)} --out DIR")
        return Heldout(score, values, about=str(others.spec.source))
    return Heldout(score, values, kept.copies, about=str(others.spec.source))


def _show(name: str, one: Membership) -> None:
    out = console()
    out.print(Text.assemble((shown(name), "dim"), "  ", (one.verdict, STYLES[one.verdict])), soft_wrap=True)
    compared = "" if one.p_value is None else f", p = {one.p_value:.2g} of {one.heldout:,} held-out pictures"
    out.print(Text(f"  {one.why}{compared}"), soft_wrap=True)
    if one.match is not None:
        words = AGREE.get(one.agrees, "nearest, but no evidence:")
        line = Text(f"  {words} ").append(shown(one.match.sample_id), "bold").append(f", {brief(one.match.label)}  ")
        more = f", {one.match.equal:,} samples have it" if one.match.equal > 1 else ""
        out.print(line.append(f"sha256 {one.match.sha256[:12]}{more}", "dim"), soft_wrap=True)
