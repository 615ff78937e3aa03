"""`provnet robustness`: answers and attributions under distortion, against a CNN without an index branch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.opened import open_run, with_state
from provnet.cli.options import AsJson, DataDir, Device, check_seed, folder_name, pick_device
from provnet.cli.output import emit_json, is_first_process, note, say, show
from provnet.cli.rundata import open_test_data, seen_in_training, spec_name
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.csvfile import csv_text, quoted
from provnet.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from provnet.applications.robustness import Measured
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run

EXAMPLE = "Example: [bold]provnet robustness runs/cnn runs/a0 runs/a05 --out robust[/bold]"
PICTURES = 10  # test pictures on the contact sheet


def robustness(
    run: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, as train wrote them.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", parser=folder_name, metavar="DIR", help="Folder of the report.", show_default=False
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Test data, name or path. Default: the first run's own test split."),
    ] = None,
    data_dir: DataDir = None,
    conditions: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Only these, such as blur-1,occlusion-4. Default: all 15."),
    ] = None,
    attacks: Annotated[str, typer.Option(metavar="NAME,NAME", help="Extra rows: fgsm, pgd, or none.")] = "fgsm,pgd",
    epsilon: Annotated[float, typer.Option(help="Largest change by an attack, on pixels from 0 to 1.")] = 0.1,
    attacked: Annotated[int, typer.Option(metavar="N", help="Test samples that are attacked.")] = 1000,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many test samples, evenly spread.")] = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of all draws.")] = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Measure what survives distortion: answers, and the training samples named for them.

    A run whose index branch was not trained (index_weight 0) is the isolated CNN that the others are compared with.
    Writes robustness.json, robustness.csv, report.html, conditions.png and, with matplotlib, heatmap.png, curves.png.
    """
    from provnet.applications.attacks import ATTACKS
    from provnet.applications.conditions import named
    from provnet.applications.robustness import against, measure
    from provnet.errors import choose

    check_outputs({out / "report.html": PAGE}, run, [data], data_dir=data_dir)  # before long work
    where = pick_device(device)
    wanted = None if conditions is None else _listed(conditions)
    ways = [] if attacks == "none" else _listed(attacks)
    named(wanted)
    for one in ways:
        choose("attack", one, ATTACKS)
    test: ImageData | None = None
    measured: list[Measured] = []
    models: dict[str, str] = {}
    for name, folder in zip(_names(run), run, strict=True):
        loaded, state = with_state(folder, open_run)
        test = _test(loaded, test, data, data_dir, limit)
        loaded.network.to(where)
        more: dict[str, Any] = {"conditions": wanted, "attacks": ways, "epsilon": epsilon, "attacked": attacked}
        measured.append(measure(loaded, test, name=name, seed=seed, progress=not json, **more))
        models[name] = state["model.safetensors"]
    assert test is not None
    gains = against(measured)
    _warn_unnamed(measured)
    if not gains:
        note("no run is an isolated CNN (trained with index_weight 0), so nothing is compared with one")
    values = {
        "networks": [one.to_json() for one in measured],
        "against_isolated": [
            {"network": name, "condition": condition, **gain.to_json()} for (name, condition), gain in gains.items()
        ],
        "about": {
            "data": spec_name(test.spec),
            "fingerprint": test.samples.fingerprint,
            "n": len(test),
            "seed": seed,
            "epsilon": epsilon,
            "model_sha256": models,
        },
    }
    written = _write(out, run, [data], values, measured, gains, test, seed)
    if json:
        emit_json(values)
    elif is_first_process():
        show(_table(measured))
        say(f"written to {out}: {', '.join(written)}")


def _warn_unnamed(measured: list[Measured]) -> None:
    from provnet.report.text import percent

    for network in measured:
        shares = [row.figures["unnamed"].value or 0.0 for row in network.rows if "unnamed" in row.figures]
        if max(shares, default=0.0) > 0:
            words = f"for up to {percent(max(shares))} of the pictures no sample may be named, as all are withheld"
            note(f"{network.name}: {words}; they count as wrong in the figures of exemplars (unnamed)", "warning")


def _test(run: Run, before: ImageData | None, data: str | None, data_dir: str | None, limit: int | None) -> ImageData:
    """The one test set: opened for the first run, and checked to fit the others (`measure` does)."""
    import numpy as np

    if before is not None:
        return before
    test = open_test_data(run, data, data_dir)
    if test is None:
        raise UsageError("the run has no test split of its own; give --data, or train with --test or --holdout")
    if limit is not None:
        if limit < 1:
            raise UsageError(f"--limit must be 1 or more, got {limit}")
        rows = np.unique(np.linspace(0, len(test) - 1, min(limit, len(test))).round().astype(np.int64))
        test = test.select(rows)
    seen = seen_in_training(run, test)
    if seen:
        note(f"{seen:,} of {len(test):,} test samples are also training samples: not unseen", "warning")
    return test


def _write(
    out: Path,
    runs: list[Path],
    inputs: list[str | None],
    values: dict[str, Any],
    measured: list[Measured],
    gains: dict[tuple[str, str], Any],
    test: ImageData,
    seed: int,
) -> list[str]:
    """All files, made in memory first; their names."""
    from provnet.cli.robustness_report import robustness_report
    from provnet.report.robustness import contact_sheet, robustness_html
    from provnet.safejson import write_json

    report = robustness_report(measured, gains, test, values["about"], seed, PICTURES)
    files = {
        "robustness.json": write_json(values, "robustness.json"),
        "robustness.csv": _csv(measured).encode(),
        "report.html": robustness_html(report).encode("utf-8", "backslashreplace"),
    }
    if any(row.pictures for row in report.rows):
        buffer = io.BytesIO()
        contact_sheet(report.rows).save(buffer, "PNG", optimize=True)
        files["conditions.png"] = buffer.getvalue()
    try:
        from provnet.report.robustness_plots import curves_png, heat_map_png

        files["heatmap.png"] = heat_map_png(report)
        curves = curves_png(report)
        if curves is not None:
            files["curves.png"] = curves
    except ModuleNotFoundError:
        note("heatmap.png and curves.png need matplotlib: pip install '.[plots]'")
    write_outputs({out / name: content for name, content in files.items()}, runs, inputs)
    return list(files)


def _csv(measured: list[Measured]) -> str:
    """One line a network, condition and figure."""
    head = ["network", "kind", "alpha", "isolated", "condition", "figure", "value", "n", "low", "high"]
    lines: list[list[object]] = [[*head]]
    for one in measured:
        for row in one.rows:
            for figure, rate in row.figures.items():
                about = [quoted(one.name), one.network, one.alpha, int(one.isolated), row.condition, figure]
                lines.append([*about, rate.value, rate.n, rate.low, rate.high])
    return csv_text(lines)


def _table(measured: list[Measured]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from provnet.report.text import percent

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
