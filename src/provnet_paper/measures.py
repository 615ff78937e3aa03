"""What is known of a figure, how two of them differ, and how they are written: all intervals of the pages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from provnet.base.stats import Z95, t_quantile, wilson
from provnet.report.records import percent
from provnet.tools.robustness.compute import paired_difference
from provnet_paper.records import Figure, Printed, Results, Told, printed_numbers
from provnet_paper.samples import pack_array, unpack_array

DASH = "–"
MET, WITHIN, MISSED, NOT_RUN = "met", "within the interval", "missed", "not run"


@dataclass(frozen=True)
class Difference:
    """A difference of two rates with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 where it is surely above 0, -1 where surely below, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __str__(self) -> str:
        return f"{100 * self.value:+.2f} points ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


@dataclass(frozen=True)
class Known:
    """A figure, the mean over seeds, with n; n = 0 for a plain number.

    Attributes:
        right: which samples were right, seed by seed, where that was kept.
        each: the values of the seeds.
        area: the interval, where it is no rate but an area under a curve.
    """

    figure: Figure
    right: Mapping[int, np.ndarray] = field(default_factory=dict)
    each: tuple[float, ...] = ()
    area: tuple[float, float] | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval: Wilson's of the mean on n samples, or that of the area; None for a plain number."""
        value, n = self.figure
        if self.area is not None or n == 0:
            return self.area
        found = wilson(min(value * n, n), n)
        return None if found.low is None or found.high is None else (found.low, found.high)

    @property
    def ends(self) -> str:
        """With its interval."""
        if self.interval is None:
            return str(self)
        low, high = (f"{end:.4f}" if self.area else number(end) for end in self.interval)
        return f"{self} ({low} to {high})"

    @property
    def spread(self) -> str:
        """With the standard deviation over seeds, too."""
        if len(self.each) < 2 or self.area or not self.figure[1]:
            return self.ends
        return f"{self} ± {100 * statistics.stdev(self.each):.2f}{self.ends.removeprefix(str(self))}"

    def __str__(self) -> str:
        value, n = self.figure
        return f"{value:.4f}" if self.area else number(value) if n else plain(value)


def number(share: float) -> str:
    """A share in per cent, two places, all and none only where they are exact.

    >>> number(0.9941), number(1.0), number(0.99999)
    ('99.41', '100', '99.999')
    """
    return percent(share, 2).removesuffix(" %")


def plain(value: float) -> str:
    """A number that is no rate.

    >>> plain(23_050_000), plain(2612.3), plain(0.012345)
    ('23.05 M', '2,612', '0.0123')
    """
    return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mean(results: Results, cell: str, figure: str) -> Figure | None:
    """The mean of a figure over seeds, and n; None where it was not measured."""
    found = [one.figures[figure] for one in results.cells.get(cell, {}).values() if figure in one.figures]
    return (statistics.fmean(rate for rate, _ in found), min(n for _, n in found)) if found else None


def figure_of(results: Results, cell: str, figure: str) -> Known | None:
    """A figure of a cell, None where it was not measured; an area where the ends of its interval were kept."""
    found = mean(results, cell, figure)
    if found is None:
        return None
    seeds = results.cells[cell].items()
    each = tuple(one.figures[figure][0] for _, one in seeds if figure in one.figures)
    hits = {seed: one.told["hits"][figure] for seed, one in seeds if figure in one.told.get("hits", {})}
    right = {seed: unpack_array(one) if isinstance(one, Mapping) else one for seed, one in hits.items()}
    low, high = (mean(results, cell, f"{figure}_{end}") for end in ("low", "high"))
    return Known(found, right, each, None if low is None or high is None else (low[0], high[0]))


def kept_hits(hits: Mapping[str, np.ndarray]) -> Told:
    """What a cell keeps of (n,) right or wrong answers, to be compared with other cells later."""
    return {"hits": {name: pack_array(values) for name, values in hits.items()}}


def of_paper(table: str, cell: str, figure: str) -> Known | None:
    """A number of the paper's own tables, as if counted on all samples."""
    n = 60_000 if figure in ("index_accuracy", "stage_2") else 10_000
    found = [one.value for one in printed_numbers(table) if (f"{one.data}/{one.setting}", one.figure) == (cell, figure)]
    return Known((found[0], n), each=(found[0],)) if found else None


def verdict(paper: Printed, ours: Known | None) -> str:
    """How ours stands beside a number of the paper.

    >>> verdict(printed_numbers("2")[0], Known((0.9905, 10_000)))
    'within the interval'
    """
    if ours is None:
        return NOT_RUN
    value, n = ours.figure
    return MET if value >= paper.value else WITHIN if value >= paper.value - half_width(paper.value, n) else MISSED


def half_width(rate: float, n: int) -> float:
    """Half of the Wilson interval of a rate on n samples."""
    low, high = Known((rate, n)).interval or (0.0, 1.0)
    return (high - low) / 2


def beyond(one: Known | None, bar: float) -> int | None:
    """1 where the interval of a figure lies above a bar, -1 where below, else 0; a plain number has no chance."""
    if one is None:
        return None
    if one.interval is None:
        return 1 if one.figure[0] >= bar else -1
    low, high = one.interval
    return 1 if low > bar else -1 if high < bar else 0


def difference_of_rates(one: Figure, other: Figure, comparisons: int = 1) -> Difference:
    """The first rate less the second, as if each were counted on samples of its own; that of pairs is narrower.

    Where the best or worst of several `comparisons` is looked for, the interval holds for all of them together.

    >>> str(difference_of_rates((0.99, 10_000), (0.98, 10_000)))
    '+1.00 points (+0.66 to +1.34)'
    """
    variance = sum(rate * (1 - rate) / max(n, 1) + 1 / (4 * max(n, 1) ** 2) for rate, n in (one, other))
    z = Z95 if comparisons == 1 else NormalDist().inv_cdf(1 - 0.025 / comparisons)
    value, half = one[0] - other[0], z * math.sqrt(variance)
    return Difference(value, value - half, value + half)


def less(one: Known, other: Known, comparisons: int = 1) -> Difference:
    """The first less the second, sample by sample where both kept them.

    >>> right = np.array([True] * 90 + [False] * 10)
    >>> str(less(Known((0.9, 100), {0: right}), Known((0.88, 100), {0: right & (np.arange(100) > 1)})))
    '+2.00 points (-1.35 to +5.27)'
    """
    pairs = [(one.right[seed], other.right[seed]) for seed in sorted(set(one.right) & set(other.right))]
    if not pairs or any(mine.shape != theirs.shape for mine, theirs in pairs):
        return difference_of_rates(one.figure, other.figure, comparisons)
    return paired_rates(pairs, comparisons)


def paired_rates(pairs: Sequence[tuple[np.ndarray, np.ndarray]], comparisons: int = 1) -> Difference:
    """Of (ours, theirs), right or wrong on the same samples, one pair a seed; surely apart only if all seeds agree."""
    if len(pairs) == 1:
        one = paired_difference(*pairs[0], comparisons)
        return Difference(one.value, one.low, one.high)
    each = np.stack([ours.astype(float) - theirs for ours, theirs in pairs])
    mean_of = each.mean(0)
    value = float(mean_of.mean())
    half = NormalDist().inv_cdf(1 - 0.025 / comparisons) * float(mean_of.std(ddof=1)) / len(mean_of) ** 0.5
    if not (np.sign(each.mean(1)) == np.sign(value)).all():  # seeds disagree: not sure, whatever the interval
        half = max(half, abs(value))
    return Difference(value, value - half, value + half)


def with_luck(one: Known, other: Known) -> Difference:
    """`less`; where either has several seeds, how far they lie apart is in the interval, too.

    >>> one, other = (Known((rate, 10_000), each=(rate, rate + 0.01)) for rate in (0.95, 0.9))
    >>> str(less(one, other)), str(with_luck(one, other))
    ('+5.00 points (+4.27 to +5.73)', '+5.00 points (+1.87 to +8.13)')
    """
    gap = less(one, other)
    several = [side.each for side in (one, other) if len(side.each) > 1]
    if not several:
        return gap
    free = sum(len(rates) - 1 for rates in several)
    variance = sum((len(rates) - 1) * statistics.variance(rates) for rates in several) / free
    trainings = 1 / len(one.each) + 1 / len(other.each)
    luck = round(t_quantile(free), 3) * math.sqrt(variance * trainings)
    half = math.hypot((gap.high - gap.low) / 2, luck)
    return Difference(gap.value, gap.value - half, gap.value + half)


def widen_interval(one: Known, comparisons: int) -> Known:
    """An area whose 95 % interval holds for so many comparisons together, by the normal law of the log odds."""
    value, wider = one.figure[0], NormalDist().inv_cdf(1 - 0.025 / comparisons) / Z95
    low, high = (0.5 + math.tanh((_logit(value) + wider * (_logit(end) - _logit(value))) / 2) / 2
                 for end in one.area or (value, value))  # fmt: skip
    return Known(one.figure, area=(low, high))


def _logit(share: float) -> float:
    share = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(share) - math.log1p(-share)
