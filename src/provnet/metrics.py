"""Metrics on arrays, one value per query; the caller averages, splits or bootstraps.

Letters: B queries, K exemplars. `index` and `label` hold -1 where a class has fewer than K samples.
"""

from __future__ import annotations

import numpy as np


def index_hit(index: np.ndarray, own: np.ndarray, k: int = 1) -> np.ndarray:
    """Whether a training sample's own index is among its first k exemplars: (B, K), (B,) -> (B,) bool.

    High says that the head memorised; it says little about explanation by itself (untrained features reach it too),
    so read it beside the perturbed figure.

    >>> index_hit(np.array([[4, 2]]), np.array([2]), k=2).tolist()
    [True]
    """
    return np.asarray((index[:, :k] == own[:, None]).any(1))


def group_hit(index: np.ndarray, own: np.ndarray, groups: np.ndarray, k: int = 1) -> np.ndarray:
    """Like `index_hit`, but any exact duplicate of the sample counts: equal pictures cannot be told apart.

    >>> group_hit(np.array([[1]]), np.array([0]), groups=np.array([7, 7])).tolist()
    [True]
    """
    found = index[:, :k]
    same = groups[np.maximum(found, 0)] == groups[own][:, None]
    return np.asarray((same & (found >= 0)).any(1))


def any_at_k(label: np.ndarray, truth: np.ndarray, k: int) -> np.ndarray:
    """Whether any of the first k exemplars has the query's true label (what table 2's "top-5" fits).

    >>> any_at_k(np.array([[1, 2, 3]]), np.array([3]), k=2).tolist()
    [False]
    """
    return np.asarray((label[:, :k] == truth[:, None]).any(1))


def majority_at_k(label: np.ndarray, truth: np.ndarray, k: int) -> np.ndarray:
    """Whether the most frequent label of the first k exemplars is the true one; a tie goes to the better-ranked label.

    >>> majority_at_k(np.array([[1, 2, 2]]), np.array([2]), k=3).tolist()
    [True]
    """
    first = label[:, :k]
    votes = (first[:, :, None] == first[:, None, :]).sum(2)
    votes = np.where(first >= 0, votes, 0)
    winner = first[np.arange(len(first)), votes.argmax(1)]  # argmax takes the first, i.e. the better-ranked
    return np.asarray(winner == truth)
