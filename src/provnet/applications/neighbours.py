"""The training samples most like a sample, the sample itself left out, and what their labels say.

Letters: N samples, D features, K neighbours, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.retrieval import top_k
from provnet.training.progress import progress_bar

NEIGHBOURS = 30
SHARPNESS = 20.0  # of the weights: a cosine smaller by .05 than the best counts a third
BATCH = 1024


@dataclass(frozen=True, eq=False)
class Neighbours:
    """(N, K) rows of the nearest other samples, best first, -1 where there are fewer; and their cosines."""

    row: np.ndarray
    cosine: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """(N, K) how much each counts, 1 for the nearest."""
        falling = np.exp(SHARPNESS * (self.cosine - self.cosine[:, :1])) if self.cosine.shape[1] else self.cosine
        return np.asarray(np.where(self.row >= 0, falling, 0.0))


def others(features: Tensor, k: int = NEIGHBOURS, *, progress: bool = False) -> Neighbours:
    """The k nearest other samples of each, by the cosine of features (N, D) of length one.

    >>> others(torch.eye(3)[[0, 0, 1]], k=1).row.tolist()
    [[1], [0], [0]]
    """
    n = len(features)
    if n < 2:
        return Neighbours(np.full((n, 1), -1), np.zeros((n, 1), dtype=np.float32))
    rows, cosines = [], []
    with progress_bar("neighbours", n, progress) as update:
        for start in range(0, n, BATCH):
            queries = features[start : start + BATCH]
            found = top_k(queries, features, min(k + 1, n))
            own = found.row == torch.arange(start, start + len(queries), device=found.row.device).unsqueeze(1)
            own[~own.any(1), -1] = True  # so many equals that the sample itself is not among them: the last goes
            rows.append(found.row[~own].view(len(queries), -1).cpu())
            cosines.append(found.score[~own].view(len(queries), -1).cpu())
            update(min(start + BATCH, n), "")
    return Neighbours(torch.cat(rows).numpy(), torch.cat(cosines).numpy())


def votes(near: Neighbours, labels: np.ndarray, trust: np.ndarray, classes: int) -> np.ndarray:
    """(N, C) what the neighbours' labels say, each counted by nearness and by trust (N,) in its own label.

    >>> near = others(torch.eye(2)[[0, 0, 1]], k=2)
    >>> votes(near, np.array([0, 1, 1]), np.ones(3), 2).argmax(1).tolist()  # the third has two equally far others
    [1, 0, 0]
    """
    found = np.zeros((len(labels), classes))
    weight = near.weight * trust[np.maximum(near.row, 0)]
    for k in range(near.row.shape[1]):  # one neighbour at a time: no (N, K, C) memory
        np.add.at(found, (np.arange(len(labels)), labels[np.maximum(near.row[:, k], 0)]), weight[:, k])
    return found
