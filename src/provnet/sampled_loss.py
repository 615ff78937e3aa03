"""Cross-entropy over a random share of the keys, the targets always among them (Partial FC).

For training where even one pass over all keys a step is too slow: time and key gradients shrink with the share.

Letters: B batch, D features, N samples (one key each).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provnet.errors import UsageError
from provnet.index_loss import IndexLoss, index_cross_entropy
from provnet.loss_checks import check_given


def sampled_cross_entropy(
    features: Tensor,
    keys: Tensor,
    target: Tensor,
    *,
    rate: float,
    generator: torch.Generator,
    bias: Tensor | None = None,
    scale: float | Tensor = 1.0,
    smoothing: float = 0.0,
    chunk: int = 8192,
) -> IndexLoss:
    """Cross-entropy over a random share of the keys: as `index_cross_entropy`, in `rate` of its time.

    One sample of max(ceil(rate * N), min(B, N)) different keys serves the whole batch: the targets of the batch, then
    keys drawn evenly from the rest. It estimates the loss of telling the target from that sample, not from all keys,
    so without smoothing it is never above the exact loss: where the target has probability p among all keys, it is
    too low by about -log(p + r * (1 - p)), r the share of the sample: -log(r) before training, nothing once p is 1.
    `hit` likewise says that the target was the best of the sample: it is True more often than over all keys. Smoothing
    spreads over the sample. At rate 1 both are exact. The generator draws on its own device. There is no `span`: one
    sample serves every row, so a row's class could have no key in it but the target.

    >>> features, keys, target = torch.zeros(1, 2), torch.ones(8, 2), torch.tensor([3])
    >>> sampled = sampled_cross_entropy(features, keys, target, rate=0.25, generator=torch.Generator())
    >>> exact = index_cross_entropy(features, keys, target)
    >>> [round(float(x), 4) for x in (sampled.loss, exact.loss)]  # log(2) and log(8)
    [0.6931, 2.0794]
    """
    if not 0 < rate <= 1:
        raise UsageError(f"rate must lie in (0, 1], got {rate}; 1 uses every key")
    check_given(features, keys, target, bias, scale, smoothing, chunk)
    count = max(math.ceil(rate * len(keys)), min(len(target), len(keys)))
    if count < len(keys):
        known = (target >= 0) & (target < len(keys))  # on a GPU not checked: an unknown one stays so and gives NaN
        rows = _sample_rows(len(keys), count, target.clamp(0, len(keys) - 1), generator)
        target = torch.where(known, torch.searchsorted(rows, target), -1)
        keys = keys.index_select(0, rows)
        bias = None if bias is None else bias.index_select(0, rows)
    return index_cross_entropy(features, keys, target, bias=bias, scale=scale, smoothing=smoothing, chunk=chunk)


def _sample_rows(n: int, count: int, target: Tensor, generator: torch.Generator) -> Tensor:
    """`count` different rows of n in rising order: all targets, the others drawn evenly; nothing waits for a GPU."""
    rank = torch.randperm(n, generator=generator, device=generator.device).to(target.device)
    rank.index_fill_(0, target, -1)
    return rank.topk(count, largest=False).indices.sort().values
