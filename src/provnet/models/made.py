"""What a generator makes of a batch while it is trained, and the names of all generators.

Letters: B batch, C channels, H W height and width, L latents.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

# backbones that also make pictures, see `models.generators`
GENERATORS = ("vae-paper", "vae-paper-mean", "vae-faces", "vae-modern")


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
