"""Hold some samples out for testing: a pure function of their contents, whatever their order and names."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from provnet.data.imagedata import ImageData
from provnet.errors import UsageError


def holdout(data: ImageData, fraction: float) -> tuple[ImageData, ImageData]:
    """Split data into (train, test), class by class; about `fraction` of each class is for testing.

    Equal pictures of a class always go to the same side, and every class keeps at least one sample for training.
    Each side's DataSpec remembers the split, so that it opens again as it was.

    >>> import provnet
    >>> train, test = holdout(provnet.open_data("embedded"), 0.1)
    >>> len(train), len(test)
    (3600, 400)
    """
    if not 0 < fraction < 1:
        raise UsageError(f"the fraction held out must lie between 0 and 1, got {fraction}")
    held = _held(data, fraction)
    return _side(data, ~held, fraction, "train"), _side(data, held, fraction, "test")


def apply_holdout(data: ImageData) -> ImageData:
    """Take the side that the data's own DataSpec names; data that were never split come back as they are."""
    for fraction, side in data.spec.options.get("holdout", ()):
        held = _held(data, float(fraction))
        rows = np.flatnonzero(held if side == "test" else ~held)
        data = data.select(rows)
    return data


def _held(data: ImageData, fraction: float) -> np.ndarray:
    keys = np.array(
        [hashlib.sha256(b"holdout" + row.tobytes()).digest() for row in data.samples.pixel_sha256], dtype="V32"
    )
    _, rank = np.unique(keys, return_inverse=True)  # equal pictures share a rank
    rank = rank.reshape(-1)
    labels = data.samples.labels
    held = np.zeros(len(data), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = round(fraction * len(members))
        ranks = np.sort(rank[members])
        if count and ranks[count - 1] == ranks[-1]:
            count = int(np.searchsorted(ranks, ranks[-1]))  # the last picture stays for training
        if count:
            held[members] = rank[members] <= ranks[count - 1]
    return held


def _side(data: ImageData, mask: np.ndarray, fraction: float, side: str) -> ImageData:
    earlier = list(data.spec.options.get("holdout", ()))
    options = {**data.spec.options, "holdout": [*earlier, [fraction, side]]}
    return replace(data.select(np.flatnonzero(mask)), spec=replace(data.spec, options=options))
