"""Results made by hand, and an experiment that takes no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from provnet_paper.networks import MAIN
from provnet_paper.records import Cell, Experiment, Job, Result, Results, Scale, Told, printed

ORIGIN = {"device": "NVIDIA H200", "cores": 16, "torch": "2.11.0", "commit": "0123456789abcdef", "dirty": False}
ABOUT = "A title.\n\nClaim: c\nCommand: provnet reproduce swift\nExpected: e\nDevice: d\nTime: t\n"


def told(**more: Any) -> Told:
    return {"seconds": {"all": 2.0}, "parameters": 1_000_000, "recipe": "preset robust", **more}


def table2(above: float = 0.001, *, seeds: int = 3, name: str = "table2", scale: str = "full") -> Results:
    """Every number of the three main rows, so much above the paper's (and never above 1)."""
    cells: dict[str, dict[int, Result]] = {}
    for one in printed("2"):
        if one.data in MAIN:
            for seed in range(seeds):
                before = cells.setdefault(f"{one.data}/{one.setting}", {}).get(seed, Result({}, told(), ORIGIN))
                figures = {**before.figures, one.figure: (min(one.value + above, 1.0), 10_000)}
                cells[f"{one.data}/{one.setting}"][seed] = Result(figures, told(), ORIGIN)
    return Results(name, scale, cells, {cell: {"a": 1} for cell in cells})


def cost(seeds: int = 1) -> Results:
    kinds = {"without": 1.0, "class-conditional": 2.0, "class-independent": 3.0}
    measured = {
        name: {"parameters": int(1e6 * x), "epoch_seconds": x, "query_ms_1": x, "query_ms_256": x / 100}
        for name, x in kinds.items()
    }
    one = Result(dict.fromkeys(kinds, (0.99, 10_000)), told(networks=measured), ORIGIN)
    return Results("cost", "full", {"mnist": dict.fromkeys(range(seeds), one)}, {"mnist": {}})


def swift(
    log: list[tuple[str, int]], *, config: Any = 1, seconds: float = 0.01, absent: str | None = None
) -> Experiment:
    """Three cells, `a/x`, `a/y` and `b`, that write down when they are run."""

    def run(name: str, job: Job) -> Told:
        log.append((name, job.seed))
        job.tell(0.5)
        time.sleep(0.001)
        return {"figures": {"rate": (job.seed / 10, 10)}}

    def cells(scale: Scale) -> list[Cell]:
        missing: Callable[[str | None], str | None] = lambda data_dir: absent  # noqa: E731
        return [
            Cell(
                name, {"config": config}, partial(run, name), seconds, missing if name == "b" else lambda data_dir: None
            )
            for name in ("a/x", "a/y", "b")
        ]

    return Experiment("swift", ABOUT, cells, lambda results: [f"{len(results.cells)} cells"], lambda results: {})
