"""Pictures brought to a form in which copies are told: small, shifted, blurred, without mean and contrast.

A copy may be moved by a pixel, dimmed, noisy, or blurred as generators blur. So a picture is compared moved by a pixel
each way, at length one without its mean, and with training pictures that are blurred in a few steps; what lies within a
pixel of the margin is left out, as it may have been moved out of sight.

Letters: B pictures, S shifts, D numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE, COARSE = 32, 13  # longest side that is compared, and that is searched
LEVELS = (0.0, 0.7, 1.2, 2.0)  # spread, in pixels, of the blur that a training picture is given to match a blurred copy
SHIFTS = tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1))
SMALLEST = 6  # pictures with a shorter side are compared as plain numbers


def reduced(images: Tensor) -> Tensor:
    """Raw pictures (B, C, H, W) as floats, no side above 32; anything else as one row of numbers (B, D).

    >>> reduced(torch.zeros(2, 3, 64, 48, dtype=torch.uint8)).shape
    torch.Size([2, 3, 32, 32])
    """
    values = images.float()
    if values.ndim != 4 or min(values.shape[2:]) < SMALLEST:
        return values.flatten(1)
    height, width = (min(SIDE, have) for have in values.shape[2:])
    same = (height, width) == tuple(values.shape[2:])
    return values if same else F.adaptive_avg_pool2d(values, (height, width))


def blurred(images: Tensor, level: float) -> Tensor:
    """Reduced pictures under a Gaussian blur of `level` pixels; numbers that are no pictures stay as they are.

    >>> round(float(blurred(torch.ones(1, 1, 9, 9), 1.0)[0, 0, 4, 4]), 5)
    1.0
    """
    if level == 0 or images.ndim != 4:
        return images
    reach = min(int(2 * level + 0.5) + 1, min(images.shape[2:]) - 1)
    steps = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    weights = torch.exp(-(steps**2) / (2 * level**2))
    weights = weights / weights.sum()
    channels = images.shape[1]
    wide = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    across = F.conv2d(wide, weights.view(1, 1, 1, -1).repeat(channels, 1, 1, 1), groups=channels)
    return F.conv2d(across, weights.view(1, 1, -1, 1).repeat(channels, 1, 1, 1), groups=channels)


def fine(images: Tensor) -> Tensor:
    """(B, D) at length one: reduced pictures without their margin, slightly smoothed."""
    return _unit(F.avg_pool2d(images[:, :, 1:-1, 1:-1], 3, 1, 1) if images.ndim == 4 else images)


def coarse(images: Tensor) -> Tensor:
    """(B, D) at length one, of fewer numbers: what is searched."""
    if images.ndim != 4:
        return _unit(images)
    inner = F.avg_pool2d(images[:, :, 1:-1, 1:-1], 3, 1, 1)
    height, width = (min(COARSE, have) for have in inner.shape[2:])
    return _unit(F.adaptive_avg_pool2d(inner, (height, width)))


def moved(images: Tensor) -> list[Tensor]:
    """Reduced pictures, moved by up to a pixel each way: S of them; numbers that are no pictures once.

    >>> len(moved(torch.zeros(1, 1, 28, 28))), len(moved(torch.zeros(1, 5)))
    (9, 1)
    """
    if images.ndim != 4:
        return [images]
    return [torch.roll(images, shift, (2, 3)) for shift in SHIFTS]


def levels_of(images: Tensor) -> tuple[float, ...]:
    """The steps of blur that apply to this kind of data."""
    return LEVELS if reduced(images[:1]).ndim == 4 else LEVELS[:1]


def _unit(values: Tensor) -> Tensor:
    """Rows without their mean, at length one; a picture of one colour is zero."""
    flat = values.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)
