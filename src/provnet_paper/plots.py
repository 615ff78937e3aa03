"""Figures of the experiments as PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

BLUE, ORANGE, GREY = "#2f5bb7", "#b0560f", "#7a7f87"  # told apart without colour vision; markers differ too


def pyplot() -> Any:
    """Matplotlib without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as found

    return found


def panels(rows: int, columns: int, size: tuple[float, float], *, squeeze: bool = False, **more: Any) -> Any:
    """A drawing of this size in inches and its axes, row by row."""
    return pyplot().subplots(rows, columns, figsize=size, squeeze=squeeze, layout="constrained", **more)


def png(drawing: Any) -> bytes:
    """A drawing as PNG, closed."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=130)
    pyplot().close(drawing)
    return buffer.getvalue()


def tidy(axes: Any, *, grid: bool = False) -> None:
    """No frame above and to the right, and a pale grid where one is wanted."""
    if grid:
        axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def tile_pictures(images: np.ndarray, columns: int, gap: int = 1) -> np.ndarray:
    """Pictures (n, C, H, W) as one (H', W') or (H', W', 3), so many a row, white between them."""
    n, channels, height, width = images.shape
    rows = -(-n // columns)
    whole = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, channels), 255, dtype=np.uint8)
    for place, image in enumerate(images):
        top, left = place // columns * (height + gap), place % columns * (width + gap)
        whole[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return whole[:, :, 0] if channels == 1 else whole


def draw(axes: Any, images: np.ndarray, columns: int, title: str = "") -> None:
    """Pictures (n, C, H, W) on axes, without ticks."""
    axes.imshow(tile_pictures(images, columns), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    bare(axes, title)


def bare(axes: Any, title: str = "") -> None:
    """Axes without ticks and frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, fontsize=9)
