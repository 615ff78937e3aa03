"""Losses from outputs: models give outputs, objectives give losses.

Letters: B batch, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.errors import UsageError
from provnet.heads.losses import index_loss
from provnet.models.network import Made, ProvenanceNet, ProvenanceOutput


@dataclass(frozen=True)
class Losses:
    """Mean losses of a batch, and the class loss of each sample (no gradient) for the record of training."""

    total: Tensor
    task: Tensor
    index: Tensor
    per_sample: Tensor  # (B,)
    found: Tensor  # (B,) bool: whether the target was the best sample; times the weight where there is one
    parts: Tensor | None = None  # (3,) those of a generator, see PARTS


PARTS = ("reconstruction", "divergence", "feature")


def generative_loss(made: Made) -> tuple[Tensor, Tensor]:
    """The loss of a generator, and its PARTS: binary cross-entropy summed over pixels, KL divergence over latents.

    Both are means over the batch; the divergence of the posterior is taken from the prior of each sample.
    """
    posterior, prior = made.posterior, made.prior
    each = F.binary_cross_entropy_with_logits(made.logits.float(), made.target, reduction="none")
    reconstruction = each.flatten(1).sum(1).mean()
    apart = (posterior.log_variance.exp() + (posterior.mean - prior.mean).square()) / prior.log_variance.exp()
    divergence = 0.5 * (apart - 1 + prior.log_variance - posterior.log_variance).sum(1).mean()
    total = made.weight * (reconstruction + made.warmth * divergence + made.feature)
    return total, torch.stack([reconstruction, divergence, made.feature]).detach()


@dataclass(frozen=True)
class ProvenanceObjective:
    """Weighted sum of the class and the index loss (§3.2; weights and smoothing as app. 7.2).

    A single-branch network has no class loss: its total is the index loss. With `negatives` an exemplar head is trained
    against so many keys a step instead of all. `task_smoothing` is part of the total alone: the class losses that are
    reported and kept are those of the labels as given.
    """

    task_weight: float = 0.3
    index_weight: float = 0.7
    smoothing: float = 0.05
    negatives: int = 0
    task_smoothing: float = 0.0

    def __post_init__(self) -> None:
        weights = self.task_weight, self.index_weight
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or sum(weights) == 0:
            raise UsageError(f"loss weights must be 0 or more, finite, not both 0; got {weights[0]}, {weights[1]}")
        for smoothing in (self.smoothing, self.task_smoothing):
            if not 0 <= smoothing < 1:
                raise UsageError(f"label smoothing must lie in [0, 1), got {smoothing}")

    def __call__(
        self,
        net: ProvenanceNet,
        output: ProvenanceOutput,
        labels: Tensor,
        targets: Tensor,
        weight: Tensor | None = None,
    ) -> Losses:
        """Losses of a batch: labels (B,) and target indices (B,); `weight` (B,) is what each index loss counts."""
        each, found = self._index(net, output, targets)
        if weight is not None:
            each, found = each * weight, found * weight
        index = each.mean()
        per_sample = F.cross_entropy(output.logits.float(), labels, reduction="none")
        task = per_sample.mean()
        smoothed = self._smoothed(net, output.logits, labels) if self.task_smoothing else task
        total = index if net.task_head is None else self.task_weight * smoothed + self.index_weight * index
        parts = None
        if output.made is not None:
            generative, parts = generative_loss(output.made)
            total = total + generative
        return Losses(total, task.detach(), index.detach(), per_sample.detach(), found, parts)

    def _smoothed(self, net: ProvenanceNet, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean class loss with smoothing over the classes that have samples."""
        there = (net.index_map.sizes > 0).expand_as(logits) if net.has_empty else None
        return index_loss(logits, there, labels, self.task_smoothing).mean()

    def _index(self, net: ProvenanceNet, output: ProvenanceOutput, targets: Tensor) -> tuple[Tensor, Tensor]:
        return net.index_head.loss(
            output.index_features, output.classes, output.index_scores, targets, self.smoothing, self.negatives
        )
