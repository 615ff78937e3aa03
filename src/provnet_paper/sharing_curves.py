"""What the paper says of convergence, tested on our curves: epochs to a level, and how often the loss rises."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from provnet_paper.judge import Seen, Sign, apart, counted
from provnet_paper.records import Results, half_width
from provnet_paper.samples import SOME as CURVE_N  # training samples of a point of the index curve

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SIZES = ("small", "medium", "large", "xlarge")
LEVELS = (1, 2, 3, 4)
NAMES = {"small": "Small", "medium": "Medium", "large": "Large", "xlarge": "XLarge"}

PLATEAU = 20  # epochs within which CNN1 is said to reach its plateau
NEAR = 0.9  # of its last accuracy: when CNN2 counts as converged
CELLS = tuple(f"{data}/{size}-{level}" for data in PAIRS for size in SIZES for level in LEVELS)
MUCH = 0.1  # of the way of a loss: so much up is not smooth, so much more than at other levels is less stable
LATE = 75  # epochs: half of the training


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


def upward(losses: Sequence[float]) -> float:
    """How much of the way that a loss goes, the first tenth left out, is upward: 0 where it only falls, 0.5 in place.

    By how much it rises counts, not how often: a loss that has settled wavers a little in every other epoch.

    >>> upward([4.0, 3.0, 2.0, 2.5, 1.0])
    0.125
    """
    late = losses[len(losses) // 10 :]
    steps = [b - a for a, b in itertools.pairwise(late)]
    way = sum(map(abs, steps))
    return sum(step for step in steps if step > 0) / way if way else 0.0


def rising(losses: Sequence[float]) -> float:
    """The share of epochs, the first tenth left out, in which the loss rose.

    >>> rising([4.0, 3.0, 2.0, 2.5, 1.0])
    0.25
    """
    late = losses[len(losses) // 10 :]
    ups = [b > a for a, b in itertools.pairwise(late)]
    return sum(ups) / len(ups) if ups else 0.0


def _plateau(results: Results) -> Seen:
    signs: dict[str, Sign] = {}
    for cell in CELLS:
        curve = curve_of(results, cell)
        early = [row["class"] for row in curve if row["epoch"] <= PLATEAU]
        last = curve[-1]["class"] if curve else 0.0
        signs[cell] = None if not early else 1 if max(early) >= last - half_width(last, 10_000) else -1
    found = counted(signs.values(), sure=False)
    words = f"within {PLATEAU} epochs class accuracy came within the interval of its last value; {found}"
    later = ", ".join(f"`{cell}`" for cell, sign in signs.items() if sign == -1)
    words += f"; later: {later}" if later else ""
    return list(signs.values()), words


def _slower(results: Results) -> Seen:
    curves = [curve_of(results, cell) for cell in CELLS]
    signs: list[Sign] = [_fewer(epochs_to(curve, "class"), epochs_to(curve, "index")) for curve in curves]
    words = f"epochs to {100 * NEAR:.0f} % of the last accuracy, CNN2 against CNN1; {counted(signs, sure=False)}"
    return signs, words


def _gradual(results: Results) -> Seen:
    """Whether CNN2 still gets surely better after half of the epochs."""
    signs: list[Sign] = []
    for cell in CELLS:
        late = [row["index"] for row in curve_of(results, cell) if row["epoch"] >= LATE]
        signs.append(apart((late[-1], CURVE_N), (late[0], CURVE_N)).sign if len(late) > 1 else None)
    return signs, "no curves" if all(sign is None for sign in signs) else f"CNN2; {counted(signs)}"


def _fewer(one: int | None, other: int | None) -> int | None:
    """1 where the first took fewer epochs, -1 where more, 0 where as many."""
    return None if one is None or other is None else (one < other) - (one > other)


def _compare(results: Results, pairs: Sequence[tuple[str, str]]) -> tuple[list[Sign], list[str]]:
    """Whether the first of each pair of cells reaches its accuracy in fewer epochs."""
    signs, told = [], []
    for first, second in pairs:
        ours, theirs = (epochs_to(curve_of(results, cell), "index") for cell in (first, second))
        signs.append(_fewer(ours, theirs))
        if signs[-1] is not None:
            told.append(f"`{first}` {ours}, `{second}` {theirs}")
    return signs, told


def _faster(results: Results) -> Seen:
    pairs = [pair for data in PAIRS for size in ("large", "xlarge") for pair in _higher(data, size)]
    signs, told = _compare(results, pairs)
    return signs, _epochs(signs, told)


def _not_in_small(results: Results) -> Seen:
    signs, told = _compare(results, [pair for data in PAIRS for pair in _higher(data, "small")])
    slower: list[Sign] = [None if sign is None else 1 if sign < 1 else -1 for sign in signs]
    return slower, _epochs(slower, told)


def _higher(data: str, size: str) -> list[tuple[str, str]]:
    """Levels 2, 3 and 4, each against level 1."""
    return [(f"{data}/{size}-{level}", f"{data}/{size}-1") for level in LEVELS[1:]]


def _epochs(signs: Sequence[int | None], told: Sequence[str]) -> str:
    if not told:
        return "no curves"
    return f"epochs to {100 * NEAR:.0f} % of the last index accuracy; {counted(signs, sure=False)}: {'; '.join(told)}"


def _larger_faster(results: Results) -> Seen:
    every = {data: [(f"{data}/xlarge-{level}", f"{data}/small-{level}") for level in LEVELS] for data in PAIRS}
    signs, clothes = (_compare(results, every[data])[0] for data in PAIRS)  # sec. 4.4 speaks of MNIST alone
    words = (
        f"epochs to {100 * NEAR:.0f} % of the last index accuracy, XLarge against Small; {counted(signs, sure=False)}; "
        f"on FashionMNIST {counted(clothes, sure=False)}"
    )
    return signs, words


Measure = Callable[[Sequence[float]], float]


def _unrest(results: Results, data: str, size: str, measure: Measure = upward) -> list[float] | None:
    """How restless CNN2's training loss was at levels 1 to 4; None where one was not run."""
    each = []
    for level in LEVELS:
        seeds = results.cells.get(f"{data}/{size}-{level}", {})
        each.append([measure(one.told["loss"]["index"]) for one in seeds.values()])
    return [statistics.fmean(one) for one in each] if all(each) else None


def _more_at_4(unrest: Sequence[float] | None) -> float | None:
    """Level 4 less the mean of levels 1 to 3, which the paper calls smooth."""
    return None if unrest is None else unrest[-1] - statistics.fmean(unrest[:-1])


def _beyond(more: float | None) -> int | None:
    """1 where by more than MUCH, -1 where by more than that the other way, else 0."""
    return None if more is None else 1 if more > MUCH else -1 if more < -MUCH else 0


def _shares(unrest: Mapping[str, Sequence[float] | None]) -> str:
    parts = (f"{name} {', '.join(f'{100 * one:.0f}' for one in each)}" for name, each in unrest.items() if each)
    return "; ".join(parts)


WAY = "per cent of the way of CNN2's training loss that went up, levels 1 to 4: "


def _smooth(results: Results) -> Seen:
    signs: list[Sign] = []
    for cell in CELLS:
        if not cell.endswith("-4"):
            each = [upward(one.told["loss"]["index"]) for one in results.cells.get(cell, {}).values()]
            signs.append(None if not each else 1 if statistics.fmean(each) < MUCH else -1)
    none = all(sign is None for sign in signs)
    return signs, "no curves" if none else f"CNN2; {counted(signs, sure=False)}"


def _unstable(results: Results) -> Seen:
    """By two measures that have to agree: how often the loss rises was set first, by how much when it was known."""
    often, far = (
        {words: _unrest(results, data, "small", measure) for data, words in PAIRS.items()}
        for measure in (rising, upward)
    )
    signs = [
        _agreed(_beyond(_more_at_4(one)), _beyond(_more_at_4(other)))
        for one, other in zip(often.values(), far.values(), strict=True)
    ]
    if not any(often.values()):
        return signs, "no curves"
    words = f"per cent of epochs in which CNN2's training loss rose, levels 1 to 4: {_shares(often)}; {WAY}"
    words += f"{_shares(far)}; the second was added when the results were known, as the first counts what a settled "
    return signs, f"{words}loss wavers, too: a case needs both"


def _agreed(one: int | None, other: int | None) -> int | None:
    return one if one == other else 0


def _on_clothes(results: Results) -> Seen:
    digits, clothes = (_more_at_4(_unrest(results, data, "small")) for data in PAIRS)
    if digits is None or clothes is None:
        return [None], "no curves"
    return [_beyond(clothes - digits)], f"{100 * clothes:.0f} points against {100 * digits:.0f} on MNIST"


def _calm(results: Results) -> Seen:
    cases = {
        f"{words}, {NAMES[size]}": _unrest(results, data, size) for data, words in PAIRS.items() for size in SIZES[1:]
    }
    more = [_more_at_4(each) for each in cases.values()]
    signs = [None if one is None else -1 if one > MUCH else 1 for one in more]
    if not any(cases.values()):
        return signs, "no curves"
    return signs, f"{counted(signs, sure=False)}; {WAY}{_shares(cases)}"


CURVES: dict[str, Callable[[Results], Seen]] = {
    "plateau": _plateau,
    "slower": _slower,
    "gradual": _gradual,
    "faster": _faster,
    "not in small": _not_in_small,
    "larger faster": _larger_faster,
    "smooth": _smooth,
    "unstable": _unstable,
    "on clothes": _on_clothes,
    "calm": _calm,
}
