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
class KeySpace(nn.Module):
    """Features (B, D) -> (B, K), where cosines are taken: moved to the mean of all samples, and turned.

    The K directions of largest spread are taken, and each is brought to about the same spread.

    >>> space = KeySpace(3, 2)
    >>> space.measure(torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 1.0, 0.0]))
    >>> space(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, width: int, made: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("weight", torch.eye(width)[:, :made].clone())

    @torch.no_grad()
    def measure(self, features: Tensor) -> None:
        """Take mean, directions and their spread from features (N, D); fewer samples leave some directions at zero."""
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


def measure(net: nn.Module, features: Tensor) -> None:
    """Set every such layer of a network from the features of its training samples."""
    for part in net.modules():
        if isinstance(part, Standardise | KeySpace):
            part.measure(features)
