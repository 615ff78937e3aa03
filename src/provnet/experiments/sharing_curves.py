"""What the paper says of convergence, tested on our curves: epochs to a level, and how often the loss rises."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from provnet.experiments.beside import Finding, counted, judged
from provnet.experiments.paper import half_width
from provnet.experiments.records import Results
from provnet.experiments.sharing_claims import LEVELS, PAIRS, SIZES

PLATEAU = 20  # epochs within which CNN1 is said to reach its plateau
NEAR = 0.9  # of its last accuracy: when CNN2 counts as converged
OFTEN = 0.1  # so much larger a share of epochs with rising loss counts as less stable


def curve_of(results: Results, cell: str) -> list[dict[str, Any]]:
    """The curve of a cell's first seed, empty where it was not run."""
    seeds = results.cells.get(cell, {})
    return next(iter(seeds.values())).told["curve"] if seeds else []


def epochs_to(curve: Sequence[dict[str, Any]], branch: str, share: float = NEAR) -> int | None:
    """The first epoch with that share of the last accuracy.

    >>> epochs_to([{"epoch": 1, "index": 0.2}, {"epoch": 5, "index": 0.95}, {"epoch": 9, "index": 1.0}], "index")
    5
    """
    if not curve:
        return None
    least = share * curve[-1][branch]
    return next(int(row["epoch"]) for row in curve if row[branch] >= least)


def rising(losses: Sequence[float]) -> float:
    """The share of epochs, the first tenth left out, in which the loss rose.

    >>> rising([4.0, 3.0, 2.0, 2.5, 1.0])
    0.25
    """
    late = losses[len(losses) // 10 :]
    ups = [b > a for a, b in itertools.pairwise(late)]
    return sum(ups) / len(ups) if ups else 0.0


def convergence(results: Results) -> list[Finding]:
    """The sentences on training dynamics."""
    return [_plateau(results), _slower(results), _faster(results), _larger_faster(results), _stable(results)]


def _plateau(results: Results) -> Finding:
    signs = []
    for data in PAIRS:
        for size in SIZES:
            for level in LEVELS:
                curve = curve_of(results, f"{data}/{size}-{level}")
                early = [row["class"] for row in curve if row["epoch"] <= PLATEAU]
                if early:
                    last = curve[-1]["class"]
                    signs.append(1 if max(early) >= last - half_width(last, 10_000) else -1)
    found = counted(signs, sure=False)
    words = f"within {PLATEAU} epochs class accuracy came within the interval of its last value; {found}"
    return Finding('"CNN1 classification typically plateaued within 20 epochs" (app. 7.6):', judged(signs), words)


def _slower(results: Results) -> Finding:
    signs = []
    for data in PAIRS:
        for size in SIZES:
            for level in LEVELS:
                curve = curve_of(results, f"{data}/{size}-{level}")
                index, of_class = epochs_to(curve, "index"), epochs_to(curve, "class")
                if index is not None and of_class is not None:
                    signs.append(1 if index > of_class else -1 if index < of_class else 0)
    words = f"epochs to {NEAR:.0%} of the last accuracy, CNN2 against CNN1; {counted(signs, sure=False)}"
    return Finding('"CNN2 memorization exhibited slower, more gradual improvement":', judged(signs), words)


def _compare(results: Results, pairs: Sequence[tuple[str, str]]) -> tuple[list[int], list[str]]:
    """Whether the first of each pair of cells reaches its accuracy in fewer epochs."""
    signs, told = [], []
    for first, second in pairs:
        ours, theirs = (epochs_to(curve_of(results, cell), "index") for cell in (first, second))
        if ours is not None and theirs is not None:
            signs.append(1 if ours < theirs else -1 if ours > theirs else 0)
            told.append(f"`{first}` {ours}, `{second}` {theirs}")
    return signs, told


def _faster(results: Results) -> Finding:
    pairs = [(f"{data}/{size}-4", f"{data}/{size}-1") for data in PAIRS for size in ("large", "xlarge")]
    signs, told = _compare(results, pairs)
    words = f"epochs to {NEAR:.0%} of the last index accuracy: {'; '.join(told)}" if told else "no curves"
    return Finding('"Higher sharing levels accelerated CNN2 convergence in larger models":', judged(signs), words)


def _larger_faster(results: Results) -> Finding:
    pairs = [(f"{data}/xlarge-{level}", f"{data}/small-{level}") for data in PAIRS for level in LEVELS]
    signs, _ = _compare(results, pairs)
    words = f"epochs to {NEAR:.0%} of the last index accuracy, XLarge against Small; {counted(signs, sure=False)}"
    return Finding('"The larger model converges faster" (sec. 4.4):', judged(signs), words)


def _stable(results: Results) -> Finding:
    signs, told = [], []
    for data in PAIRS:
        found = []
        for level in (3, 4):
            seeds = results.cells.get(f"{data}/small-{level}", {})
            shares = [rising(one.told["loss"]["index"]) for one in seeds.values()]
            found.append(statistics.fmean(shares) if shares else None)
        low, high = found
        if low is not None and high is not None:
            signs.append(1 if high > low + OFTEN else -1 if high <= low else 0)
            told.append(f"{PAIRS[data]} {high:.0%} of epochs at level 4, {low:.0%} at level 3")
    words = f"the training loss of Small's CNN2 rose in: {'; '.join(told)}" if told else "no curves"
    return Finding('"Level 4 sharing introduced instability in Small models" (app. 7.6):', judged(signs), words)
