"""Pictures: bytes (C, H, W) with one or three channels, or floats (C, H, W)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch

from provnet.base.batches import Inputs, pieces
from provnet.base.errors import DataError
from provnet.data.modalities.augment import copies_of, perturbations, photograph_copies
from provnet.data.modalities.decode import decode
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
        """Noise, a shift by a pixel, JPEG where the pixels are bytes; a crop and the mirror image of photographs."""
        return perturbations(inputs) | photograph_copies(tuple(inputs.shape[1:]))

    def copies(self, inputs: Any) -> Mapping[str, Perturb]:
        """Noise of two strengths; of pictures also a shift, a crop and JPEG."""
        return copies_of(inputs)

    def to_json(self) -> dict[str, Any]:
        """Nothing: the shape of a sample says that it is a picture."""
        return {}


def planes(pixels: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, 3) as (C, H, W).

    >>> planes(np.zeros((2, 5), np.uint8)).shape
    (1, 2, 5)
    """
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def channels_first(pictures: np.ndarray) -> np.ndarray:
    """(N, H, W) or (N, H, W, C) as (N, C, H, W), a view.

    >>> channels_first(np.zeros((4, 2, 5, 3), np.uint8)).shape
    (4, 3, 2, 5)
    """
    return pictures[:, None] if pictures.ndim == 3 else pictures.transpose(0, 3, 1, 2)


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


def converter(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """How rows of such an array become what the network receives; decided once for the whole array."""
    if values.ndim == 2:
        return lambda rows: rows.astype(np.float32)
    kind = values.dtype.kind
    is_bytes = kind == "b" or (kind in "iu" and int(values.min()) >= 0 and int(values.max()) <= 255)
    first = values.ndim == 4 and values.shape[1] in (1, 3)
    last = values.ndim == 4 and values.shape[3] in (1, 3) and not first
    if is_bytes and values.ndim == 4 and not (first or last):
        raise DataError(
            f"pictures must have 1 or 3 channels, first or last: (N, C, H, W) or (N, H, W, C); got shape {values.shape}"
        )
    if values.ndim == 4 and not (first or last):
        _refuse_channels_last(values.shape)

    def convert(rows: np.ndarray) -> np.ndarray:
        if kind == "b":
            rows = rows.astype(np.uint8) * 255
        rows = rows[:, None] if rows.ndim == 3 else rows.transpose(0, 3, 1, 2) if last else rows
        return np.ascontiguousarray(rows, dtype=np.uint8 if is_bytes else np.float32)

    return convert


def _refuse_channels_last(shape: tuple[int, ...]) -> None:
    """Refuse pictures of floats whose channels seem to stand last; taken as channels first they would be others."""
    _, one, two, three = shape
    if not (three < min(one, two) or one == two != three):
        return
    raise DataError(
        f"pictures of shape {shape} look like {three} channels last, (N, H, W, C), which is read where C is 1 or 3; "
        f"give channels first, (N, {three}, {one}, {two}): .transpose(0, 3, 1, 2), for a tensor .permute(0, 3, 1, 2). "
        f"If there are {one} channels of {two} x {three}, transpose the pictures: .transpose(0, 1, 3, 2)"
    )


def reshape_samples(raw: np.ndarray, shape: tuple[int, ...], row: tuple[int, ...]) -> np.ndarray:
    """Samples in the network's own shape; a view where possible."""
    values = raw
    if raw.ndim == 2 and len(shape) == 3 and raw.shape[1] == math.prod(shape):
        values = raw.reshape(len(raw), *row)
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[1:] != shape and values.shape[1:] == (*shape[1:], shape[0]):
        values = values.transpose(0, 3, 1, 2)
    if values.shape[1:] != shape:
        raise DataError(
            f"this network takes samples of shape {shape}, got {raw.shape[1:]}; resize or reshape them first"
        )
    return values


AT_ONCE = 1024  # pictures that are brought to bytes together
