"""What is measured on the features of a frozen backbone before training: layers that are set once and never trained.

Pooled features lie in a narrow cone, and a few directions hold most of their spread: cosines between them hardly
differ. Whitened, all directions count alike, and a changed copy of a picture still finds its own.

Letters: B batch, D features, K numbers of a key, N samples.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

RIDGE = 0.1  # of the mean variance, added to that of each direction: those with hardly any spread hold noise
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
class Whiten(nn.Module):
    """The K directions of largest spread of features (B, D), each brought to about the same spread.

    >>> layer = Whiten(3, 2)
    >>> layer.measure(torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 1.0, 0.0]))
    >>> layer(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, width: int, made: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("weight", torch.eye(width)[:, :made].clone())

    def measure(self, features: Tensor) -> None:
        """Take mean, directions and their spread from features (N, D)."""
        values = features.double()
        mean = values.mean(0)
        away = values - mean
        covariance = away.t() @ away / len(away)
        variance, directions = torch.linalg.eigh(covariance)  # ascending
        made = self.weight.shape[1]
        variance, directions = variance[-made:].clamp_min(0), directions[:, -made:]
        floor = RIDGE * covariance.diagonal().mean() + torch.finfo(torch.float32).tiny
        self.mean.copy_(mean)
        self.weight.copy_(directions / (variance + floor).sqrt())

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, K)."""
        return (features - self.mean) @ self.weight


def measure(net: nn.Module, features: Tensor) -> None:
    """Set every such layer of a network from the features of its training samples."""
    for part in net.modules():
        if isinstance(part, Standardise | Whiten):
            part.measure(features)
