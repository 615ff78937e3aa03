"""Intervals: every rate that provnet prints carries n and a 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import betaincinv, stdtrit

from provnet.base.errors import UsageError

Z95 = 1.959963984540054
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A rate with its 95 % interval; where there is no value `why` says why, instead of a NaN."""

    value: float | None
    n: int
    low: float | None
    high: float | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """`{"value", "n", "low", "high"}`, and `why` where something is to be said."""
        found: dict[str, Any] = {"value": self.value, "n": self.n, "low": self.low, "high": self.high}
        return {**found, "why": self.why} if self.why else found

    def __str__(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return self.why or "no samples (n = 0)"
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%}, n = {self.n:,})"


def wilson(successes: float, n: int) -> Interval:
    """Wilson score interval of a rate: right also near 0 and 1, where the usual one fails.

    >>> str(wilson(95, 100))
    '95.00% (88.82% to 97.85%, n = 100)'
    """
    _check(successes, n)
    if n == 0:
        return Interval(None, 0, None, None)
    p = successes / n
    spread = 1 + Z95**2 / n
    middle = (p + Z95**2 / (2 * n)) / spread
    half = Z95 / spread * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    # at 0 and 1 an end is the rate itself, but for the last bit
    return Interval(p, n, min(p, max(0.0, middle - half)), max(p, min(1.0, middle + half)))


def clopper_pearson(successes: int, n: int) -> Interval:
    """Exact interval of a rate: it holds the true rate at least 95 times in 100, whatever that is; wider than Wilson's.

    >>> str(clopper_pearson(0, 100))
    '0.00% (0.00% to 3.62%, n = 100)'
    """
    _check(successes, n)
    if n == 0:
        return Interval(None, 0, None, None)
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Interval(successes / n, n, low, high)


def t_quantile(df: float) -> float:
    """How many standard errors hold 95 %, where the standard error itself has so many degrees of freedom.

    >>> round(t_quantile(10), 3), round(t_quantile(1e9), 3)
    (2.228, 1.96)
    """
    return Z95 if df >= 1e5 else float(stdtrit(df, (1 + LEVEL) / 2))


def _check(successes: float, n: int) -> None:
    if n < 0 or not 0 <= successes <= n:
        raise UsageError(f"successes must lie in 0..n, got {successes} of {n}")
