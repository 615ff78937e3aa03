"""The same pictures drawn differently: turned, inverted, thickened. Bytes in, bytes out, chance by a seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.data.batches import keyed_generator

MOST_TURNED = 45.0  # degrees either way
AT_ONCE = 10_000


def plain(images: Tensor, seed: int) -> Tensor:
    """As they are."""
    return images


def turned(images: Tensor, seed: int) -> Tensor:
    """Each turned by its own angle, uniform in ±45°; what comes in from outside is black."""
    angles = (torch.rand(len(images), generator=keyed_generator(seed, 81)) * 2 - 1) * math.radians(MOST_TURNED)
    parts = []
    for few, angle in zip(torch.split(images, AT_ONCE), torch.split(angles, AT_ONCE), strict=True):
        cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
        matrix = torch.stack([torch.stack([cos, -sin, none], 1), torch.stack([sin, cos, none], 1)], 1)
        grid = F.affine_grid(matrix, list(few.shape), align_corners=False)
        parts.append(F.grid_sample(few.float(), grid, align_corners=False).round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts)


def inverted(images: Tensor, seed: int) -> Tensor:
    """Dark on light.

    >>> inverted(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), 0).tolist()
    [[[[255, 0]]]]
    """
    return 255 - images


def thickened(images: Tensor, seed: int) -> Tensor:
    """Every pixel takes the lightest value of its 3×3 neighbours."""
    parts = [F.max_pool2d(few.float(), 3, 1, 1).to(torch.uint8) for few in torch.split(images, AT_ONCE)]
    return torch.cat(parts)


DRAWINGS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "plain": plain,
    "turned": turned,
    "inverted": inverted,
    "thickened": thickened,
}
