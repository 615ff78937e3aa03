"""`provnet map`: where the training samples lie for the index branch, as a page to explore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from provnet.base.options import Map
from provnet.base.stats import wilson
from provnet.cli.inputs import Query, as_picture, exemplar_evidence, explanation_cards, note_undrawn
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    say,
    show,
)
from provnet.cli.rundata import (
    open_run,
    spec_name,
    training_data,
    with_state,
)
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.dataset import ImageData
from provnet.data.modalities.decode import are_pictures
from provnet.data.modalities.image import as_bytes
from provnet.report.pictures import strip
from provnet.report.records import ExplanationCard
from provnet.runs.data import Kept
from provnet.runs.run import Run
from provnet.samples.csvfile import csv_text, quoted
from provnet.samples.identity import SampleTable
from provnet.tools.map.compute import SampleMap, engine_for, sample_map
from provnet.tools.map.page import ClusterCard, MapReport, map_html, map_png
from provnet.training.setup import pick_device


def map(asked: Map) -> None:  # noqa: A001 - the name of the command
    """Draw a map of a run's training samples, with groups inside classes and misattributed test samples."""
    inputs = [asked.data, None if asked.test == "none" else asked.test]
    check_outputs({asked.out / "report.html": PAGE}, [asked.run], inputs, data_dir=asked.data_dir)  # before long work
    where = pick_device(asked.device)
    chosen = engine_for(asked.engine)
    loaded, state = with_state(asked.run, open_run)
    loaded.network.to(where)
    training = training_data(loaded, asked.data, asked.data_dir).kept
    tests = _test(loaded, asked.test, asked.data_dir)
    if chosen == "scikit-learn" and min(len(training.index), asked.limit or len(training.index)) > SLOW:
        note("scikit-learn takes many minutes for so many samples; pip install '.[maps]' or use --limit", "warning")
    found = sample_map(
        loaded,
        training.there,
        tests,
        index=training.index,
        limit=asked.limit,
        groups=asked.groups,
        perplexity=asked.perplexity,
        seed=asked.seed,
        engine=chosen,
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        progress=not asked.json,
    )
    if found.unnamed:
        note(f"for {found.unnamed:,} test samples none may be named: all of the class that is predicted are withheld")
    about = {
        "samples": len(found.index),
        "left_out": len(loaded.samples) - len(found.index) - found.withheld,
        "withheld": found.withheld,
        "misattributed": None if tests is None else _rate(len(found.test_rows), found.tested),
        "unnamed": found.unnamed,
        "engine": found.embedding.engine,
        "embedding_seconds": round(found.embedding.seconds, 2),
        "perplexity": round(found.embedding.perplexity, 2),
        "groups": asked.groups,
        "seed": asked.seed,
        "test": None if tests is None else spec_name(tests.spec),
        "model_sha256": state["model.safetensors"],
    }
    page, files = _write(
        asked.out, asked.run, inputs, loaded, found, training, tests, about, asked.cards, int(asked.size * 1e6)
    )
    values = about | page
    if asked.json:
        emit_json(values)
    else:
        show(facts([(name.replace("_", " "), str(value)) for name, value in values.items() if name != "misattributed"]))
        say(f"written to {asked.out}: {', '.join(files)}")


def _test(run: Run, source: str | None, data_dir: str | None) -> ImageData | None:
    tests = None if source == "none" else run.test(source, data_dir, progress=True)
    seen = 0 if tests is None else run.seen(tests)
    if tests is not None and seen:
        note(f"{seen:,} of {len(tests):,} test samples are also samples of the run: they name themselves", "warning")
    return tests


def _rate(hits: int, n: int) -> dict[str, Any]:

    return wilson(hits, n).to_json()


def _write(
    out: Path,
    folder: Path,
    inputs: list[str | None],
    run: Run,
    found: SampleMap,
    training: Kept,
    tests: ImageData | None,
    about: dict[str, Any],
    cards: int,
    budget: int,
) -> tuple[dict[str, Any], list[str]]:
    """All files, made in memory first; what the page holds, and which files they are."""
    report = map_report(run, found, training, tests, about, cards)
    page = map_html(report, budget)
    html = page.html.encode("utf-8", "backslashreplace")
    files = {"report.html": html, "map.csv": _csv(run, found, tests).encode("utf-8", "backslashreplace")}
    try:
        files["map.png"] = map_png(report)
        note_undrawn(run.samples.class_names, "report.html shows them")
    except ModuleNotFoundError:
        note("map.png needs matplotlib: pip install '.[plots]'")
    write_outputs({out / name: content for name, content in files.items()}, [folder], inputs)
    if page.sheets is None and report.pictures is not None:
        note(
            "thumbnails do not fit into the page; ids stand for them (--size allows more, --limit takes fewer samples)"
        )
    return {"html_bytes": len(html), "thumbnail_pixels": page.sheets.side if page.sheets else 0}, list(files)


def _csv(run: Run, found: SampleMap, tests: ImageData | None) -> str:
    """One line a place: training samples, then misattributed test samples, which belong to no group."""
    names = run.samples.class_names
    lines: list[list[object]] = [["id", "sha256", "x", "y", "class", "cluster", "kind"]]

    def row(samples: SampleTable, i: int, place: np.ndarray, group: object, kind: str) -> None:
        where, label = (f"{value:.4f}" for value in place), quoted(names[int(samples.labels[i])])
        lines.append([quoted(samples.sample_ids[i]), samples.hex(i), *where, label, group, kind])

    for i, place, group in zip(found.index.tolist(), found.xy, found.cluster.tolist(), strict=True):
        row(run.samples, i, place, group + 1, "train")
    for i, place in zip(found.test_rows.tolist(), found.test_xy, strict=True):
        assert tests is not None
        row(tests.samples, i, place, "", "test, misattributed")
    return csv_text(lines)


SLOW = 20_000


def map_report(
    run: Run, found: SampleMap, training: Kept, tests: ImageData | None, about: Mapping[str, Any], cards: int
) -> MapReport:
    """Entries: samples on the map, misattributed test samples, then exemplars that a limit left off the map."""
    missed_named = np.full((len(found.test_rows), found.exemplars.shape[1]), -1, dtype=np.int64)
    if found.misattributed is not None:  # fewer columns where all classes are small
        missed_named[:, : found.misattributed.index.shape[1]] = found.misattributed.index
    named = [found.exemplars, missed_named]
    wanted = np.unique(np.concatenate([part.reshape(-1) for part in named]))
    extra = np.setdiff1d(wanted[wanted >= 0], found.index)
    places = len(found.index) + len(found.test_rows)
    entry = np.full(len(run.samples) + 1, -1, dtype=np.int64)  # the last stands for "none"
    entry[found.index] = np.arange(len(found.index))
    entry[extra] = places + np.arange(len(extra))
    members = np.concatenate([found.index, extra])
    ids = [run.samples.sample_ids[i] for i in found.index.tolist()]
    labels = [run.samples.labels[found.index]]
    if tests is not None:
        ids += [tests.samples.sample_ids[i] for i in found.test_rows.tolist()]
        labels.append(tests.samples.labels[found.test_rows])
    ids += [run.samples.sample_ids[i] for i in extra.tolist()]
    labels.append(run.samples.labels[extra])
    pictures = _pictures(training, members, tests, found.test_rows, len(found.index))
    missed = about["misattributed"]
    words = "" if missed is None else f"{len(found.test_rows):,} of {missed['n']:,}"
    words += "" if missed is None or missed["low"] is None else f" ({missed['low']:.2%} to {missed['high']:.2%})"
    words += f"; for {found.unnamed:,} more no sample may be named" if found.unnamed else ""
    facts = [
        ("Made by", f"{about['engine']} in {about['embedding_seconds']:.1f} s, perplexity {about['perplexity']:g}"),
        ("Seed", str(about["seed"])),
        ("Samples not shown", f"{about['withheld']:,} withheld, {about['left_out']:,} left out"),
        *([("Misattributed", words)] if words else []),
        ("Model SHA-256", str(about["model_sha256"])),
        ("Data fingerprint", run.samples.fingerprint),
    ]
    return MapReport(
        title="Map of the training samples",
        data=spec_name(run.config.data),
        class_names=run.samples.class_names,
        xy=np.concatenate([found.xy, found.test_xy]),
        train=len(found.index),
        labels=np.concatenate(labels),
        cluster=found.cluster,
        ids=ids,
        near=entry[np.concatenate(named)],
        pictures=pictures,
        groups=_groups(run, found, training),
        cards=_cards(found, training, tests, cards),
        missed=len(found.test_rows),
        tested=found.tested,
        facts=facts,
    )


def _pictures(
    training: Kept, members: np.ndarray, tests: ImageData | None, test_rows: np.ndarray, before: int
) -> np.ndarray | None:
    """(e, H, W) or (e, H, W, 3) in the order of the entries; None where samples are no pictures."""
    images = training.there.images.numpy()
    if not are_pictures(images) or images.shape[1] not in (1, 3):
        return None
    row = np.zeros(int(training.index.max()) + 1, dtype=np.int64)
    row[training.index] = np.arange(len(training.index))
    there = np.isin(members, training.index)  # an exemplar whose file is gone has no picture: it stays black
    chosen = as_bytes(images[row[np.where(there, members, training.index[0])]])
    chosen = chosen * there[:, None, None, None].astype(np.uint8)
    parts = [chosen[:before], chosen[before:]]
    if tests is not None:
        parts.insert(1, as_bytes(tests.images.numpy()[test_rows]))
    every = np.concatenate(parts)
    return every[:, 0] if every.shape[1] == 1 else np.ascontiguousarray(every.transpose(0, 2, 3, 1))


def _groups(run: Run, found: SampleMap, training: Kept) -> list[tuple[str, list[ClusterCard]]]:

    rows = {int(index): row for row, index in enumerate(training.index)}
    groups: dict[int, list[ClusterCard]] = {}
    for one in found.clusters:
        images = [training.there.images[rows[i]].numpy() for i in one.nearest.tolist()]
        pictures = [picture for image in images if (picture := as_picture(image)) is not None]
        ids = [run.samples.sample_ids[i] for i in one.nearest.tolist()]
        card = ClusterCard(one.number + 1, len(one.members), ids, strip(pictures) if pictures else None)
        groups.setdefault(one.label, []).append(card)
    return [(run.samples.class_names[label], cards) for label, cards in groups.items()]


def _cards(found: SampleMap, training: Kept, tests: ImageData | None, most: int) -> list[ExplanationCard]:
    """The first misattributed test samples with their exemplars."""
    if tests is None or found.misattributed is None or not len(found.test_rows[:most]):
        return []
    few = found.misattributed[slice(0, most)]
    queries = [
        Query(
            tests.samples.sample_ids[i],
            tests.images[i].numpy(),
            tests.samples.hex(i),
            tests.class_names[int(tests.samples.labels[i])],
        )
        for i in found.test_rows[:most].tolist()
    ]
    return explanation_cards(few, queries, exemplar_evidence(few, training.there))
