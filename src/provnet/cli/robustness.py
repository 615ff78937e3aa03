"""`provnet robustness`: answers and attributions under distortion, against a CNN without an index branch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from provnet.base.errors import UsageError, choose_all
from provnet.base.options import Robustness
from provnet.cli.output import (
    emit_json,
    is_first_process,
    note,
    say,
    show,
)
from provnet.cli.rundata import open_run, with_state
from provnet.cli.targets import PAGE, check_outputs, write_into
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.report.records import percent
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.tools.robustness.compute import ATTACKS, Measured, conditions_by_name, from_isolated, measure
from provnet.tools.robustness.page import (
    RobustnessReport,
    contact_sheet,
    curves_png,
    heat_map_png,
    robustness_csv,
    robustness_html,
    robustness_report,
)
from provnet.training.setup import pick_device


def robustness(asked: Robustness) -> None:
    """Measure what survives distortion: answers, and the training samples named for them."""
    wanted = None if asked.conditions is None else _listed(asked.conditions)
    ways = [] if asked.attacks == "none" else _listed(asked.attacks)
    check_outputs({asked.out / "report.html": PAGE}, asked.run, [asked.data], data_dir=asked.data_dir)
    where = pick_device(asked.device)
    conditions_by_name(wanted)
    choose_all("attack", ways, ATTACKS)
    test: ImageData | None = None
    measured: list[Measured] = []
    models: dict[str, str] = {}
    for name, folder in zip(_names(asked.run), asked.run, strict=True):
        loaded, state = with_state(folder, open_run)
        test = _test(loaded, test, asked)
        loaded.network.to(where)
        more: dict[str, Any] = {"conditions": wanted, "attacks": ways, "progress": not asked.json}
        measured.append(measure(loaded, test, name=name, options=asked.how, **more))
        models[name] = state["model.safetensors"]
    assert test is not None
    gains = from_isolated(measured)
    _warn_unnamed(measured)
    if not gains:
        note("no run is an isolated CNN (trained with index_weight 0), so nothing is compared with one")
    values: dict[str, Any] = {
        "networks": [one.to_json() for one in measured],
        "against_isolated": [
            {"network": name, "condition": condition, **gain.to_json()} for (name, condition), gain in gains.items()
        ],
        "about": {
            "data": spec_name(test.spec),
            "fingerprint": test.samples.fingerprint,
            "n": len(test),
            "seed": asked.how.seed,
            "epsilon": asked.how.epsilon,
            "model_sha256": models,
        },
    }
    files = _files(measured, robustness_report(measured, gains, test, values["about"]), values)
    written = write_into(asked.out, files, asked.run, [asked.data])
    if asked.json:
        emit_json(values)
    elif is_first_process():
        show(_table(measured))
        say(f"written to {asked.out}: {', '.join(written)}")


def _warn_unnamed(measured: list[Measured]) -> None:

    for network in measured:
        shares = [row.figures["unnamed"].value or 0.0 for row in network.rows if "unnamed" in row.figures]
        if max(shares, default=0.0) > 0:
            words = f"for up to {percent(max(shares))} of the pictures no sample may be named, as all are withheld"
            note(f"{network.name}: {words}; they count as wrong in the figures of exemplars (unnamed)", "warning")


def _test(run: Run, before: ImageData | None, asked: Robustness) -> ImageData:
    """The one test set: opened for the first run, and checked to fit the others (`measure` does)."""
    if before is not None:
        return before
    test = run.test(asked.data, asked.data_dir, progress=True)
    if test is None:
        raise UsageError("the run has no test split of its own; give --data, or train with --test or --holdout")
    if asked.limit is not None:
        rows = np.unique(np.linspace(0, len(test) - 1, min(asked.limit, len(test))).round().astype(np.int64))
        test = test.select(rows)
    seen = run.seen(test)
    if seen:
        note(f"{seen:,} of {len(test):,} test samples are also training samples: not unseen", "warning")
    return test


def _files(measured: list[Measured], report: RobustnessReport, values: dict[str, Any]) -> dict[str, bytes | str]:
    """All files, made in memory first."""
    files: dict[str, bytes | str] = {
        "robustness.json": write_json(values, "robustness.json"),
        "robustness.csv": robustness_csv(measured),
        "report.html": robustness_html(report),
    }
    if any(row.pictures for row in report.rows):
        buffer = io.BytesIO()
        contact_sheet(report.rows).save(buffer, "PNG", optimize=True)
        files["conditions.png"] = buffer.getvalue()
    try:
        files["heatmap.png"] = heat_map_png(report)
        curves = curves_png(report)
        if curves is not None:
            files["curves.png"] = curves
    except ModuleNotFoundError:
        note("heatmap.png and curves.png need matplotlib: pip install '.[plots]'")
    return files


def _table(measured: list[Measured]) -> Table:

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption="top-1 (same exemplar as for the clean picture)")
    table.add_column("condition")
    for one in measured:
        table.add_column(Text(one.name), justify="right", no_wrap=True)
    for number, row in enumerate(measured[0].rows):
        cells = []
        for one in measured:
            figures = one.rows[number].figures
            same = figures.get("same_exemplar")
            kept = "" if same is None or same.value is None else f" ({percent(same.value)})"
            cells.append(percent(figures["top_1"].value or 0.0) + kept)
        table.add_row(row.words, *cells)
    return table


def _names(folders: list[Path]) -> list[str]:
    """The last part of each path, or the whole where two share it."""
    short = [folder.resolve().name for folder in folders]
    names = [name if short.count(name) == 1 else str(folder) for name, folder in zip(short, folders, strict=True)]
    if len(set(names)) < len(names):
        raise UsageError("the same run was given twice; name each once")
    return names


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
