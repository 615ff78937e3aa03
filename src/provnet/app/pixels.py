"""Raw values that are sent as JSON: of the run's own shape, and finite in the numbers that the network uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from provnet.app.errors import ApiError
from provnet.inputs import BYTES
from provnet.models.config import NetworkConfig

LARGEST = float(np.finfo(np.float32).max)


def from_pixels(values: list[Any], network: NetworkConfig) -> np.ndarray:
    """Nested lists as one raw sample; a value that float32 cannot hold is refused, never explained.

    >>> from_pixels([[0, 255.0], [7, 1]], NetworkConfig("single", "small", (1, 2, 2), classes=2)).shape
    (1, 2, 2)
    >>> from_pixels([3.5e38], NetworkConfig("single", "mlp", (1,), classes=2, scale=1.0))
    Traceback (most recent call last):
    provnet.app.errors.ApiError: a value is not finite in float32; no sample can be named
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
