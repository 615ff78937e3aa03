"""How good a score is, and which of two is better on the same samples: the bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from provnet.curves import Roc, checked, descending, roc
from provnet.errors import UsageError, choose
from provnet.stats import LEVEL, Interval


def measured(
    truth: np.ndarray, score: np.ndarray, *, measure: str = "average precision", draws: int = 2000, seed: int = 0
) -> Interval:
    """A measure of a score with its bootstrap interval; each kind of sample is drawn again by itself.

    >>> truth = np.array([True] * 5 + [False] * 5)
    >>> measured(truth, truth * 1.0, draws=50).value
    1.0
    """
    taken = choose("measure", measure, MEASURES)
    truth, score = checked(truth, score)
    side = _Drawn(truth, score)
    low, high = _ends(np.array([taken(side.curve(weights)) for weights in _draws(truth, draws, seed)]))
    return Interval(taken(roc(truth, score)), len(truth), low, high)


def difference(
    truth: np.ndarray, one: np.ndarray, other: np.ndarray, *, measure: str = "auc", draws: int = 2000, seed: int = 0
) -> Interval:
    """By how much a score is better than another on the same samples, with a paired bootstrap interval.

    `measure` is `auc` or `average precision`. Each kind is drawn again by itself, the same samples for both scores.

    >>> truth = np.array([True] * 5 + [False] * 5)
    >>> difference(truth, truth * 1.0, np.zeros(10), draws=50).value
    0.5
    """
    taken = choose("measure", measure, MEASURES)
    truth, one = checked(truth, one)
    _, other = checked(truth, other)
    first, second = (_Drawn(truth, score) for score in (one, other))
    drawn = [taken(first.curve(weights)) - taken(second.curve(weights)) for weights in _draws(truth, draws, seed)]
    low, high = _ends(np.array(drawn))
    return Interval(taken(roc(truth, one)) - taken(roc(truth, other)), len(truth), low, high)


def _draws(truth: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    """How often each sample was drawn, draw by draw."""
    if draws < 20:
        raise UsageError(f"draws must be 20 or more, got {draws}: their ends are the interval")
    chance = np.random.default_rng(seed)
    kinds = [np.flatnonzero(truth), np.flatnonzero(~truth)]
    for _ in range(draws):
        rows = np.concatenate([chance.choice(kind, len(kind)) for kind in kinds])
        yield np.bincount(rows, minlength=len(truth))


def _ends(found: np.ndarray) -> tuple[float, float]:
    """The middle share of the draws."""
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


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
