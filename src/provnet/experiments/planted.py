"""Wrong labels and odd pictures, planted, so that what finds them can be measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw

from provnet.data.imagedata import ImageData
from provnet.data.sources import open_data
from provnet.report.fonts import face

KINDS = ("inverted", "two mixed", "noise", "letters")


def wrong_labels(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some labels replaced by a random other one, and (N,) which.

    >>> few = open_data("embedded", limit=40)
    >>> changed, wrong = wrong_labels(few, 0.1, 0)
    >>> int(wrong.sum()), bool((changed.samples.labels != few.samples.labels)[wrong].all())
    (4, True)
    """
    chance, classes = np.random.default_rng(seed), len(data.class_names)
    labels, wrong = data.samples.labels.copy(), np.zeros(len(data), dtype=np.bool_)
    rows = chance.choice(len(data), max(1, round(share * len(data))), replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, classes, len(rows))) % classes
    wrong[rows] = True
    return replace(data, samples=replace(data.samples, labels=labels)), wrong


def odd_pictures(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some pictures replaced, and (N,) which of KINDS each is, -1 for those left as they were.

    >>> int((odd_pictures(open_data("embedded", limit=40), 0.1, 0)[1] >= 0).sum())
    4
    """
    chance = np.random.default_rng(seed)
    images, labels = data.images.numpy().copy(), data.samples.labels
    kind = np.full(len(data), -1)
    rows = chance.choice(len(data), max(len(KINDS), round(share * len(data))), replace=False)
    kind[rows] = np.arange(len(rows)) % len(KINDS)
    for row in rows.tolist():
        name = KINDS[kind[row]]
        if name == "inverted":
            images[row] = 255 - images[row]
        elif name == "two mixed":
            other = int(chance.choice(np.flatnonzero(labels != labels[row])))
            images[row] = np.maximum(images[row], data.images[other].numpy())
        elif name == "noise":
            images[row] = chance.integers(0, 256, images[row].shape)
        else:
            images[row] = _letter(chance, images.shape[2])
    return open_data(images, labels, class_names=data.class_names), kind


def _letter(chance: np.random.Generator, side: int) -> np.ndarray:
    """A letter that looks like no digit, slightly turned."""
    picture = Image.new("L", (side, side), 0)
    text = "ABEFGHJKMNPQRTUWXY"[int(chance.integers(18))]
    ImageDraw.Draw(picture).text((side / 2, side / 2), text, fill=255, font=face(side * 5 // 7).font, anchor="mm")
    return np.asarray(picture.rotate(float(chance.uniform(-15, 15))))
