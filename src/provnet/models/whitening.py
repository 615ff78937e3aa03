"""What is measured on features that are not trained: layers that are set once, from the features of all samples.

Pooled features lie in a narrow cone, and a few directions hold most of their spread: cosines between them hardly
differ. About their mean they do; whitened, all directions count alike, and a changed copy of a sample still finds its
own.

Letters: B batch, D features, K numbers of a key, N samples.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from provnet.base.batches import keyed_generator

RIDGE = 0.1  # of the mean variance, added to that of each direction: those with hardly any spread hold noise
FLOOR, TINY = 1e-4, 1e-12  # of the mean variance, and of no variance at all
KEY = 256  # numbers of a whitened key
LEAST = 1e-6  # of the largest spread: a feature that never changes stays at zero


@final
class Standardise(nn.Module):
    """Features (B, D) less their mean, over their standard deviation; `measure` sets both."""

    mean: Tensor
    std: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))

    def measure(self, features: Tensor) -> None:
        """Take mean and spread from features (N, D)."""
        std = features.std(0, correction=0)
        least = LEAST * std.max().clamp_min(LEAST)
        self.mean.copy_(features.mean(0))
        self.std.copy_(torch.where(std > least, std, 1.0))

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        return (features - self.mean) / self.std


@final
class KeySpace(nn.Module):
    """Features (B, D) -> (B, K), where cosines are taken: moved to the mean of all samples, and turned.

    Either each feature is brought to one spread and projected on fixed directions (`standardise`), or the K directions
    of largest spread are taken and each is brought to about the same spread (`whiten`).

    >>> space = KeySpace(3, 2)
    >>> space.whiten(torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 1.0, 0.0]))
    >>> space(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, width: int, made: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("weight", directions(width, made))

    @torch.no_grad()
    def standardise(self, features: Tensor) -> None:
        """By mean and spread of features (N, D)."""
        variance = features.double().var(0, correction=0)
        self.mean.copy_(features.mean(0))
        drawn = directions(*self.weight.shape).to(self.weight.device)
        self.weight.copy_(drawn / spread_of(variance).float().unsqueeze(1))

    @torch.no_grad()
    def whiten(self, features: Tensor) -> None:
        """By mean and covariance of features (N, D); fewer samples than directions leave the others at zero."""
        values = features.double()
        mean = values.mean(0)
        away = values - mean
        if len(away) < away.shape[1]:
            _, lengths, turned = torch.linalg.svd(away / len(away) ** 0.5, full_matrices=False)
            variance, found = lengths.square().flip(0), turned.t().flip(1)
        else:
            variance, found = torch.linalg.eigh(away.t() @ away / len(away))  # ascending
        made = min(self.weight.shape[1], len(variance))
        kept, found = variance[-made:].clamp_min(0), found[:, -made:]
        floor = RIDGE * away.square().mean() + torch.finfo(torch.float32).tiny
        self.mean.copy_(mean)
        self.weight.zero_()
        self.weight[:, -made:] = (found / (kept + floor).sqrt()).float()

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, K), a product of its own precision, whatever autocast says."""
        with torch.autocast(features.device.type, enabled=False):
            return (features - self.mean) @ self.weight


def spread_of(variance: Tensor) -> Tensor:
    """(D,) variances -> standard deviations, none of them so small that dividing by it makes noise of nothing."""
    return (variance + FLOOR * variance.mean() + TINY).sqrt()


def directions(features: int, made: int) -> Tensor:
    """(D, K) fixed orthogonal directions, the same for every model of this width; the axes where there are as many.

    >>> directions(600, 4).shape, bool((directions(3, 3) == torch.eye(3)).all())
    (torch.Size([600, 4]), True)
    """
    if made == features:
        return torch.eye(features)
    drawn = torch.randn(features, made, dtype=torch.float64, generator=keyed_generator(features, made, 7))
    return torch.linalg.qr(drawn).Q.float().contiguous()  # type: ignore[no-any-return, unused-ignore]


def measure(net: nn.Module, features: Tensor) -> None:
    """Set every such layer of a network from the features of its training samples."""
    for part in net.modules():
        if isinstance(part, Standardise):
            part.measure(features)
        elif isinstance(part, KeySpace):
            part.whiten(features)
