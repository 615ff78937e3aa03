"""Pictures: bytes (C, H, W) with one or three channels, or floats (C, H, W)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch

from provnet.base.batches import Inputs, pieces
from provnet.data.modalities.decode import decode
from provnet.data.modalities.distort import perturbations
from provnet.data.modalities.modality import Modality, Perturb, Preview
from provnet.data.rules import DecodeRule
from provnet.samples.identity import pixel_header


@final
@dataclass(frozen=True)
class Image(Modality):
    """Pictures, read by the rules of `decode`; their inputs are the samples."""

    rule: DecodeRule = field(default_factory=DecodeRule)
    name = "image"
    calibrated_on = ("noise", "shift")

    def read(self, raw: bytes, name: str) -> np.ndarray:
        """Pixels (C, H, W) of a picture file.

        >>> Image().read(b"P5 2 1 255 ab", "two.pgm").shape
        (1, 1, 2)
        """
        return planes(decode(raw, name, rule=self.rule))

    def batch(self, items: Sequence[Any]) -> Inputs:
        """Pictures of one shape, stacked."""
        return torch.from_numpy(np.stack(items))

    def content(self, item: Any) -> bytes:
        """Type, shape and pixels."""
        return pixel_header(item.dtype, item.shape) + np.ascontiguousarray(item).tobytes()

    def show(self, item: Any) -> Preview:
        """The picture; none where there are neither one nor three channels."""
        return Preview(picture_of(np.asarray(item)))

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """Noise, a shift by a pixel, and JPEG where the pixels are bytes."""
        return perturbations(inputs)

    def to_json(self) -> dict[str, Any]:
        """Nothing: the shape of a sample says that it is a picture."""
        return {}


def planes(pixels: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, 3) as (C, H, W).

    >>> planes(np.zeros((2, 5), np.uint8)).shape
    (1, 2, 5)
    """
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def picture_of(image: np.ndarray) -> np.ndarray | None:
    """A raw sample (C, H, W) as bytes (H, W) or (H, W, 3), to be looked at; None for anything that is no picture.

    >>> picture_of(np.full((1, 2, 4), 0.5, np.float32)).tolist()
    [[128, 128, 128, 128], [128, 128, 128, 128]]
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        return None
    seen = as_bytes(image[None])[0]
    return seen[0] if len(seen) == 1 else np.ascontiguousarray(seen.transpose(1, 2, 0))


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Pictures (n, C, H, W) as bytes: bytes as they are, floats of about 0..1 times 255, within 0..255 rounded.

    About: resized pictures overshoot a little, and are cut at 0 and 255. Floats of any other range are stretched, each
    picture from its own lowest to its highest value.

    >>> as_bytes(np.array([[[[-0.02, 1.02]]], [[[0.0, 200.0]]], [[[-1.0, 1.0]]]])).reshape(3, 2).tolist()
    [[0, 255], [0, 200], [0, 255]]
    """
    if images.dtype == np.uint8:
        return images
    if len(images) > AT_ONCE:
        return np.concatenate([as_bytes(images[rows]) for rows in pieces(len(images), AT_ONCE)])
    values = images.astype(np.float64)
    low, high = (end(values, axis=(1, 2, 3), keepdims=True) for end in (np.min, np.max))
    unit = (low >= -0.5) & (high <= 2)
    known = unit | ((low >= 0) & (high <= 255))
    top = np.where(known, np.where(unit, 1.0, 255.0), high)
    bottom = np.where(known, 0.0, low)
    scaled = (values - bottom) / np.maximum(top - bottom, 1e-12) * 255
    return np.asarray(np.floor(scaled + 0.5).clip(0, 255), dtype=np.uint8)


AT_ONCE = 1024  # pictures that are brought to bytes together
