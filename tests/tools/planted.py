"""Small runs on digits of which some labels were flipped; each trained once, not to be changed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.debug.compute import Debugging, debug
from provnet.training.config import train_config
from tests.fitting import fit

SAMPLES, FLIPPED = 400, 40


@cache
def digits() -> tuple[ImageData, np.ndarray]:
    """400 digits, 40 of them under a wrong label, and the right labels."""
    data = provnet.open_data("embedded", limit=SAMPLES)
    chance = np.random.default_rng(0)
    truth, labels = data.samples.labels, data.samples.labels.copy()
    rows = chance.choice(len(data), FLIPPED, replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, 10, FLIPPED)) % 10
    return replace(data, samples=replace(data.samples, labels=labels)), truth


@cache
def planted_run() -> Run:
    """Keys, no memorising."""
    return fit(
        digits()[0],
        network="class-independent",
        head="exemplar",
        config=train_config("robust", epochs=8, batch_size=32),
    )


@cache
def found() -> Debugging:
    """What debugging finds in it."""
    return debug(planted_run(), digits()[0])
