"""Small distortions under which a sample must still be recognised: noise, one-pixel shift, JPEG.

All take raw images, uint8 (N, C, H, W) or floats, and give uint8 or float32 back; each draws from (seed) alone.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from provnet.data.batches import keyed_generator
from provnet.errors import UsageError

_STEPS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def add_noise(images: Tensor, seed: int, sigma: float = 0.1) -> Tensor:
    """Gaussian noise: sigma on [0, 1] pixels, clamped; for floats, sigma of each feature's spread.

    >>> add_noise(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), seed=0).dtype
    torch.uint8
    """
    noise = torch.randn(images.shape, generator=keyed_generator(seed, 11)) * sigma
    if images.dtype == torch.uint8:
        return (images.cpu().float() / 255 + noise).clamp(0, 1).mul(255).round().to(torch.uint8)
    values = images.cpu().float()
    return values + noise * values.std(0, correction=0, keepdim=True)


def shift(images: Tensor, seed: int) -> Tensor:
    """One pixel to one of the eight neighbours, zero-filled, the direction drawn for each sample.

    >>> int(shift(torch.full((1, 1, 3, 3), 9, dtype=torch.uint8), seed=0).eq(0).sum()) in (3, 5)
    True
    """
    if images.ndim != 4:
        raise UsageError(f"only pictures (N, C, H, W) can be shifted, got shape {tuple(images.shape)}")
    images = images.cpu()
    n, _, height, width = images.shape
    direction = torch.randint(0, len(_STEPS), (n,), generator=keyed_generator(seed, 12))
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    out = torch.empty_like(images)
    for number, (dy, dx) in enumerate(_STEPS):
        rows = direction == number
        out[rows] = padded[rows][:, :, 1 - dy : 1 - dy + height, 1 - dx : 1 - dx + width]
    return out


def jpeg(images: Tensor, quality: int = 50) -> Tensor:
    """Encode and decode every picture as JPEG.

    >>> jpeg(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([1, 3, 8, 8])
    """
    from PIL import Image

    if images.dtype != torch.uint8 or images.ndim != 4:
        raise UsageError(f"JPEG takes uint8 pictures (N, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    out = np.empty(tuple(images.shape), np.uint8)
    for row, picture in enumerate(images.cpu().numpy()):
        buffer = io.BytesIO()
        Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)).save(
            buffer, "JPEG", quality=quality
        )
        back = np.asarray(Image.open(buffer))
        out[row] = back[None] if back.ndim == 2 else back.transpose(2, 0, 1)
    return torch.from_numpy(out)


def perturbations(images: Tensor, seed: int) -> dict[str, Tensor]:
    """The distorted copies that apply to this kind of data: all three for uint8 pictures, noise for vectors.

    >>> sorted(perturbations(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), 0))
    ['jpeg', 'noise', 'shift']
    """
    copies = {"noise": add_noise(images, seed)}
    if images.ndim == 4:
        copies["shift"] = shift(images, seed)
    if images.ndim == 4 and images.dtype == torch.uint8:
        copies["jpeg"] = jpeg(images)
    return copies
