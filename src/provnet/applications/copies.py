"""Distorted copies, as pictures meet them outside: noise, one pixel aside, JPEG, a crop; made batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.data.distort import add_noise, jpeg, shift, spread_of
from provnet.errors import UsageError

SIDE = 28  # a crop takes one pixel off each side of a picture of this size, in proportion of others
Copy = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of `sigma`: on pixels from 0 to 1, or in units of the `spread` of each feature of floats.

    Attributes:
        sigma: how much.
        spread: (1, ...) of each feature; None takes that of the samples given together.
    """

    sigma: float
    spread: Tensor | None = None

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        """Noisy copies of raw samples."""
        return add_noise(images, seed, self.sigma, self.spread)


def of_all(copy: Copy, images: Tensor) -> Copy:
    """The same distortion for parts of these samples: what it needs to know of all of them is looked at now.

    >>> values = torch.tensor([[0.0], [8.0]])
    >>> noise = of_all(COPIES["noise-0.1"], values)
    >>> bool((noise(values[:1], 0) != values[:1]).all())
    True
    """
    if not isinstance(copy, Noise) or copy.spread is not None or images.dtype == torch.uint8:
        return copy
    return replace(copy, spread=spread_of(images))


def crop(images: Tensor) -> Tensor:
    """Cut the margin of raw pictures (N, C, H, W) off, 1 pixel in 28 on each side, and enlarge the rest to fill.

    >>> crop(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 1, 28, 28])
    """
    if images.ndim != 4:
        raise UsageError(f"only pictures (N, C, H, W) can be cut, got shape {tuple(images.shape)}")
    height, width = images.shape[2:]
    top, left = max(1, round(height / SIDE)), max(1, round(width / SIDE))
    inner = images[:, :, top : height - top, left : width - left].float()
    if 0 in inner.shape:
        raise UsageError(f"pictures of {height} x {width} are too small to be cut")
    grown = F.interpolate(inner, size=(height, width), mode="bilinear", antialias=True)
    return grown.round().clamp(0, 255).to(torch.uint8) if images.dtype == torch.uint8 else grown


def copies_of(images: Tensor) -> dict[str, Copy]:
    """The distortions that apply to this kind of data, by name: all of bytes, not JPEG of floats, noise of vectors.

    Noise on floats has the spread of these samples, whatever it is applied to: members and others are distorted alike.

    >>> sorted(copies_of(torch.zeros(1, 4)))
    ['noise-0.05', 'noise-0.1']
    """
    is_picture = images.ndim == 4
    fits = {
        "noise-0.05": True,
        "noise-0.1": True,
        "shift": is_picture,
        "crop": is_picture and min(images.shape[2:]) > 2,
    }
    fits["jpeg-50"] = is_picture and images.dtype == torch.uint8
    return {name: of_all(copy, images) for name, copy in COPIES.items() if fits[name]}


COPIES: dict[str, Copy] = {
    "noise-0.05": Noise(0.05),
    "noise-0.1": Noise(0.1),
    "shift": shift,
    "jpeg-50": lambda images, _: jpeg(images, 50),
    "crop": lambda images, _: crop(images),
}
WORDS = {
    "noise-0.05": "noise, σ = 0.05",
    "noise-0.1": "noise, σ = 0.1",
    "shift": "one pixel aside",
    "jpeg-50": "JPEG, quality 50",
    "crop": "margin cut, enlarged",
}
