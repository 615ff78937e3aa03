"""The results of the repository, changed where a test asks for it, and an experiment that takes no time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import Finding
from provnet_paper.page import Told as Page
from provnet_paper.records import Cell, Experiment, Figure, Job, Results, Scale, Told
from provnet_paper.store import read_results

ROOT = Path(__file__).parents[2]


@cache
def real(name: str) -> Results:
    """What was measured at full scale."""
    return read_results(ROOT / f"results/{name}.json")


def with_figures(results: Results, cell: str, figures: Mapping[str, Figure]) -> Results:
    """The same results with other figures of a cell, which are no longer compared sample by sample."""
    each = {
        seed: replace(
            one,
            figures={**one.figures, **figures},
            told={key: value for key, value in one.told.items() if key != "hits"},
        )
        for seed, one in results.cells[cell].items()
    }
    return replace(results, cells={**results.cells, cell: each})


def with_told(results: Results, cell: str, **told: Any) -> Results:
    """The same results where a cell tells something else beside its figures."""
    each = {seed: replace(one, told={**one.told, **told}) for seed, one in results.cells[cell].items()}
    return replace(results, cells={**results.cells, cell: each})


def found(results: Results) -> list[Finding]:
    """The sentences, judged."""
    experiment = EXPERIMENTS[results.name]
    return Page(experiment, experiment.measured(results), ROOT / "results").found


def verdict_of(results: Results, words: str) -> str:
    """The verdict of the one sentence that begins with these words, or holds them."""
    judged = found(results)
    (one,) = [one for one in judged if one.claim.startswith(words)] or [one for one in judged if words in one.claim]
    return one.verdict


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

    return Experiment("swift", cells, lambda results: {}, ())
