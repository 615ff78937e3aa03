"""Wrong labels and odd pictures, planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw

from provnet import open_data
from provnet.data.imagedata import ImageData
from provnet.report.fonts import face

KINDS = ("inverted", "two mixed", "noise", "letters")


def flipped(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some labels replaced by a random other one, and the right labels."""
    chance = np.random.default_rng(seed)
    truth, labels = data.samples.labels, data.samples.labels.copy()
    rows = chance.choice(len(data), round(share * len(data)), replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, len(data.class_names), len(rows))) % len(data.class_names)
    return replace(data, samples=replace(data.samples, labels=labels)), truth


def with_oddities(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some pictures replaced, and (N,) which kind each is, -1 for those left as they were."""
    chance = np.random.default_rng(seed)
    images, labels = data.images.numpy().copy(), data.samples.labels
    kind = np.full(len(data), -1)
    rows = chance.choice(len(data), round(share * len(data)), replace=False)
    kind[rows] = np.arange(len(rows)) % len(KINDS)
    for row in rows.tolist():
        if kind[row] == 0:
            images[row] = 255 - images[row]
        elif kind[row] == 1:
            other = int(chance.choice(np.flatnonzero(labels != labels[row])))
            images[row] = np.maximum(images[row], data.images[other].numpy())
        elif kind[row] == 2:
            images[row] = chance.integers(0, 256, images[row].shape)
        else:
            images[row, 0] = letter(chance, images.shape[2])
    return open_data(images, labels), kind


def letter(chance: np.random.Generator, side: int) -> np.ndarray:
    """A letter that looks like no digit, slightly turned."""
    picture = Image.new("L", (side, side), 0)
    font = face(side * 5 // 7).font
    text = "ABEFGHJKMNPQRTUWXY"[int(chance.integers(18))]
    ImageDraw.Draw(picture).text((side / 2, side / 2), text, fill=255, font=font, anchor="mm")
    return np.asarray(picture.rotate(float(chance.uniform(-15, 15))))
