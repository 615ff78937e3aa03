"""The four CNN sizes of app. 7.6, cut at a sharing level: layers before the cut serve both branches.

CNN1 (class) and CNN2 (index) are three 3x3 convolutions with two 2x2 pools, one fully connected layer, dropout .5,
no BatchNorm. Level 1 shares the first convolution, 2 the first two, 3 all three, 4 the fully connected layer too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.errors import UsageError, choose
from provnet.models.backbones import Shape, output_shape

LEVELS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Cut:
    """What the two branches share, and what each has for itself."""

    shared: nn.Module
    task: nn.Module
    index: nn.Module


def cut_at(name: str, shape: Shape, level: int) -> Cut:
    """Build one size and cut it at a level.

    >>> cut = cut_at("sharing-small", (1, 28, 28), 3)
    >>> sum(p.numel() for p in cut.shared.parameters())
    92672
    """
    channels = choose("sharing size", name, SHARING)
    if level not in LEVELS:
        raise UsageError(f"level must be one of {LEVELS}, got {level}")
    if len(shape) != 3:
        raise UsageError(f'backbone "{name}" takes pictures (C, H, W), got vectors of shape {shape}; use "mlp"')
    return Cut(
        nn.Sequential(*_blocks(channels, shape)[:level]),
        nn.Sequential(*_blocks(channels, shape)[level:]),
        nn.Sequential(*_blocks(channels, shape)[level:]),
    )


class PooledConv(nn.Sequential):
    """Convolution, ReLU and pooling, the pooling done first: the bias and the ReLU then have a quarter to go through.

    The largest of four stays the largest when a bias is added and negative values are cut: the result is the same.

    >>> block = PooledConv(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    >>> block(torch.zeros(1, 1, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H/2, W/2)."""
        conv: Any
        conv, relu, pool = self
        maps = pool(F.conv2d(x, conv.weight, padding=conv.padding))
        out: Tensor = relu(maps + conv.bias.to(maps.dtype)[:, None, None])
        return out


def _blocks(channels: tuple[int, int, int, int], shape: Shape) -> list[nn.Module]:
    """The four blocks of one CNN without its output layer."""
    a, b, c, hidden = channels
    pool = nn.MaxPool2d(2, ceil_mode=True)
    convs: list[nn.Module] = [
        PooledConv(nn.Conv2d(shape[0], a, 3, padding=1), nn.ReLU(), pool),
        PooledConv(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), pool),
        nn.Sequential(nn.Conv2d(b, c, 3, padding=1), nn.ReLU()),
    ]
    flat = int(torch.Size(output_shape(nn.Sequential(*convs), shape)).numel())
    return [*convs, nn.Sequential(nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Dropout(0.5))]


SHARING: dict[str, tuple[int, int, int, int]] = {
    "sharing-small": (32, 64, 128, 128),
    "sharing-medium": (64, 128, 256, 256),
    "sharing-large": (128, 256, 512, 512),
    "sharing-xlarge": (256, 512, 1024, 1024),
}
