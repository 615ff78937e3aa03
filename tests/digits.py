"""Small runs on real digits, each trained once however many tests look at it; they are not to be changed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.training.config import train_config
from tests.fitting import fit

NETWORKS = ("single", "class-independent", "class-conditional", "class-conditional-heads")
WITHIN = ("class-conditional", "class-conditional-heads")  # name samples of one class alone


@cache
def training() -> ImageData:
    """62 digits, classes of 3 to 9 samples, every other with a path."""
    every = provnet.open_data("embedded", limit=200)
    rows = np.concatenate([np.flatnonzero(every.samples.labels == c)[: 3 + (c * 5 + 1) % 7] for c in range(10)])
    data = every.select(np.random.default_rng(0).permutation(rows))
    paths = tuple(f"a folder/{i}.png" if i % 2 else None for i in range(len(data)))
    return replace(data, samples=replace(data.samples, paths=paths))


@cache
def unseen() -> ImageData:
    """50 digits that no run was trained on."""
    return provnet.open_data("embedded", split="test", limit=50)


@cache
def trained(network: str = "class-conditional", alpha: float = 0.0) -> Run:
    """A few steps: right often enough, and wrong often enough, to tell figures apart."""
    return fit(training(), network=network, alpha=alpha, config=train_config("fast", epochs=3, batch_size=16))
