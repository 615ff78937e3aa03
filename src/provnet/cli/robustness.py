"""`provnet robustness`: answers and attributions under distortion, against a CNN without an index branch."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from provnet.base.errors import UsageError, choose
from provnet.base.options import Robustness
from provnet.cli.inputs import as_picture
from provnet.cli.output import (
    emit_json,
    is_first_process,
    note,
    say,
    show,
)
from provnet.cli.rundata import open_run, spec_name, with_state
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.dataset import ImageData
from provnet.report.text import percent
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.samples.csvfile import csv_text, quoted
from provnet.tools.robustness.compute import FIGURES, Difference, Measured, against, measure, sample_keys_of
from provnet.tools.robustness.conditions import ATTACKS, distort, named
from provnet.tools.robustness.page import (
    FIVE,
    ConditionRow,
    Gain,
    NetworkColumn,
    RobustnessReport,
    Share,
    contact_sheet,
    curves_png,
    heat_map_png,
    robustness_html,
)
from provnet.training.setup import pick_device

PICTURES = 10  # test pictures on the contact sheet


def robustness(asked: Robustness) -> None:
    """Measure what survives distortion: answers, and the training samples named for them."""
    check_outputs(
        {asked.out / "report.html": PAGE}, asked.run, [asked.data], data_dir=asked.data_dir
    )  # before long work
    where = pick_device(asked.device)
    wanted = None if asked.conditions is None else _listed(asked.conditions)
    ways = [] if asked.attacks == "none" else _listed(asked.attacks)
    named(wanted)
    for one in ways:
        choose("attack", one, ATTACKS)
    test: ImageData | None = None
    measured: list[Measured] = []
    models: dict[str, str] = {}
    for name, folder in zip(_names(asked.run), asked.run, strict=True):
        loaded, state = with_state(folder, open_run)
        test = _test(loaded, test, asked.data, asked.data_dir, asked.limit)
        loaded.network.to(where)
        more: dict[str, Any] = {
            "conditions": wanted,
            "attacks": ways,
        }
        measured.append(measure(loaded, test, name=name, options=asked.how, progress=not asked.json, **more))
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
            "seed": asked.how.seed,
            "epsilon": asked.how.epsilon,
            "model_sha256": models,
        },
    }
    written = _write(asked.out, asked.run, [asked.data], values, measured, gains, test, asked.how.seed)
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


def _test(run: Run, before: ImageData | None, data: str | None, data_dir: str | None, limit: int | None) -> ImageData:
    """The one test set: opened for the first run, and checked to fit the others (`measure` does)."""
    if before is not None:
        return before
    test = run.test(data, data_dir, progress=True)
    if test is None:
        raise UsageError("the run has no test split of its own; give --data, or train with --test or --holdout")
    if limit is not None:
        rows = np.unique(np.linspace(0, len(test) - 1, min(limit, len(test))).round().astype(np.int64))
        test = test.select(rows)
    seen = run.seen(test)
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


def robustness_report(
    measured: Sequence[Measured],
    gains: Mapping[tuple[str, str], Difference],
    test: ImageData,
    about: Mapping[str, Any],
    seed: int,
    pictures: int,
) -> RobustnessReport:
    """One column a network, the isolated CNN first, then by label mixing."""
    classes = len(test.class_names)
    columns = sorted(measured, key=lambda one: (not one.isolated, one.network != "single", one.alpha))
    rows = []
    for number, row in enumerate(measured[0].rows):
        theirs = [one.rows[number].figures for one in columns]
        shares: dict[str, list[Share | None]] = {}
        for figure in FIGURES:
            rates = [figures.get(figure) for figures in theirs]
            shares[figure] = [
                None
                if rate is None or rate.value is None
                else Share(rate.value, rate.n, rate.low or 0.0, rate.high or 0.0)
                for rate in rates
            ]
        if classes <= FIVE:  # five classes hold the right one whatever a class branch says
            chief = zip(columns, shares["top_5"], strict=True)
            shares["top_5"] = [share if one.network == "single" and not one.isolated else None for one, share in chief]
        found = [gains.get((one.name, row.condition)) for one in columns]
        rows.append(
            ConditionRow(
                name=row.condition,
                words=row.words,
                fixed=row.fixed,
                shares=shares,
                gains=[None if gain is None else Gain(gain.value, gain.low, gain.high) for gain in found],
                pictures=_pictures(test, row.condition, seed, pictures) if row.fixed else (),
            )
        )
    facts = [
        ("Test data", str(about["data"])),
        ("Fingerprint", str(about["fingerprint"])),
        ("Samples", f"{len(test):,}"),
        ("Seed of all draws", str(seed)),
        ("Epsilon of attacks", f"{about['epsilon']:g} on pixels from 0 to 1"),
    ]
    return RobustnessReport(str(about["data"]), len(test), [_network(one) for one in columns], rows, facts, classes)


def _network(one: Measured) -> NetworkColumn:

    if one.isolated:
        words = f"isolated CNN: backbone {one.backbone} with a class head, index branch not trained"
        return NetworkColumn(one.name, words, None, isolated=True)
    single = one.network == "single"
    return NetworkColumn(
        one.name,
        f"{one.network} network, backbone {one.backbone}, label mixing α {one.alpha:g}",
        one.alpha if single else None,
    )


def _pictures(test: ImageData, condition: str, seed: int, count: int) -> list[np.ndarray]:
    """A few test pictures under a condition, the same ones every time; none where they are no pictures."""
    labels = test.samples.labels
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)]  # one a class, then any
    rows = np.array(list(dict.fromkeys([*firsts, *range(len(test))]))[:count], dtype=np.int64)
    few = test.select(rows)
    copies = distort(few.images, sample_keys_of(few), condition, seed=seed).numpy()
    return [picture for copy in copies if (picture := as_picture(copy)) is not None]
