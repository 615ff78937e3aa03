"""`provnet reproduce`: a table or figure of the paper, beside the paper's numbers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.options import AsJson, DataDir, Device, folder_name
from provnet.cli.output import emit_json, note, say, show
from provnet.cli.reproduce_bar import CellBar

if TYPE_CHECKING:
    from provnet.experiments.frame import Plan
    from provnet.experiments.records import Experiment, Results

EXAMPLE = "Example: [bold]provnet reproduce table2 --scale tiny[/bold]"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="table2, table2-ours, cost, mixing, subsets, sharing, robustness, membership, debugging, embeddings, "
            "vae, instance, or all.",
            show_default=False,
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            metavar="tiny|small|full",
            help="tiny: embedded digits, a minute on a CPU; small: 5,000 samples; full: as in the paper.",
        ),
    ] = "full",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Seeds 0 to N - 1. Default: 3, of tiny 1.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CELL", help="Only this cell, or all whose names begin so, such as mnist; repeatable."),
    ] = None,
    data_dir: DataDir = None,
    device: Device = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            parser=folder_name,
            metavar="DIR",
            help="Folder of the results; finished cells there are kept.",
        ),
    ] = Path("results"),
    jobs: Annotated[int, typer.Option(metavar="N", help="Cells at a time, in processes of their own.")] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Stop after about so long; the same command goes on with what is left."),
    ] = None,
    networks: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep trained networks there, and take those that are there already."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run the cells of an experiment that are not kept yet, and put the results beside the paper's numbers.

    Writes DIR/NAME.json, NAME.md and, with matplotlib, NAME.png; smaller scales into a folder of their own.
    """
    from provnet.errors import choose
    from provnet.experiments.catalogue import EXPERIMENTS
    from provnet.experiments.frame import Plan
    from provnet.experiments.records import SCALES

    choose("scale", scale, SCALES)
    names = list(EXPERIMENTS) if name == "all" else [name]
    for one in names:
        choose("experiment", one, {**EXPERIMENTS, "all": None})
    until = float("inf") if seconds is None else time.monotonic() + seconds
    count = seeds if seeds is not None else SCALES[scale].seeds
    found = {}
    for one in names:
        left = None if seconds is None else max(until - time.monotonic(), 0.001)
        plan = Plan(one, scale, count, tuple(only or ()), data_dir, device or "auto", out, jobs, left, networks)
        found[one] = _reproduce(plan, EXPERIMENTS[one], json=json)
    if json:
        emit_json({key: _summary(results) for key, results in found.items()})


def _reproduce(plan: Plan, experiment: Experiment, *, json: bool) -> Results:
    """Run one experiment, write and show what came out."""
    from provnet.experiments.frame import reproduce as run
    from provnet.experiments.frame import waiting

    told, left, absent = experiment.headings, *waiting(plan)
    if not json:
        say(experiment.title, "bold")
        say(f"claim: {told['Claim']}")
    for why in sorted(set(absent.values())):
        cells = ", ".join(cell for cell, reason in absent.items() if reason == why)
        note(f"{cells}: {why}")
    with CellBar(left, enabled=not json) as tell:
        results = run(plan, tell)
    files = _write(plan, experiment, results)
    if not json:
        _show("\n".join(experiment.section(results)))
        if plan.scale != "full":
            note(f"{plan.scale}: this shows that it runs; figures of this size say nothing about the paper's")
        say(f"written: {', '.join(str(path) for path in files)}")
    return results


def _show(text: str) -> None:
    """Markdown, drawn where a person reads it and as it is where a file or a pipe does."""
    from rich.markdown import Markdown

    if sys.stdout.isatty():
        show(Markdown(text))
    else:
        for line in text.splitlines():
            say(line)


def _write(plan: Plan, experiment: Experiment, results: Results) -> list[Path]:
    """The table and the figure beside the JSON, drawn from it."""
    from provnet.atomic import write_bytes
    from provnet.experiments.page import alone, draw
    from provnet.experiments.store import results_file

    path = results_file(plan.out, plan.name, plan.scale)
    figures: list[Path] = []
    try:
        figures = draw(experiment, results, path)
    except ModuleNotFoundError:
        note("the figure needs matplotlib: pip install '.[plots]'")
    write_bytes(path.with_suffix(".md"), alone(experiment, results, plan.out).encode())
    return [path, path.with_suffix(".md"), *figures]


def _summary(results: Results) -> dict[str, Any]:
    """Cells with their seeds and figures, and why others are not there."""
    cells = {
        cell: {str(seed): {"figures": one.figures, "seconds": one.told["seconds"]} for seed, one in seeds.items()}
        for cell, seeds in results.cells.items()
    }
    return {"scale": results.scale, "cells": cells, "absent": dict(results.absent)}
