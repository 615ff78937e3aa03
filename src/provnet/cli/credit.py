"""`provnet credit`: whose samples stand behind the answers to a set of queries."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

from provnet.answers.queries import Query, read_queries
from provnet.base import options
from provnet.base.errors import UsageError
from provnet.base.files import shown
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, open_others, picture_data
from provnet.cli.targets import write_into
from provnet.data.apply import spec_name
from provnet.data.sources.folder import loose_pictures
from provnet.data.sources.known import NAMES
from provnet.report.records import percent
from provnet.runs.inputs import pixel_hashes, raw_tensor
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.tools.credit.compute import Contributors, Credit, contributors_of
from provnet.tools.credit.compute import credit as share
from provnet.tools.credit.page import credit_csv, credit_report


def open_queries(run: Run, given: Sequence[str], data_dir: str | None) -> tuple[np.ndarray, str]:
    """Raw queries (n, ...) in the order given, and where they come from, in words."""
    parts: list[np.ndarray] = []
    hashes: list[bytes] = []
    names: list[str] = []
    for is_data, texts in itertools.groupby(given, _is_data):
        if is_data:
            for text in texts:
                data = open_others(run, text, data_dir)
                parts.append(data.images.numpy())
                hashes += [row.tobytes() for row in data.samples.pixel_sha256]
                names.append(f"{len(data):,} of {spec_name(data.spec)}")
            continue
        files: list[str] = []  # together, so that what is to be said of them is said once
        for text in texts:
            inside = _loose_pictures(text)
            files += inside or [text]
            names.append(f"{len(inside):,} pictures in {text}" if inside else text)
        queries = read_queries(run, files, data_dir, strict=False)
        parts.append(np.stack([query.image for query in queries]))
        hashes += [_hash(run, query) for query in queries]
    kinds = {part.dtype for part in parts}
    images = np.concatenate([part.astype(np.float32) for part in parts] if len(kinds) > 1 else parts)
    words = "; ".join(names[:5]) + (f"; and {len(names) - 5:,} more" if len(names) > 5 else "")
    _note_members(run, hashes)
    return images, words


def _is_data(text: str) -> bool:
    """A name of data, a folder of class folders, an .npz with labels or a manifest; anything else explain takes, too.

    A folder of pictures alone has no labels, which are not needed here: its pictures are taken one by one.
    """
    path = Path(text)
    if text in NAMES or path.is_dir():
        return text in NAMES or not _loose_pictures(text)
    if path.suffix.lower() == ".npz" and path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(Path(name).stem in ("labels", "y", "y_test", "test_labels") for name in archive.namelist())
    return path.suffix.lower() == ".csv" and path.is_file()


def _loose_pictures(text: str) -> list[str]:
    """The pictures in a folder without class folders; nothing of anything else."""
    return [str(path) for path in loose_pictures(Path(text))] if Path(text).is_dir() else []


def _hash(run: Run, query: Query) -> bytes:
    """The hash of the pixels that name a query."""
    return bytes.fromhex(query.pixel_sha256) or pixel_hashes(run, raw_tensor(query.image[None]))[0].tobytes()


def _note_members(run: Run, hashes: Sequence[bytes]) -> None:
    """A query that is a training sample finds itself: its contributor gets nearly all of it."""
    known = {row.tobytes() for row in run.samples.pixel_sha256[~run.samples.withheld]}
    own = sum(row in known for row in hashes)
    if own:
        note(f"{own:,} of {len(hashes):,} queries are training samples: they credit themselves most", "warning")


def credit(asked: options.Credit) -> None:
    """Share the credit for the answers to some queries among the contributors of the training samples."""
    if asked.how.k < 0 or asked.top < 0:
        raise UsageError(f"-k and --top must be 0 or more, got {asked.how.k} and {asked.top}")
    inputs = [asked.by, asked.data, *asked.queries]
    loaded, state, _ = begin(asked, asked.out, inputs)
    people = contributors_of(loaded.samples, asked.by)
    notes = _notes(people, int(loaded.samples.withheld.sum()))
    for line in notes:
        note(line, "warning" if "not listed" in line else "note")
    images, about = open_queries(loaded, asked.queries, asked.data_dir)
    found = share(loaded, images, people.names, options=asked.how, progress=True, warn=False)
    values = {**found.to_json(), "unlisted_samples": people.unlisted, "unknown_ids": people.strangers}
    values["about"] = {"run": str(asked.run), "queries": about, "by": people.about, "seed": asked.how.seed}
    values["about"] |= {"model_sha256": state["model.safetensors"], "data_fingerprint": loaded.samples.fingerprint}
    written = []
    if asked.out is not None:
        credited = asked.top and any(one.share.value for one in found.ranking)
        parts = picture_data(loaded, asked.data, asked.data_dir).parts if credited else ()
        page = credit_report(loaded, found, values, notes, parts, asked.top)
        files: dict[str, bytes | str] = {
            "credit.json": write_json(values, "credit.json"),
            "credit.csv": credit_csv(found),
            "report.html": page,
        }
        written = write_into(asked.out, files, [asked.run], inputs)
    if asked.json:
        emit_json(values)
        return
    _show(found)
    if written:
        say(f"written to {asked.out}: report.html, credit.json, credit.csv")


def _notes(people: Contributors, withheld: int) -> list[str]:
    """What does not fit together, in words."""
    lines = []
    if people.unlisted:
        whole = len(people.names)
        lines.append(f"{people.unlisted:,} of {whole:,} samples have no contributor: they are credited as (not listed)")
    if people.strangers:
        lines.append(f"{people.strangers:,} ids of {shown(people.about)} are not samples of the run and are ignored")
    if withheld:
        lines.append(f"{withheld:,} samples are withheld: they are never credited, and others take their share")
    return lines


def _show(found: Credit, most: int = 20) -> None:

    rows = [("queries", f"{found.queries:,}, of them {found.supported:,} credit somebody")]
    if found.unsupported:
        rows.append(("no supporting sample", f"{found.unsupported:,} queries credit nobody"))
    if found.unnamed:
        rows.append(("only withheld samples", f"{found.unnamed:,} queries credit nobody"))
    if found.gini.value is not None:
        gini = found.gini
        rows.append(("Gini", f"{gini.value:.3f} ({gini.low:.3f} to {gini.high:.3f}); samples {found.gini_samples:.3f}"))
    show(facts(rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in (("", True), ("contributor", False), ("credit", True), ("95 % interval", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "contributor")
    for name in ("rank in 95 %", "lift", "samples"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.ranking[:most]:
        share = one.share
        if share.value is None or share.low is None or share.high is None:
            table.add_row("-", shown(one.name), "-", share.why, "-", "-", f"{one.samples:,}")
            continue
        ends = f"{percent(share.low).removesuffix(' %')} to {percent(share.high)}"
        ranks = f"{one.rank_low} to {one.rank_high}"
        cells = [percent(share.value), ends, ranks, f"{one.lift:.2f}", f"{one.samples:,}"]
        table.add_row(str(one.rank), shown(one.name), *cells)
    show(table)
    if len(found.ranking) > most:
        say(f"and {len(found.ranking) - most:,} more contributors")
