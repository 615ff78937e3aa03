"""The best keys where the class counts, too: the largest scale * cosine + a bias for the key's class.

As in `retrieval.top_k` the keys are scanned in fp32, a few more than asked for are scored again in float64, rounded
once, and a query whose fp32 scores could have kept a better key out is scanned once more in float64: which sample comes
first does not depend on how many were asked for, on the batch or on the processor.

Letters: B queries, D features, N keys, C classes, K keys asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from provnet.keybank import PackedKeys, score_rows
from provnet.ranks import TopK, in_order, ranks_of, rows_of, scores_of
from provnet.retrieval import MARGIN, is_doubtful

Parts = Callable[[int], Iterator[tuple[int, Tensor]]]  # numbers for each key -> (first row, keys) of pieces
Labels = Callable[[Tensor], Tensor]  # rows of keys -> their classes


def best_jointly(
    queries: Tensor, bank: PackedKeys, k: int, *, scale: Tensor, bias: Tensor, parts: Parts, labels: Labels
) -> TopK:
    """The k keys (N, D) with the largest scale * cosine + bias (B, C) of their class, the lower row first where equal.

    >>> bank = PackedKeys(torch.eye(2))
    >>> found = best_jointly(
    ...     torch.tensor([[1.0, 0.0]]), bank, 2, scale=torch.tensor(1.0), bias=torch.tensor([[0.0, 5.0]]),
    ...     parts=lambda _: iter([(0, bank.unpacked())]), labels=lambda rows: rows,
    ... )
    >>> found.row.tolist(), found.score.tolist()
    ([[1, 0]], [[5.0, 1.0]])
    """
    count = min(k + MARGIN, len(bank))

    def scores(cosine: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
        classes = labels(rows)
        return scale * cosine + (bias[:, classes] if classes.ndim == 1 else bias.gather(1, classes))

    def candidates(queries: Tensor, bias: Tensor) -> Tensor:
        """(B, count) ranks by products of the type of the queries, rounded to fp32."""
        best = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        wide = 2 if queries.dtype == torch.float32 else 4  # ranks are twice as wide as scores, and so is float64
        for start, part in parts(wide * len(queries)):
            rows = torch.arange(start, start + len(part), device=part.device)
            ranks = ranks_of(scores((queries @ part.t().to(queries.dtype)).float(), rows, bias), rows)
            best = torch.cat([best, ranks.topk(min(count, len(part)), 1).values], 1)
            best = best.topk(min(count, best.shape[1]), 1).values
        return best

    def ranked(ranks: Tensor, queries: Tensor, bias: Tensor) -> tuple[TopK, Tensor]:
        """The best k of the candidates, and the scores of all of them, exactly."""
        rows = rows_of(ranks)
        exact = scores(score_rows(queries, bank, rows), rows, bias)
        return in_order(exact, rows, min(k, count)), exact

    ranks = candidates(queries, bias)
    found, exact = ranked(ranks, queries, bias)
    if count < len(bank):
        doubtful = is_doubtful(found.score[:, -1], scores_of(ranks), exact)
        if bool(doubtful.any()):
            some, of = queries[doubtful], bias[doubtful]
            better, _ = ranked(candidates(some.double(), of), some, of)
            found.score[doubtful], found.row[doubtful] = better.score, better.row
    return found
