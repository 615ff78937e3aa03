"""Losses from outputs: models give outputs, objectives give losses.

Letters: B batch, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from provnet.errors import UsageError
from provnet.models.provenance import ProvenanceNet, ProvenanceOutput


@dataclass(frozen=True)
class Losses:
    """Mean losses of a batch, and the class loss of each sample (no gradient) for the record of training."""

    total: Tensor
    task: Tensor
    index: Tensor
    per_sample: Tensor  # (B,)


def index_loss(scores: Tensor, valid: Tensor | None, slots: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing over the valid slots only: (B, slots), bool, (B,) -> (B,).

    Smoothing over masked slots would be infinite. `valid` None means that every slot names a sample.

    >>> import torch
    >>> scores = torch.tensor([[0.0, 0.0, -torch.inf]])
    >>> round(float(index_loss(scores, scores.isfinite(), torch.tensor([0]), 0.1)), 4)
    0.6931
    """
    if valid is None:
        return F.cross_entropy(scores.float(), slots, label_smoothing=smoothing, reduction="none")
    logp = F.log_softmax(scores.float(), dim=1)
    own = -logp.gather(1, slots.unsqueeze(1)).squeeze(1)
    if smoothing == 0:
        return own
    spread = -logp.masked_fill(~valid, 0.0).sum(1) / valid.sum(1)
    return (1 - smoothing) * own + smoothing * spread


@dataclass(frozen=True)
class ProvenanceObjective:
    """Weighted sum of the class and the index loss (§3.2; weights and smoothing as app. 7.2).

    A single-branch network has no class loss: its total is the index loss.
    """

    task_weight: float = 0.3
    index_weight: float = 0.7
    smoothing: float = 0.05

    def __post_init__(self) -> None:
        if min(self.task_weight, self.index_weight) < 0 or self.task_weight + self.index_weight == 0:
            raise UsageError(f"loss weights must be 0 or more, not both 0; got {self.task_weight}, {self.index_weight}")
        if not 0 <= self.smoothing < 1:
            raise UsageError(f"label smoothing must lie in [0, 1), got {self.smoothing}")

    def __call__(self, net: ProvenanceNet, output: ProvenanceOutput, labels: Tensor, targets: Tensor) -> Losses:
        """Losses of a batch: labels (B,) and target indices (B,)."""
        head = net.index_head
        each = index_loss(output.index_scores, head.valid(output.classes), head.to_slot(targets), self.smoothing)
        index = each.mean()
        per_sample = F.cross_entropy(output.logits.float(), labels, reduction="none")
        task = per_sample.mean()
        total = index if net.task_head is None else self.task_weight * task + self.index_weight * index
        return Losses(total, task.detach(), index.detach(), per_sample.detach())
