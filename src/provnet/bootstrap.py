"""Which of two scores is better on the same samples: the paired bootstrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from provnet.curves import Roc, checked, descending, roc
from provnet.errors import UsageError, choose
from provnet.stats import LEVEL, Interval


def difference(
    truth: np.ndarray, one: np.ndarray, other: np.ndarray, *, measure: str = "auc", draws: int = 2000, seed: int = 0
) -> Interval:
    """By how much a score is better than another on the same samples, with a paired bootstrap interval.

    `measure` is `auc` or `average precision`. Each kind is drawn again by itself, the same samples for both scores.

    >>> truth = np.array([True] * 5 + [False] * 5)
    >>> difference(truth, truth * 1.0, np.zeros(10), draws=50).value
    0.5
    """
    if draws < 20:
        raise UsageError(f"draws must be 20 or more, got {draws}: their ends are the interval")
    measured = choose("measure", measure, MEASURES)
    truth, one = checked(truth, one)
    _, other = checked(truth, other)
    sides = [_Drawn(truth, score) for score in (one, other)]
    chance = np.random.default_rng(seed)
    kinds = [np.flatnonzero(truth), np.flatnonzero(~truth)]
    found = np.empty(draws)
    for draw in range(draws):
        weights = np.zeros(len(truth), dtype=np.int64)
        for rows in kinds:
            weights += np.bincount(chance.choice(rows, len(rows)), minlength=len(truth))
        found[draw] = measured(sides[0].curve(weights)) - measured(sides[1].curve(weights))
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(measured(roc(truth, one)) - measured(roc(truth, other)), len(truth), float(low), float(high))


class _Drawn:
    """A score sorted once, so that each draw of samples (as counts) costs no sorting."""

    def __init__(self, truth: np.ndarray, score: np.ndarray) -> None:
        self.order, self.ends = descending(score)
        self.truth = truth[self.order]

    def curve(self, weights: np.ndarray) -> Roc:
        """The curve of a draw; `threshold` holds counts, as nobody asks for it."""
        drawn = weights[self.order]
        hits = np.concatenate([[0], np.cumsum(drawn * self.truth)[self.ends]])
        every = np.concatenate([[0], np.cumsum(drawn)[self.ends]])
        kept = np.concatenate([[True], np.diff(every) > 0])
        hits, every = hits[kept], every[kept]
        return Roc(every, hits, every - hits, int(hits[-1]), int(every[-1] - hits[-1]))


MEASURES: dict[str, Callable[[Roc], float]] = {
    "auc": lambda curve: curve.auc,
    "average precision": lambda curve: curve.average_precision,
}
