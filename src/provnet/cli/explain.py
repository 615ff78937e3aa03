"""`provnet explain`: what is predicted, how sure, and because of which training samples."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from provnet.answers.attributor import INFLUENCE
from provnet.answers.attributor import explain as explain_images
from provnet.answers.explanation import Explained, Explanation
from provnet.answers.queries import Query, exemplar_evidence, explanation_cards, read_queries
from provnet.base import __version__
from provnet.base.errors import IntegrityError, UsageError
from provnet.base.files import brief, shown
from provnet.base.options import Explain
from provnet.cli.output import (
    console,
    emit_json,
    is_first_process,
    note,
    say,
)
from provnet.cli.rundata import note_undrawable, open_run, picture_data, with_state
from provnet.cli.targets import PAGE, SHEET, check_outputs, refuse_among_pictures, write_outputs
from provnet.data.evidence import NO_PICTURE, Evidence
from provnet.report.page import explanation_html
from provnet.report.records import Passage, passage, percent
from provnet.report.sheet import explanation_png
from provnet.runs.log import append_decisions
from provnet.runs.run import Run
from provnet.samples.identity import Exemplar, duplicate_words
from provnet.tools.generate.compute import rebuilt_queries

PLACES = "--html or --png"
SHOWN = 200  # characters of a text on a terminal


def explain(asked: Explain) -> None:
    """Explain inputs by the training samples behind each answer, or say that none supports it."""
    if asked.k < 1:
        raise UsageError(f"-k must be 1 or more, got {asked.k}")
    if asked.html is not None and asked.html == asked.png:
        raise UsageError(f"--html and --png name the same file, {asked.html}; give two")
    loaded, state = with_state(asked.run, open_run)
    inputs = [*asked.image, asked.data, None if loaded.config.data is None else loaded.config.data.source]
    wanted = [(path, kind) for path, kind in ((asked.html, PAGE), (asked.png, SHEET)) if path is not None]
    check_outputs(dict(wanted), [asked.run], inputs, PLACES, asked.data_dir)
    if asked.png is not None and asked.png.suffix.lower() != ".png":
        raise UsageError(f'--png writes a PNG file, not "{asked.png.name}"; let its name end in .png')
    if asked.log is not None:
        refuse_among_pictures(
            [asked.log], [asked.run], [Path(each) for each in inputs if each is not None], asked.data_dir
        )
    queries = read_queries(loaded, asked.image, asked.data_dir, strict=asked.strict)
    explanation = _explain(loaded, queries, asked.k, asked.weights)
    rebuilt = rebuilt_queries(loaded, queries)
    records = explanation.to_records([query.name for query in queries])
    for record, copy in zip(records, rebuilt, strict=False):
        record["reconstruction_mse"] = copy.error

    files: dict[Path, bytes] = {}
    pictures: dict[int, Evidence] = {}
    texts = any(query.text for query in queries) and not asked.json
    if asked.html or asked.png or asked.strict or asked.data is not None or texts:
        pictures = _pictures(loaded, explanation, asked.data, asked.data_dir, asked.strict)
    if asked.html or asked.png:
        files = _draw(loaded, explanation, queries, pictures, asked.html, asked.png, [copy.picture for copy in rebuilt])
    if asked.log is not None:
        _append(asked.log, asked.run, state["model.safetensors"], loaded, queries, records, asked.weights)
    write_outputs(files, [asked.run], inputs, PLACES)
    if asked.json:
        emit_json(records)
    elif is_first_process():
        for place, (query, one) in enumerate(zip(queries, explanation, strict=True)):
            _show(query, one, pictures, influence=asked.weights == INFLUENCE)
            if rebuilt:
                say(f"  rebuilt from its latents with a mean square error of {rebuilt[place].error:.5f} a pixel")
        if asked.weights == INFLUENCE and not explanation.in_log_odds:
            note("what the answers depend on is in order, but has no unit yet: provnet without --retrain N --keep")
        for path in files:
            note(f"written: {path}")


def _explain(run: Run, queries: list[Query], k: int, weights: str) -> Explanation:

    active = int((~run.samples.withheld).sum())
    images = np.stack([query.image for query in queries])
    found = explain_images(run, images, k=min(k, active), weights=weights, warn=False)  # inputs were looked at
    fewest = int((found.index >= 0).sum(1).min())
    if fewest < min(k, active) and weights != INFLUENCE:
        words = f"where that has fewer samples, all of them are named ({fewest:,} at the fewest)"
        note(f"-k {k:,}: this network looks within the predicted class; {words}")
    elif k > active:
        kept = "" if active == len(run.samples) else " that are not withheld"
        note(f"-k {k:,} is more than the {active:,} training samples{kept}; all of them are named")
    return found


def _pictures(
    run: Run, explanation: Explanation, source: str | None, data_dir: str | None, strict: bool
) -> dict[int, Evidence]:

    found = picture_data(run, source, data_dir, strict=strict)
    pictures = exemplar_evidence(explanation, found.parts)
    missing = {index: item.note for index, item in pictures.items() if not item.there}
    if missing and found.data is not None:
        index, why = next(iter(missing.items()))
        first = f"{shown(run.samples.sample_ids[index])} ({why})"
        words = f"{len(missing):,} of {len(pictures):,} exemplars are not shown, the first: {first}"
        if strict and not all(why.startswith(NO_PICTURE) for why in missing.values()):
            raise IntegrityError(f"{words}; restore the data, or leave --strict out")
        note(words, "warning")
    return pictures


def _draw(
    run: Run,
    explanation: Explanation,
    queries: list[Query],
    pictures: dict[int, Evidence],
    html: Path | None,
    png: Path | None,
    rebuilt: list[np.ndarray | None],
) -> dict[Path, bytes]:
    """The files asked for, in memory: nothing is written before all of it is there."""
    cards = explanation_cards(explanation, queries, pictures)
    if rebuilt:
        cards = [replace(card, rebuilt=picture) for card, picture in zip(cards, rebuilt, strict=True)]
    files = {}
    if html is not None:
        config = run.config.network
        subtitle = f"{run.folder}: {config.network} network, {len(run.samples):,} training samples"
        page = explanation_html(cards, title="The training samples behind these answers", subtitle=subtitle)
        files[html] = page.encode("utf-8", "backslashreplace")
    if png is not None:
        buffer = io.BytesIO()
        explanation_png(cards).save(buffer, "PNG", optimize=True)
        files[png] = buffer.getvalue()
        note_undrawable(run.samples.class_names, "--html shows them")
    return files


def _append(
    log: Path, folder: Path, sha256: str, run: Run, queries: list[Query], records: list[dict[str, Any]], weights: str
) -> None:
    """The decision log: what was asked of which model, when, and what it said."""
    about = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "provnet": __version__,
        "run": str(folder),
        "model_sha256": sha256,
        "data_fingerprint": run.samples.fingerprint,
        "withheld": int(run.samples.withheld.sum()),
        "weights": weights,
    }
    append_decisions(
        log, [{**about, "input_sha256": q.sha256, **record} for q, record in zip(queries, records, strict=True)]
    )


NONE_LEFT = "No exemplar: all samples of this class are withheld"


def _show(query: Query, one: Explained, pictures: Mapping[int, Evidence], *, influence: bool) -> None:
    """An answer and its exemplars; with influence those that are recognised above those that it depends on."""
    out = console()
    if query.text:
        out.print(Text(brief(query.text), "italic"), soft_wrap=True)
    head = Text.assemble(
        (shown(query.name), "dim"), "  ", (brief(one.predicted), "bold"), f"  {percent(one.confidence)} confidence"
    )
    if query.truth is not None:
        right = query.truth == one.predicted
        head.append("  right" if right else f"  wrong, it is {brief(query.truth)}", "green" if right else "red")
    if not one.supported:
        below = ": those below are nearest, but not evidence" if one.exemplars else ""
        head.append(f"\n  No supporting sample{below}", "yellow")
    out.print(head, soft_wrap=True)
    said = {
        i: passage(shown(seen.text)[:SHOWN], [query.text]) for i, seen in pictures.items() if query.text and seen.text
    }
    columns = [("", one.exemplars)]
    if influence:
        columns = [("recognised by", one.recognised), ("depends on", one.depends_on)]
    for title, exemplars in columns:
        _show_exemplars(title, exemplars, one, said)


def _show_exemplars(title: str, exemplars: Sequence[Exemplar], one: Explained, texts: Mapping[int, Passage]) -> None:
    """A line for each, under its title; of a text the words in common are marked."""
    out = console()
    if title:
        out.print(Text(f"  {title}", "bold"), soft_wrap=True)
    if not exemplars:
        none = "No sample: none is surely above chance" if title == "depends on" else NONE_LEFT
        out.print(Text(f"  {none}", "yellow"), soft_wrap=True)
    labels = [brief(item.label) for item in exemplars]
    names = [shown(item.sample_id) for item in exemplars]
    share = title != "depends on"
    for item, label, name in zip(exemplars, _padded(labels), _padded(names), strict=True):
        line = Text("  ").append(
            weight_bar(item.weight if share else item.weight / exemplars[0].weight),
            style="blue" if one.supported else "dim",
        )
        line.append(f" {percent(item.weight) if share else f'{item.weight:+.2f}':>10}  {label}  {name}  ").append(
            f"sha256 {item.sha256[:12]}", "dim"
        )
        if item.interval is not None:
            line.append("  {:+.2f} to {:+.2f}".format(*item.interval), "dim")
        if item.duplicate_count:
            line.append(f"  {duplicate_words(item)}", "dim")
        out.print(line, soft_wrap=True)
        if item.index in texts:
            marked = [(piece, "bold" if is_common else "") for piece, is_common in texts[item.index]]
            out.print(Text.assemble(" " * 26, *marked), soft_wrap=True)


def _padded(texts: list[str]) -> list[str]:
    """All to the width of the widest, as a terminal counts it."""
    widest = max((cell_len(text) for text in texts), default=0)
    return [text + " " * (widest - cell_len(text)) for text in texts]


def weight_bar(share: float, width: int = 12) -> str:
    """A share drawn with blocks, to an eighth of a character.

    >>> weight_bar(0.5, width=4), weight_bar(0.03, width=4)
    ('██  ', '▏   ')
    """
    eighths = min(max(round(share * width * 8), 1), width * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)
