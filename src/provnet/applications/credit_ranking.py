"""The ranking of contributors by their share of the credit, with bootstrap intervals over the queries.

Letters: q queries that credit somebody, G contributors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from provnet.applications.inequality import gini
from provnet.stats import LEVEL, Interval

UNLISTED = "(not listed)"  # how samples without a contributor are called
NOBODY = "no query is supported: nobody is credited"


@dataclass(frozen=True)
class Contributor:
    """The credit of one contributor.

    Attributes:
        name: as given; UNLISTED for samples without one.
        listed: False for those.
        samples: how many of theirs may be named.
        share: of all credit, with its bootstrap interval; n is the number of queries that credit anybody.
        rank: 1 is the largest share; `rank_low` to `rank_high` hold 95 % of the draws.
        first: share of the draws in which it is the largest.
        lift: share of the credit over share of the samples: 1 is what size alone would give.
    """

    name: str
    listed: bool
    samples: int
    share: Interval
    rank: int
    rank_low: int
    rank_high: int
    first: float
    lift: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "share": self.share.to_json()}


def ranked(
    names: list[str], listed: np.ndarray, sizes: np.ndarray, shares: np.ndarray, draws: int, seed: int
) -> tuple[tuple[Contributor, ...], np.ndarray, Interval]:
    """The ranking, its order among `names`, and the Gini coefficient; from the (q, G) shares of queries that count."""
    n, total = len(shares), int(sizes.sum())
    if n == 0:
        order = np.argsort(-sizes, kind="stable")
        none = Interval(None, 0, None, None, NOBODY)
        many = len(order)
        rows = [Contributor(names[g], bool(listed[g]), int(sizes[g]), none, 1, 1, many, 0.0, None) for g in order]
        return tuple(rows), order, none
    mean = shares.mean(0)
    order = np.argsort(-mean, kind="stable")
    drawn = _drawn(shares, draws, seed)
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    low, high = np.quantile(drawn, ends, axis=0) if n > 1 else (np.zeros(len(mean)), np.ones(len(mean)))
    ranks = np.argsort(np.argsort(-drawn, axis=1, kind="stable"), axis=1) + 1
    rank_low, rank_high = np.quantile(ranks, ends, axis=0, method="nearest")
    first = (ranks == 1).mean(0)
    rows = [
        Contributor(
            name=names[g],
            listed=bool(listed[g]),
            samples=int(sizes[g]),
            share=Interval(float(mean[g]), n, float(low[g]), float(high[g])),
            rank=number,
            rank_low=int(rank_low[g]) if n > 1 else 1,
            rank_high=int(rank_high[g]) if n > 1 else len(mean),
            first=float(first[g]),
            lift=float(mean[g] * total / sizes[g]),
        )
        for number, g in enumerate(order.tolist(), 1)
    ]
    unequal = [gini(one[listed]) for one in drawn]
    ends_of = np.quantile(unequal, ends) if n > 1 else (0.0, 1.0)
    return tuple(rows), order, Interval(gini(mean[listed]), n, float(ends_of[0]), float(ends_of[1]))


def _drawn(shares: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(draws, G) mean shares of as many queries, drawn again."""
    chance = np.random.default_rng([seed, 61])
    n = len(shares)
    return np.stack([np.bincount(chance.integers(0, n, n), minlength=n) @ shares / n for _ in range(draws)])
