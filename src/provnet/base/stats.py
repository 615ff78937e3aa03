"""Intervals: every rate that provnet prints carries n and a 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from provnet.base.errors import UsageError

Z95 = 1.959963984540054
LEVEL = 0.95
_ENOUGH, _CLOSE = 100_000, 1e-15  # terms of a continued fraction, and when its next one changes nothing


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
    low = beta_quantile(tail, successes, n - successes + 1) if successes > 0 else 0.0
    high = beta_quantile(1 - tail, successes + 1, n - successes) if successes < n else 1.0
    return Interval(successes / n, n, low, high)


def t_quantile(df: float) -> float:
    """How many standard errors hold 95 %, where the standard error itself has so many degrees of freedom.

    >>> round(t_quantile(10), 3), round(t_quantile(1e9), 3)
    (2.228, 1.96)
    """
    if df >= 1e5:
        return Z95
    x = beta_quantile(1 - LEVEL, df / 2, 0.5)  # of df / (df + t^2)
    return math.sqrt(df * (1 - x) / x)


def beta_quantile(share: float, a: float, b: float) -> float:
    """The value below which a Beta(a, b) lies with that probability, to the last few bits.

    >>> round(beta_quantile(0.5, 2, 2), 6)
    0.5
    """
    if not (a > 0 and b > 0 and 0 <= share <= 1):
        raise UsageError(f"a and b must be above 0 and the share in 0..1, got {a}, {b} and {share}")
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):  # Newton's steps, or halves where they lead out
        away = beta_share(x, a, b) - share
        low, high = (x, high) if away < 0 else (low, x)
        slope = math.exp(_log_front(x, a, b)) / (x * (1 - x)) if 0 < x < 1 else 0.0
        step = x - away / slope if slope > 0 else math.nan
        follow = step if low < step < high else (low + high) / 2
        if abs(follow - x) <= 1e-15 * x or not low < follow < high:
            return follow
        x = follow
    return x


def beta_share(x: float, a: float, b: float) -> float:
    """The probability that a Beta(a, b) lies below x (the regularised incomplete beta function).

    >>> round(beta_share(0.25, 1, 2), 6)
    0.4375
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction below converges fast on the other side only
        return 1 - beta_share(1 - x, b, a)
    return math.exp(_log_front(x, a, b)) / a * _fraction(x, a, b)


def _log_front(x: float, a: float, b: float) -> float:
    """The log of x^a (1 - x)^b / B(a, b)."""
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, _ENOUGH):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d = 1 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            change = c * d
            value *= change
        if abs(change - 1) < _CLOSE:
            break
    return value


def _check(successes: float, n: int) -> None:
    if n < 0 or not 0 <= successes <= n:
        raise UsageError(f"successes must lie in 0..n, got {successes} of {n}")
