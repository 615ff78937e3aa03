"""`provnet map`: where the training samples lie for the index branch, as a page to explore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.opened import open_run, with_state
from provnet.cli.options import AsJson, DataDir, Device, RunFolder, TrainingData, check_seed, folder_name, pick_device
from provnet.cli.output import emit_json, facts, note, note_undrawn, say, show
from provnet.cli.rundata import (
    need_training,
    open_test_data,
    seen_in_training,
    spec_name,
)
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.csvfile import csv_text, quoted
from provnet.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.mapping import SampleMap
    from provnet.cli.rundata import Resolved
    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run

EXAMPLE = "Example: [bold]provnet map runs/mnist --out map[/bold]"


def map(  # noqa: A001 - the name of the command
    run: RunFolder,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", parser=folder_name, metavar="DIR", help="Folder of the map.", show_default=False),
    ],
    data: TrainingData = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Test data for misattributed samples, or none. Default: the run's own."),
    ] = None,
    data_dir: DataDir = None,
    groups: Annotated[int, typer.Option(metavar="K", help="Groups inside each class (k-means).")] = 5,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many samples, evenly by class.")] = None,
    perplexity: Annotated[float, typer.Option(help="Of t-SNE: about how many neighbours count.")] = 30.0,
    engine: Annotated[
        str,
        typer.Option(metavar="auto|openTSNE|scikit-learn", help="What makes the map. auto: openTSNE where installed."),
    ] = "auto",
    cards: Annotated[int, typer.Option(metavar="N", help="Misattributed samples shown with their exemplars.")] = 24,
    size: Annotated[
        float, typer.Option(metavar="MB", help="Size that the page may have; thumbnails get the rest.")
    ] = 14.5,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of t-SNE and k-means.")] = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Draw a map of a run's training samples, with groups inside classes and misattributed test samples.

    Writes report.html (interactive, one file), map.csv and, with matplotlib, map.png.
    """
    from provnet.applications.embedding import engine_for
    from provnet.applications.mapping import sample_map

    if groups < 1:
        raise UsageError(f"--groups must be 1 or more, got {groups}")
    if cards < 0:
        raise UsageError(f"--cards must be 0 or more, got {cards}")
    if not 0.1 <= size <= 1000:
        raise UsageError(f"--size must lie between 0.1 and 1000 (MB), got {size:g}")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be 1 or more, got {limit}")
    if seed >= 2**32:  # k-means takes no larger one
        raise UsageError(f"--seed must lie in 0..2^32-1 for a map, got {seed}")
    inputs = [data, None if test == "none" else test]
    check_outputs({out / "report.html": PAGE}, [run], inputs, data_dir=data_dir)  # before long work
    where = pick_device(device)
    chosen = engine_for(engine)
    loaded, state = with_state(run, open_run)
    loaded.network.to(where)
    _, training = need_training(loaded, data, data_dir)
    tests = _test(loaded, test, data_dir)
    if chosen == "scikit-learn" and min(len(training.index), limit or len(training.index)) > SLOW:
        note("scikit-learn takes many minutes for so many samples; pip install '.[maps]' or use --limit", "warning")
    found = sample_map(
        loaded,
        training.data,
        tests,
        index=training.index,
        limit=limit,
        groups=groups,
        perplexity=perplexity,
        seed=seed,
        engine=chosen,
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        progress=not json,
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
        "groups": groups,
        "seed": seed,
        "test": None if tests is None else spec_name(tests.spec),
        "model_sha256": state["model.safetensors"],
    }
    page, files = _write(out, run, inputs, loaded, found, training, tests, about, cards, int(size * 1e6))
    values = about | page
    if json:
        emit_json(values)
    else:
        show(facts([(name.replace("_", " "), str(value)) for name, value in values.items() if name != "misattributed"]))
        say(f"written to {out}: {', '.join(files)}")


def _test(run: Run, source: str | None, data_dir: str | None) -> ImageData | None:
    tests = None if source == "none" else open_test_data(run, source, data_dir)
    seen = 0 if tests is None else seen_in_training(run, tests)
    if tests is not None and seen:
        note(f"{seen:,} of {len(tests):,} test samples are also samples of the run: they name themselves", "warning")
    return tests


def _rate(hits: int, n: int) -> dict[str, Any]:
    from provnet.stats import wilson

    return wilson(hits, n).to_json()


def _write(
    out: Path,
    folder: Path,
    inputs: list[str | None],
    run: Run,
    found: SampleMap,
    training: Resolved,
    tests: ImageData | None,
    about: dict[str, Any],
    cards: int,
    budget: int,
) -> tuple[dict[str, Any], list[str]]:
    """All files, made in memory first; what the page holds, and which files they are."""
    from provnet.cli.map_report import map_report
    from provnet.report.map_page import map_html

    report = map_report(run, found, training, tests, about, cards)
    page = map_html(report, budget)
    html = page.html.encode("utf-8", "backslashreplace")
    files = {"report.html": html, "map.csv": _csv(run, found, tests).encode("utf-8", "backslashreplace")}
    try:
        from provnet.report.map_plot import map_png

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
