"""Two answers to the same questions: how often is one right where the other is wrong, with an interval."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from provnet.errors import UsageError


@dataclass(frozen=True)
class Difference:
    """Difference of two rates on the same n samples, in -1..1, with its interval.

    Attributes:
        value: rate of the first less that of the second.
        n: samples.
        low, high: the interval; it is wider where it is one of `comparisons`, so that all of them hold together.
        only_first, only_second: samples that the one got right and the other did not.
    """

    value: float
    n: int
    low: float
    high: float
    only_first: int
    only_second: int

    @property
    def better(self) -> bool:
        """Whether the first is better beyond chance of the test samples."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Whether the second is."""
        return self.high < 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "better": self.better, "worse": self.worse}


def paired_difference(first: np.ndarray, second: np.ndarray, comparisons: int = 1) -> Difference:
    """Compare two (n,) bool arrays, right or wrong: Agresti and Min's interval, half a sample in each cell.

    It covers the choice of the test samples, not the luck of one training.

    >>> found = paired_difference(np.array([True] * 90 + [False] * 10), np.array([True] * 60 + [False] * 40))
    >>> round(found.value, 2), found.better
    (0.3, True)
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) == 0:
        raise UsageError(f"two arrays of one length above 0 are compared, got shapes {first.shape} and {second.shape}")
    if comparisons < 1:
        raise UsageError(f"comparisons must be 1 or more, got {comparisons}")
    n = len(first)
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    z = NormalDist().inv_cdf(1 - 0.025 / comparisons)
    middle = (won - lost) / (n + 2)
    half = z * math.sqrt((won + lost + 1) / (n + 2) - middle**2) / math.sqrt(n + 2)
    value = (won - lost) / n
    return Difference(value, n, max(-1.0, middle - half), min(1.0, middle + half), won, lost)
