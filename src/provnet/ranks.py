"""Scores with the rows behind them, in one order: the larger score first, and the lower row where scores are equal.

`topk` leaves the order of equal scores open, and which of two equal pictures is named must not depend on how many were
asked for.

Letters: B queries, K keys of a query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LAST_ROW = 2**32 - 1


@dataclass(frozen=True)
class TopK:
    """The best keys of each query, best first.

    Attributes:
        score: (B, K) float32 inner products; -inf where row is -1.
        row: (B, K) int64 rows of the keys; -1 where there are fewer than K.
    """

    score: Tensor
    row: Tensor


@dataclass(frozen=True)
class Ranked:
    """The best samples of each query: (B, K) indices, -1 where a class has fewer, and the log of their shares."""

    index: Tensor
    log_share: Tensor


def ranks_of(scores: Tensor, rows: Tensor) -> Tensor:
    """One int64 per fp32 score that sorts by score, then by lower row.

    >>> ranks_of(torch.tensor([2.0, -1.0, 2.0]), torch.tensor([7, 8, 3])).argsort(descending=True).tolist()
    [2, 0, 1]
    """
    bits = scores.view(torch.int32)
    ordered = torch.where(bits < 0, -(2**31) - bits, bits)  # negative floats count downwards, and -0.0 is 0.0
    return torch.add(LAST_ROW - rows, ordered, alpha=2**32)


def rows_of(ranks: Tensor) -> Tensor:
    """The rows behind ranks.

    >>> rows_of(ranks_of(torch.tensor([2.0, -1.0]), torch.tensor([7, 8]))).tolist()
    [7, 8]
    """
    return LAST_ROW - (ranks & LAST_ROW)


def scores_of(ranks: Tensor) -> Tensor:
    """The scores behind ranks.

    >>> scores_of(ranks_of(torch.tensor([2.0, -1.0]), torch.tensor([7, 8]))).tolist()
    [2.0, -1.0]
    """
    ordered = (ranks >> 32).int()
    return torch.where(ordered < 0, -(2**31) - ordered, ordered).view(torch.float32)


def in_order(score: Tensor, row: Tensor, k: int) -> TopK:
    """The best k of (B, K) candidates, best first; row -1 comes last.

    >>> in_order(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([[0, 9, 4]]), 2).row.tolist()
    [[4, 9]]
    """
    places = ranks_of(score, row.where(row >= 0, LAST_ROW)).topk(k, 1).indices
    return TopK(score.gather(1, places), row.gather(1, places))
