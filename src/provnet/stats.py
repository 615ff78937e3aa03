"""Intervals: every rate that provnet prints carries n and a 95 % interval."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from provnet.errors import UsageError

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """A rate with its 95 % interval; n = 0 has no value, which is said, not hidden behind NaN."""

    value: float | None
    n: int
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, Any]:
        """`{"value", "n", "low", "high"}`."""
        return asdict(self)

    def __str__(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return "no samples (n = 0)"
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%}, n = {self.n:,})"


def wilson(successes: float, n: int) -> Interval:
    """Wilson score interval of a rate: right also near 0 and 1, where the usual one fails.

    >>> str(wilson(95, 100))
    '95.00% (88.82% to 97.85%, n = 100)'
    """
    if n < 0 or not 0 <= successes <= n:
        raise UsageError(f"successes must lie in 0..n, got {successes} of {n}")
    if n == 0:
        return Interval(None, 0, None, None)
    p = successes / n
    spread = 1 + Z95**2 / n
    middle = (p + Z95**2 / (2 * n)) / spread
    half = Z95 / spread * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    # at 0 and 1 an end is the rate itself, but for the last bit
    return Interval(p, n, min(p, max(0.0, middle - half)), max(p, min(1.0, middle + half)))
