"""`provnet reproduce`: a table or figure of the paper, beside the paper's numbers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from provnet.base.atomic import write_bytes
from provnet.base.errors import choose
from provnet.base.options import Reproduce
from provnet.cli.output import emit_json, note, say, show
from provnet_paper.frame import EXPERIMENTS, Event, Plan, Todo, waiting
from provnet_paper.frame import reproduce as run
from provnet_paper.page import alone, body, draw
from provnet_paper.records import SCALES, Experiment, Results
from provnet_paper.store import results_file


@final
class CellBar:
    """A progress bar over all that is left, with the time that it will take; each finished cell is a line."""

    def __init__(self, left: list[Todo], *, enabled: bool) -> None:

        self.work = {(one.cell.name, one.seed): one.seconds for one in left}
        self.done = dict.fromkeys(self.work, 0.0)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[finished]}/{task.fields[cells]} cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True, highlight=False)
        self.progress = Progress(*columns, console=console, disable=not (enabled and left), speed_estimate_period=3600)
        total = sum(self.work.values()) or 1.0
        self.task = self.progress.add_task("", total=total, finished=0, cells=len(self.work))
        self.finished, self.enabled = 0, enabled

    def __enter__(self) -> CellBar:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        key = (event.cell, event.seed)
        what = f"{event.cell}, seed {event.seed}"
        self.done[key] = self.work[key] * (0.0 if event.what in ("stopped", "no time") else event.share)
        self.finished += event.what == "done"
        if event.what != "doing" and self.enabled:
            words = {
                "done": f"{event.took:.1f} s",
                "stopped": "stopped, the time is over",
                "no time": f"left for later, it takes about {event.took:.0f} s",
            }
            self.progress.console.print(f"{what}: {words[event.what]}", markup=False, soft_wrap=True)
        completed, shown = sum(self.done.values()), "" if event.what != "doing" else what
        self.progress.update(self.task, completed=completed, finished=self.finished, description=shown)


def reproduce(asked: Reproduce) -> None:
    """Run the cells of an experiment that are not kept yet, and put the results beside the paper's numbers."""
    choose("scale", asked.scale, SCALES)
    names = list(EXPERIMENTS) if asked.name == "all" else [asked.name]
    for one in names:
        choose("experiment", one, {**EXPERIMENTS, "all": None})
    until = float("inf") if asked.seconds is None else time.monotonic() + asked.seconds
    count = asked.seeds if asked.seeds is not None else SCALES[asked.scale].seeds
    found = {}
    for one in names:
        left = None if asked.seconds is None else max(until - time.monotonic(), 0.001)
        plan = Plan(
            one,
            asked.scale,
            count,
            tuple(asked.only or ()),
            asked.data_dir,
            asked.device or "auto",
            asked.out,
            asked.jobs,
            left,
            asked.networks,
        )
        found[one] = _reproduce(plan, EXPERIMENTS[one], json=asked.json)
    if asked.json:
        emit_json({key: _summary(results) for key, results in found.items()})


def _reproduce(plan: Plan, experiment: Experiment, *, json: bool) -> Results:
    """Run one experiment, write and show what came out."""
    left, absent = waiting(plan)
    if not json:
        say(experiment.title, "bold")
        say(f"claim: {' '.join(experiment.prose['claim'].split())}")
    for why in sorted(set(absent.values())):
        cells = ", ".join(cell for cell, reason in absent.items() if reason == why)
        note(f"{cells}: {why}")
    with CellBar(left, enabled=not json) as tell:
        results = run(plan, tell)
    files = _write(plan, experiment, results)
    if not json:
        _show("\n".join(body(experiment, results, plan.out)))
        if plan.scale != "full":
            note(f"{plan.scale}: this shows that it runs; figures of this size say nothing about the paper's")
        say(f"written: {', '.join(str(path) for path in files)}")
    return results


def _show(text: str) -> None:
    """Markdown, drawn where a person reads it and as it is where a file or a pipe does."""
    if sys.stdout.isatty():
        show(Markdown(text))
    else:
        for line in text.splitlines():
            say(line)


def _write(plan: Plan, experiment: Experiment, results: Results) -> list[Path]:
    """The table and the figure beside the JSON, drawn from it."""
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
