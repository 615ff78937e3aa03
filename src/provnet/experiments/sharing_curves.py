"""What the paper says of convergence, tested on our curves: epochs to a level, and how often the loss rises."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from provnet.experiments.beside import MOST, Finding, counted, judged
from provnet.experiments.paper import half_width
from provnet.experiments.records import Results
from provnet.experiments.sharing_claims import LEVELS, PAIRS, SIZES

PLATEAU = 20  # epochs within which CNN1 is said to reach its plateau
NEAR = 0.9  # of its last accuracy: when CNN2 counts as converged
CELLS = tuple(f"{data}/{size}-{level}" for data in PAIRS for size in SIZES for level in LEVELS)
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
    dynamics = [_plateau(results), _slower(results), _faster(results), _not_in_small(results)]
    return [*dynamics, _larger_faster(results), _stable(results)]


def _plateau(results: Results) -> Finding:
    signs: dict[str, int | None] = {}
    for cell in CELLS:
        curve = curve_of(results, cell)
        early = [row["class"] for row in curve if row["epoch"] <= PLATEAU]
        last = curve[-1]["class"] if curve else 0.0
        signs[cell] = None if not early else 1 if max(early) >= last - half_width(last, 10_000) else -1
    found = counted(signs.values(), sure=False)
    words = f"within {PLATEAU} epochs class accuracy came within the interval of its last value; {found}"
    later = ", ".join(f"`{cell}`" for cell, sign in signs.items() if sign == -1)
    words += f"; later: {later}" if later else ""
    return Finding(
        '"CNN1 classification typically plateaued within 20 epochs" (app. 7.6):', judged(signs.values(), MOST), words
    )


def _slower(results: Results) -> Finding:
    curves = [curve_of(results, cell) for cell in CELLS]
    signs = [_fewer(epochs_to(curve, "class"), epochs_to(curve, "index")) for curve in curves]
    words = f"epochs to {100 * NEAR:.0f} % of the last accuracy, CNN2 against CNN1; {counted(signs, sure=False)}"
    return Finding('"CNN2 memorization exhibited slower, more gradual improvement" (app. 7.6):', judged(signs), words)


def _fewer(one: int | None, other: int | None) -> int | None:
    """1 where the first took fewer epochs, -1 where more, 0 where as many."""
    return None if one is None or other is None else (one < other) - (one > other)


def _compare(results: Results, pairs: Sequence[tuple[str, str]]) -> tuple[list[int | None], list[str]]:
    """Whether the first of each pair of cells reaches its accuracy in fewer epochs."""
    signs, told = [], []
    for first, second in pairs:
        ours, theirs = (epochs_to(curve_of(results, cell), "index") for cell in (first, second))
        signs.append(_fewer(ours, theirs))
        if signs[-1] is not None:
            told.append(f"`{first}` {ours}, `{second}` {theirs}")
    return signs, told


def _faster(results: Results) -> Finding:
    pairs = [pair for data in PAIRS for size in ("large", "xlarge") for pair in _higher(data, size)]
    signs, told = _compare(results, pairs)
    claim = '"Higher sharing levels accelerated CNN2 convergence in larger models" (app. 7.6):'
    return Finding(claim, judged(signs), _epochs(signs, told))


def _not_in_small(results: Results) -> Finding:
    signs, told = _compare(results, [pair for data in PAIRS for pair in _higher(data, "small")])
    slower = [None if sign is None else 1 if sign < 1 else -1 for sign in signs]
    claim = '"This effect was absent in Small models" (faster convergence at higher levels) (app. 7.6):'
    return Finding(claim, judged(slower), _epochs(slower, told))


def _higher(data: str, size: str) -> list[tuple[str, str]]:
    """Levels 2, 3 and 4, each against level 1."""
    return [(f"{data}/{size}-{level}", f"{data}/{size}-1") for level in LEVELS[1:]]


def _epochs(signs: Sequence[int | None], told: Sequence[str]) -> str:
    if not told:
        return "no curves"
    return f"epochs to {100 * NEAR:.0f} % of the last index accuracy; {counted(signs, sure=False)}: {'; '.join(told)}"


def _larger_faster(results: Results) -> Finding:
    every = {data: [(f"{data}/xlarge-{level}", f"{data}/small-{level}") for level in LEVELS] for data in PAIRS}
    signs, clothes = (_compare(results, every[data])[0] for data in PAIRS)  # sec. 4.4 speaks of MNIST alone
    words = (
        f"epochs to {100 * NEAR:.0f} % of the last index accuracy, XLarge against Small; {counted(signs, sure=False)}; "
        f"on FashionMNIST {counted(clothes, sure=False)}"
    )
    return Finding('"the larger model converges faster" (sec. 4.4):', judged(signs), words)


def _stable(results: Results) -> Finding:
    """Level 4 against the mean of levels 1 to 3, which the paper calls smooth; the measure is ours."""
    signs: list[int | None] = []
    told = []
    for data, words in PAIRS.items():
        each = []
        for level in LEVELS:
            seeds = results.cells.get(f"{data}/small-{level}", {})
            each.append([rising(one.told["loss"]["index"]) for one in seeds.values()])
        if not all(each):
            signs.append(None)
            continue
        shares = [statistics.fmean(one) for one in each]
        more = shares[-1] - statistics.fmean(shares[:-1])
        signs.append(1 if more > OFTEN else -1 if more < -OFTEN else 0)
        told.append(f"{words} {', '.join(f'{100 * one:.0f}' for one in shares)} %")
    words = f"the training loss of Small's CNN2 rose, at levels 1 to 4, in so many epochs: {'; '.join(told)}"
    claim = '"Level 4 sharing introduced instability in Small models" (app. 7.6; '
    claim += f"{100 * OFTEN:.0f} points more epochs of rising loss than at levels 1 to 3):"
    return Finding(claim, judged(signs), words if told else "no curves")
