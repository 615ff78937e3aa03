"""Two cells asked the same samples: their difference sample by sample, where a result kept which were right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from provnet.tools.robustness.compute import paired_difference
from provnet_paper.beside import OURS, Apart, apart, judged, mean, percent_of, table
from provnet_paper.records import Figure, Results, Told
from provnet_paper.samples import packed, unpacked

# Student's 97.5 % point for 1, 2, ... degrees of freedom; more seeds than that take the last, which is wider
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Known:
    """A rate with n, and which samples were right, seed by seed, where that was kept; `each` are the rates of seeds."""

    figure: Figure
    right: Mapping[int, np.ndarray] = field(default_factory=dict)
    each: tuple[float, ...] = ()


def kept_hits(hits: Mapping[str, np.ndarray]) -> Told:
    """What a cell keeps of (n,) right or wrong answers, to be compared with other cells later.

    >>> sorted(kept_hits({"class_accuracy": np.array([True, False])}))
    ['hits']
    """
    return {"hits": {name: packed(values) for name, values in hits.items()}}


def known(results: Results, cell: str, figure: str) -> Known | None:
    """A figure of a cell, None where it was not measured.

    >>> known(Results("x", "full", {}, {}), "mnist/0", "any_at_1") is None
    True
    """
    found = mean(results, cell, figure)
    if found is None:
        return None
    seeds = results.cells[cell].items()
    each = tuple(one.figures[figure][0] for _, one in seeds if figure in one.figures)
    there = {seed: one.told["hits"][figure] for seed, one in seeds if figure in one.told.get("hits", {})}
    return Known(found, {seed: unpacked(value) for seed, value in there.items()}, each)


def less(one: Known | None, other: Known | None) -> Apart | None:
    """The first less the second, sample by sample where both kept them; None where one is missing.

    >>> right = np.array([True] * 90 + [False] * 10)
    >>> str(less(Known((0.9, 100), {0: right}), Known((0.88, 100), {0: right & (np.arange(100) > 1)})))
    '+2.00 points (-1.35 to +5.27)'
    >>> str(less(Known((0.9, 100)), Known((0.88, 100))))
    '+2.00 points (-6.78 to +10.78)'
    """
    if one is None or other is None:
        return None
    both = sorted(set(one.right) & set(other.right))
    pairs = [(one.right[seed], other.right[seed]) for seed in both]
    if not pairs or any(mine.shape != theirs.shape for mine, theirs in pairs):
        return apart(one.figure, other.figure)
    return difference(pairs)


def with_luck(one: Known | None, other: Known | None) -> Apart | None:
    """`less`; where either has several seeds, how far they lie apart is in the interval, too.

    >>> one, other = (Known((rate, 10_000), each=(rate, rate + 0.01)) for rate in (0.95, 0.9))
    >>> str(less(one, other)), str(with_luck(one, other))
    ('+5.00 points (+4.27 to +5.73)', '+5.00 points (+1.87 to +8.13)')
    """
    gap = less(one, other)
    if gap is None or one is None or other is None:
        return gap
    several = [side.each for side in (one, other) if len(side.each) > 1]
    if not several:
        return gap
    free = sum(len(rates) - 1 for rates in several)
    variance = sum((len(rates) - 1) * statistics.variance(rates) for rates in several) / free
    trainings = 1 / len(one.each) + 1 / len(other.each)
    luck = STUDENT[min(free, len(STUDENT)) - 1] * math.sqrt(variance * trainings)
    half = math.hypot((gap.high - gap.low) / 2, luck)
    return Apart(gap.value, gap.value - half, gap.value + half)


def difference(pairs: list[tuple[np.ndarray, np.ndarray]], comparisons: int = 1) -> Apart:
    """Of (ours, theirs), right or wrong on the same samples, one pair a seed; surely apart only if all seeds agree.

    >>> ours, theirs = np.array([True] * 90 + [False] * 10), np.array([True] * 60 + [False] * 40)
    >>> difference([(ours, theirs)]).sign
    1
    """
    if len(pairs) == 1:
        one = paired_difference(*pairs[0], comparisons)
        return Apart(one.value, one.low, one.high)
    each = np.stack([ours.astype(float) - theirs for ours, theirs in pairs])
    mean_of = each.mean(0)
    value = float(mean_of.mean())
    half = NormalDist().inv_cdf(1 - 0.025 / comparisons) * float(mean_of.std(ddof=1)) / len(mean_of) ** 0.5
    signs = np.sign(each.mean(1))
    if not (signs == np.sign(value)).all():  # seeds disagree: not sure, whatever the interval
        half = max(half, abs(value))
    return Apart(value, value - half, value + half)


HEAD = ("network", "number", "batches as printed", "larger batches", "larger less printed")


@dataclass(frozen=True)
class Both:
    """A figure of a network that was trained with either; None where it was not."""

    network: str
    number: str
    printed: Known | None
    larger: Known | None


def larger_batches(figures: Sequence[Both], scale: str) -> list[str]:
    """A heading, the question with its verdict, and a row a figure.

    Nothing where no network was trained with both, and at smaller scales, at which nothing is judged.

    >>> both = [Both("MNIST", "class", Known((0.9, 10_000)), Known((0.99, 10_000)))]
    >>> larger_batches(both, "full")[3].split("; ")[1]
    'most: MNIST, class, +9.00 points (+8.38 to +9.62).'
    >>> larger_batches([Both("MNIST", "class", None, Known((0.99, 10_000)))], "full")
    []
    """
    found = [(one, gap) for one in figures if (gap := with_luck(one.larger, one.printed)) is not None]
    if not found or scale != "full":
        return []
    signs = [gap.sign for _, gap in found]
    near = f"too near to say in {signs.count(0)}"
    counts = f"surely higher in {signs.count(1)}, surely lower in {signs.count(-1)}, {near}"
    most, gap = max(found, key=lambda pair: abs(pair[1].value))
    said = f"**{judged(map(abs, signs))}**: {counts}; most: {most.network}, {most.number}, {gap}."
    rows = [(one.network, one.number, _percent(one.printed), _percent(one.larger), str(gap)) for one, gap in found]
    question = f"- {OURS}Larger batches change the figures: {said}"
    return ["", "### Larger batches", "", question, "", *table(HEAD, rows, left=2)]


def _percent(one: Known | None) -> str:
    return percent_of(None if one is None else one.figure)
