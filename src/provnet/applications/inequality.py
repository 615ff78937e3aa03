"""Inequality of shares: the Lorenz curve and the Gini coefficient."""

from __future__ import annotations

import numpy as np

from provnet.errors import UsageError

POINTS = 200  # of a curve that is drawn


def gini(shares: np.ndarray) -> float:
    """0 where all have the same, (n - 1) / n where one of n has all; 0 where nobody has anything.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 1.0])), gini(np.array([1, 3]))
    (0.0, 0.6666666666666666, 0.25)
    """
    ordered = _ordered(shares)
    total, n = float(ordered.sum()), len(ordered)
    if n == 0 or total == 0:
        return 0.0
    return max(0.0, float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum()) / (n * total))


def lorenz(shares: np.ndarray) -> tuple[tuple[float, float], ...]:
    """(share of contributors, share of what they have together), smallest first, from (0, 0) to (1, 1).

    >>> lorenz(np.array([3, 1]))
    ((0.0, 0.0), (0.5, 0.25), (1.0, 1.0))
    """
    ordered = _ordered(shares)
    total, n = float(ordered.sum()), len(ordered)
    if n == 0 or total == 0:
        return ()
    kept = np.unique(np.linspace(0, n, min(n, POINTS) + 1).round().astype(np.int64))
    height = np.concatenate([[0.0], np.cumsum(ordered) / total])
    height[-1] = 1.0
    return tuple((float(i / n), float(height[i])) for i in kept)


def _ordered(shares: np.ndarray) -> np.ndarray:
    values = np.sort(np.asarray(shares, dtype=np.float64))
    if values.ndim != 1 or not np.isfinite(values).all() or (len(values) and values[0] < 0):
        raise UsageError("shares must be one list of finite numbers, none of them negative")
    return values
