"""Small pictures inside a file of results, so that figures are drawn from it alone."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST = 64 * 2**20  # bytes that a packed value may hold


def packed(values: Any) -> dict[str, Any]:
    """An array of bytes or of bools as JSON values.

    >>> packed(np.zeros((2, 1, 28, 28), dtype=np.uint8))["shape"]
    [2, 1, 28, 28]
    """
    array = np.asarray(values)
    kind = "bool" if array.dtype == np.bool_ else "uint8"
    content = np.packbits(array) if kind == "bool" else array.astype(np.uint8)
    text = base64.b64encode(zlib.compress(content.tobytes(), 9)).decode()
    return {"shape": list(array.shape), "kind": kind, "zlib": text}


def unpacked(value: Mapping[str, Any]) -> np.ndarray:
    """The inverse of `packed`.

    >>> unpacked(packed(np.array([True, False, True]))).tolist()
    [True, False, True]
    """
    content = zlib.decompressobj().decompress(base64.b64decode(value["zlib"]), MOST)
    array = np.frombuffer(content, dtype=np.uint8)
    if value["kind"] == "bool":
        array = np.unpackbits(array)[: int(np.prod(value["shape"]))].astype(np.bool_)
    return array.reshape(value["shape"])


def joined(images: np.ndarray, columns: int, gap: int = 1) -> np.ndarray:
    """Pictures (n, C, H, W) as one (H', W') or (H', W', 3), so many a row, white between them.

    >>> joined(np.zeros((3, 1, 4, 4), dtype=np.uint8), 2).shape
    (9, 9)
    """
    n, channels, height, width = images.shape
    rows = -(-n // columns)
    whole = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, channels), 255, dtype=np.uint8)
    for place, image in enumerate(images):
        top, left = place // columns * (height + gap), place % columns * (width + gap)
        whole[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return whole[:, :, 0] if channels == 1 else whole


def draw(axes: Any, images: np.ndarray, columns: int, title: str = "") -> None:
    """Pictures (n, C, H, W) on axes, without ticks."""
    axes.imshow(joined(images, columns), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    bare(axes, title)


def bare(axes: Any, title: str = "") -> None:
    """Axes without ticks and frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, fontsize=9)
