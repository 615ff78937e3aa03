"""`provnet map`: where the training samples lie for the index branch, as a page to explore."""

from __future__ import annotations

import os

import numpy as np

from provnet.base.options import Map
from provnet.base.stats import wilson
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, note_undrawable, training_data
from provnet.cli.targets import write_into
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.samples.csvfile import csv_text, quoted
from provnet.samples.identity import SampleTable
from provnet.tools.map.compute import SampleMap, engine_for, sample_map
from provnet.tools.map.page import MapPage, MapReport, map_html, map_png, map_report


def map(asked: Map) -> None:  # noqa: A001 - the name of the command
    """Draw a map of a run's training samples, with groups inside classes and misattributed test samples."""
    inputs = [asked.data, None if asked.test == "none" else asked.test]
    chosen = engine_for(asked.how.engine)
    loaded, state, _ = begin(asked, asked.out, inputs)
    training = training_data(loaded, asked.data, asked.data_dir).kept
    tests = _test(loaded, asked.test, asked.data_dir)
    if chosen == "scikit-learn" and min(len(training.index), asked.how.limit or len(training.index)) > SLOW:
        note("scikit-learn takes many minutes for so many samples; pip install '.[maps]' or use --limit", "warning")
    found = sample_map(
        loaded,
        training.there,
        tests,
        index=training.index,
        options=asked.how,
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
        "misattributed": None if tests is None else wilson(len(found.test_rows), found.tested).to_json(),
        "unnamed": found.unnamed,
        "engine": found.embedding.engine,
        "embedding_seconds": round(found.embedding.seconds, 2),
        "perplexity": round(found.embedding.perplexity, 2),
        "groups": asked.how.groups,
        "seed": asked.how.seed,
        "test": None if tests is None else spec_name(tests.spec),
        "model_sha256": state["model.safetensors"],
    }
    report = map_report(loaded, found, training, tests, about, asked.cards)
    page = map_html(report, int(asked.size * 1e6))
    files = _files(loaded, found, tests, report, page)
    written = write_into(asked.out, files, [asked.run], inputs)
    if page.sheets is None and report.pictures is not None:
        note(
            "thumbnails do not fit into the page; ids stand for them (--size allows more, --limit takes fewer samples)"
        )
    html_bytes = len(page.html.encode("utf-8", "backslashreplace"))
    values = about | {"html_bytes": html_bytes, "thumbnail_pixels": page.sheets.side if page.sheets else 0}
    if asked.json:
        emit_json(values)
    else:
        show(facts([(name.replace("_", " "), str(value)) for name, value in values.items() if name != "misattributed"]))
        say(f"written to {asked.out}: {', '.join(written)}")


def _files(
    run: Run, found: SampleMap, tests: ImageData | None, report: MapReport, page: MapPage
) -> dict[str, bytes | str]:
    files: dict[str, bytes | str] = {"report.html": page.html, "map.csv": map_csv(run, found, tests)}
    try:
        files["map.png"] = map_png(report)
        note_undrawable(run.samples.class_names, "report.html shows them")
    except ModuleNotFoundError:
        note("map.png needs matplotlib: pip install '.[plots]'")
    return files


def _test(run: Run, source: str | None, data_dir: str | None) -> ImageData | None:
    tests = None if source == "none" else run.test(source, data_dir, progress=True)
    seen = 0 if tests is None else run.seen(tests)
    if tests is not None and seen:
        note(f"{seen:,} of {len(tests):,} test samples are also samples of the run: they name themselves", "warning")
    return tests


def map_csv(run: Run, found: SampleMap, tests: ImageData | None) -> str:
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
