"""Small generators for tests: bright or dark halves of 8 x 8 pixels, three classes, a few steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.generate.compute import fit_generator, recipe

NAMES = ("paper", "paper-mean", "faces", "modern")
CLASSES = ("left", "right", "top")


def pictures(n: int = 23, seed: int = 0) -> ImageData:
    """Noise that is bright on the left, on the right or at the top."""
    images = np.random.default_rng(seed).integers(0, 60, (n, 1, 8, 8), dtype=np.uint8)
    kinds = np.arange(n) % 3
    images[kinds == 0, :, :, :4] += 190
    images[kinds == 1, :, :, 4:] += 190
    images[kinds == 2, :, :4, :] += 190
    return provnet.open_data(images, np.array(CLASSES)[kinds], class_names=CLASSES)


def changes(**more: Any) -> dict[str, Any]:
    """Three epochs of batches of 8, 8 and 7."""
    return {"epochs": 3, "batch_size": 8, **more}


def wishes(name: str, **more: Any) -> dict[str, Any]:
    """Arguments of `fit`."""
    return {"config": recipe(name, **changes(**more))}


def trained(name: str, data: ImageData | None = None, **more: Any) -> Run:
    """A run in memory."""
    return fit_generator(pictures() if data is None else data, name, changes=changes(**more))
