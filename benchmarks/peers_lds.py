"""The linear datamodeling score: whether attributions foretell what training on a part of the data gives.

Networks are trained on random halves. For a query a method foretells the margin of each of them by the sum of its
scores over that half; the score is the rank correlation of this with the margins that came out, averaged over queries
(Park et al. 2023). Twice trained on each half, the margins say themselves how much of them training settles anew.

Letters: Q queries, N training samples, S subsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from peers_cnn import Subject, logits, margins, train_cnn
from torch import Tensor

Say = Callable[[str], None]


def halves(n: int, count: int, seed: int) -> np.ndarray:
    """(S, N) bool: random halves of the samples.

    >>> halves(10, 3, 0).sum(1).tolist()
    [5, 5, 5]
    """
    chance = np.random.default_rng(seed)
    found = np.zeros((count, n), np.bool_)
    for row in found:
        row[chance.permutation(n)[: n // 2]] = True
    return found


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis; equal values share the mean of theirs.

    >>> ranks(np.array([10.0, 30.0, 10.0])).tolist()
    [0.5, 2.0, 0.5]
    """
    rows = values.reshape(-1, values.shape[-1])
    found = np.empty(rows.shape)
    for row, out in zip(rows, found, strict=True):
        _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
        out[:] = (np.cumsum(counts) - (counts + 1) / 2)[inverse]
    return found.reshape(values.shape)


def spearman(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(Q, S), (Q, S) -> (Q,) rank correlations; 0 where one side does not vary, as nothing is foretold then.

    >>> spearman(np.array([[1.0, 2.0, 9.0], [1.0, 1.0, 1.0]]), np.array([[5.0, 6.0, 7.0], [1.0, 2.0, 3.0]])).tolist()
    [1.0, 0.0]
    """
    a, b = (ranks(each) - (each.shape[1] - 1) / 2 for each in (one, other))
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.asarray(np.divide((a * b).sum(1), size, out=np.zeros(len(a)), where=size > 0).round(12))


def foretold(scores: np.ndarray, subsets: np.ndarray) -> np.ndarray:
    """(Q, N) scores, (S, N) subsets -> (Q, S) the sum of the scores in each subset."""
    return np.asarray(scores.astype(np.float64) @ subsets.T.astype(np.float64))


def averaged(each: np.ndarray, seed: int, draws: int = 2000) -> dict[str, Any]:
    """The mean over queries with its bootstrap interval.

    >>> averaged(np.ones(4), 0, draws=20)
    {'value': 1.0, 'n': 4, 'low': 1.0, 'high': 1.0}
    """
    chance = np.random.default_rng(seed)
    drawn = each[chance.integers(0, len(each), (draws, len(each)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"value": float(each.mean()), "n": len(each), "low": float(low), "high": float(high)}


def retrained(
    subject: Subject, subsets: np.ndarray, queries: Tensor, classes: Tensor, *, epochs: int, seed: int, say: Say
) -> np.ndarray:
    """(2, Q, S) margins of the queries after training on each subset, twice from other initial weights."""
    count = int(subject.labels.max()) + 1
    found = np.empty((2, len(queries), len(subsets)))
    for number, subset in enumerate(subsets):
        rows = torch.from_numpy(np.flatnonzero(subset))
        for turn in range(2):
            start = seed + 1000 + 2 * number + turn
            net = train_cnn(subject.inputs[rows], subject.labels[rows], count, epochs=epochs, seed=start).net
            found[turn, :, number] = margins(logits(net, queries), classes).numpy()
        if number % 10 == 9:
            say(f"{number + 1} of {len(subsets)} halves trained twice")
    return found
