"""Raw values that are sent as JSON: of the run's own shape, and finite in the numbers that the network uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.base.errors import UsageError
from provnet.data.modalities.decode import BYTES
from provnet.models.network import NetworkConfig
from provnet_app.security import ApiError

LARGEST = float(np.finfo(np.float32).max)


def from_pixels(values: list[Any], network: NetworkConfig) -> np.ndarray:
    """Nested lists as one raw sample; a value that float32 cannot hold is refused, never explained.

    >>> from_pixels([[0, 255.0], [7, 1]], NetworkConfig("single", "small", (1, 2, 2), classes=2)).shape
    (1, 2, 2)
    >>> from_pixels([3.5e38], NetworkConfig("single", "mlp", (1,), classes=2, scale=1.0))
    Traceback (most recent call last):
    provnet_app.security.ApiError: a value is not finite in float32; no sample can be named
    """
    shape = tuple(network.input_shape)
    numbers = list(_flat(values))
    found = _shape(values)
    if found not in (shape, shape[1:] if shape[:1] == (1,) and len(shape) == 3 else shape):
        raise ApiError(422, "invalid", f"pixels must have the shape {shape}, nested lists; got {found}", "pixels")
    if any(not math.isfinite(value) or abs(value) > LARGEST for value in numbers):
        raise ApiError(422, "not_finite", "a value is not finite in float32; no sample can be named", "pixels")
    array = np.array(numbers, dtype=np.float64).reshape(shape)
    if network.scale == BYTES:
        if array.min() < 0 or array.max() > BYTES or not (array == array.round()).all():
            raise ApiError(422, "invalid", "pixels of this run are whole numbers from 0 to 255", "pixels")
        return array.astype(np.uint8)
    return array.astype(np.float32)


def _flat(values: Any) -> Iterator[float]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
        return
    if isinstance(values, bool) or not isinstance(values, int | float):
        raise ApiError(422, "invalid", "pixels must be numbers in nested lists", "pixels")
    try:
        yield float(values)
    except OverflowError:
        raise ApiError(
            422, "not_finite", "a value is not finite in float32; no sample can be named", "pixels"
        ) from None


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(values, list):
        return ()
    inner = {_shape(value) for value in values}
    if len(inner) != 1 or None in inner:
        return None
    (shape,) = inner
    return None if shape is None else (len(values), *shape)


def pixel_schema(network: NetworkConfig) -> dict[str, Any]:
    """The JSON schema of such values.

    >>> pixel_schema(NetworkConfig("single", "mlp", (3,), classes=2, scale=1.0))["maxItems"]
    3
    """
    whole = network.scale == BYTES
    schema: dict[str, Any] = (
        {"type": "integer", "minimum": 0, "maximum": 255}
        if whole
        else {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    )
    for length in reversed(network.input_shape):
        schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
    return schema


STREAM = 61


@dataclass(frozen=True)
class Distortion:
    """How much of each.

    Attributes:
        noise: standard deviation on pixels of 0..1.
        shift_x, shift_y: right and down, as shares of width and height.
        rotation: degrees, counter-clockwise.
        blur: standard deviation in pixels.
        occlusion: side of a black square as share of the shorter side; `occlusion_x`, `occlusion_y` its centre.
        seed: of the noise.
    """

    noise: float = 0.0
    shift_x: float = 0.0
    shift_y: float = 0.0
    rotation: float = 0.0
    blur: float = 0.0
    occlusion: float = 0.0
    occlusion_x: float = 0.5
    occlusion_y: float = 0.5
    seed: int = 0

    @property
    def changes(self) -> bool:
        """Whether it does anything at all."""
        return any(astuple(self)[:6])


def distorted(image: np.ndarray, how: Distortion) -> np.ndarray:
    """A distorted copy of a raw picture (C, H, W), bytes.

    >>> picture = np.zeros((1, 8, 8), np.uint8)
    >>> picture[0, 2, 3] = 200
    >>> moved = distorted(picture, Distortion(shift_x=0.25))
    >>> np.argwhere(moved[0]).tolist()
    [[2, 5]]
    """
    if not how.changes:
        return image
    if image.ndim != 3 or image.dtype != np.uint8:
        raise UsageError("distortions are for pictures of bytes; this run takes other samples")
    values = torch.from_numpy(image.copy()).float()[None] / 255
    values = _moved(values, how)
    values = _blurred(values, how.blur)
    values = _covered(values, how)
    if how.noise:
        values = values + how.noise * torch.randn(values.shape, generator=keyed_generator(how.seed, STREAM))
    return np.asarray(values.clamp(0, 1).mul(255).round().to(torch.uint8)[0].numpy())


def _moved(values: Tensor, how: Distortion) -> Tensor:
    if not (how.shift_x or how.shift_y or how.rotation):
        return values
    height, width = values.shape[2:]
    angle = math.radians(how.rotation)
    cosine, sine = math.cos(angle), math.sin(angle)
    by_x, by_y = round(how.shift_x * width), round(how.shift_y * height)  # whole pixels: a shift does not blur
    y = torch.arange(height, dtype=torch.float32)[:, None] - (height - 1) / 2 - by_y
    x = torch.arange(width, dtype=torch.float32)[None, :] - (width - 1) / 2 - by_x
    from_x, from_y = cosine * x - sine * y, sine * x + cosine * y
    grid = torch.stack([from_x / (max(width - 1, 1) / 2), from_y / (max(height - 1, 1) / 2)], -1)[None]
    return F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def _blurred(values: Tensor, sigma: float) -> Tensor:
    if not sigma:
        return values
    reach = max(1, math.ceil(3 * sigma))
    steps = torch.arange(-reach, reach + 1, dtype=torch.float32)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    channels = values.shape[1]
    for shape, room in (((1, 1, -1, 1), (0, 0, reach, reach)), ((1, 1, 1, -1), (reach, reach, 0, 0))):
        mask = (
            weights.view(shape).expand(channels, 1, -1, -1)
            if shape[2] == -1
            else weights.view(shape).expand(channels, 1, 1, -1)
        )
        values = F.conv2d(F.pad(values, room, mode="replicate"), mask, groups=channels)
    return values


def _covered(values: Tensor, how: Distortion) -> Tensor:
    height, width = values.shape[2:]
    side = round(how.occlusion * min(height, width))
    if not side:
        return values
    top = round(how.occlusion_y * height - side / 2)
    left = round(how.occlusion_x * width - side / 2)
    out = values.clone()
    out[:, :, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0
    return out
