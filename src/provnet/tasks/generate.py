"""Making pictures: a class for each sample, and beside it the losses of a generator.

Letters: B batch, C channels, H W height and width, L latents.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.tasks.classify import Classify


class Normal(NamedTuple):
    """A normal distribution of latents, independent in each: mean and log of the variance, (B, L) or () for all."""

    mean: Tensor
    log_variance: Tensor


class Made(NamedTuple):
    """A batch rebuilt through sampled latents: everything that the generative losses need."""

    target: Tensor  # (B, C, H, W) pixels in [0, 1]
    logits: Tensor  # (B, C, H, W) of the rebuilt pixels
    posterior: Normal  # q(z | x)
    prior: Normal  # p(z), or p(z | class)
    feature: Tensor  # () distance of the features of both pictures; 0 where there is none
    warmth: Tensor  # () what the divergence counts now, 0..1
    weight: float  # what all of this counts beside class and index


class Generate(Classify):
    """The network also gives its input back; the exemplars of a picture are looked for in its class."""

    parts = ("reconstruction", "divergence", "feature")
    rebuilds = True

    def extra(self, made: Made) -> tuple[Tensor, Tensor]:
        """Binary cross-entropy summed over pixels, KL divergence over latents, and the feature loss.

        All are means over the batch; the divergence of the posterior is taken from the prior of each sample.
        """
        posterior, prior = made.posterior, made.prior
        each = F.binary_cross_entropy_with_logits(made.logits.float(), made.target, reduction="none")
        reconstruction = each.flatten(1).sum(1).mean()
        apart = (posterior.log_variance.exp() + (posterior.mean - prior.mean).square()) / prior.log_variance.exp()
        divergence = 0.5 * (apart - 1 + prior.log_variance - posterior.log_variance).sum(1).mean()
        total = made.weight * (reconstruction + made.warmth * divergence + made.feature)
        return total, torch.stack([reconstruction, divergence, made.feature]).detach()
