"""Hold some samples out for testing: a pure function of their contents, whatever their order and names."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from provnet.data.imagedata import ImageData
from provnet.errors import UsageError

FIRST = "holdout_first"  # among a DataSpec's options: samples were held out by their labels before decisions


def check_fraction(fraction: float) -> None:
    """Refuse a share that leaves nothing, or holds nothing out."""
    if not 0 < fraction < 1:
        raise UsageError(f"the fraction held out (--holdout) must lie between 0 and 1, such as 0.1; got {fraction}")


def holdout(data: ImageData, fraction: float, *, given: ImageData | None = None) -> tuple[ImageData, ImageData]:
    """Split data into (train, test), class by class; about `fraction` of each class is for testing.

    Equal pictures always go to the same side, whatever their labels, and every class keeps at least one sample for
    training.
    Each side's DataSpec remembers the split, so that it opens again as it was.

    `given` are the data before decisions changed them (`apply_decisions`): they are split then, and decisions change no
    sample's side. Else a sample that a network learned from could be one to test the next network on.

    >>> import provnet
    >>> train, test = holdout(provnet.open_data("embedded"), 0.1)
    >>> len(train), len(test)
    (3600, 400)
    """
    check_fraction(fraction)
    if given is None or given is data:
        held = _held(data, fraction)
        return _side(data, ~held, fraction, "train"), _side(data, held, fraction, "test")
    chosen = _held(given, fraction)[[given.samples.id_places[name] for name in data.samples.sample_ids]]
    marked = replace(data, spec=replace(data.spec, options={**data.spec.options, FIRST: True}))
    return _side(marked, ~chosen, fraction, "train"), _side(marked, chosen, fraction, "test")


def recorded_side(data: ImageData) -> np.ndarray:
    """(N,) whether a sample is on the side that the data's own DataSpec names.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> recorded_side(data).all()
    np.True_
    """
    rows = np.arange(len(data))
    for fraction, side in data.spec.options.get("holdout", ()):
        held = _held(data.select(rows), float(fraction))
        rows = rows[held if side == "test" else ~held]
    return np.isin(np.arange(len(data)), rows)


def apply_holdout(data: ImageData) -> ImageData:
    """Take the side that the data's own DataSpec names; data that were never split come back as they are."""
    options = data.spec.options
    if "holdout" not in options or ("decisions" in options and options.get(FIRST)):  # else `apply_recorded` took it
        return data
    return data.select(np.flatnonzero(recorded_side(data)))


def _held(data: ImageData, fraction: float) -> np.ndarray:
    keys = np.array(
        [hashlib.sha256(b"holdout" + row.tobytes()).digest() for row in data.samples.pixel_sha256], dtype="V32"
    )
    _, rank = np.unique(keys, return_inverse=True)  # equal pictures share a rank
    rank = rank.reshape(-1)
    labels = data.samples.labels
    cuts = np.full(len(data.class_names), -1)  # the last rank of each class that is held out
    for label in np.unique(labels):
        ranks = np.sort(rank[labels == label])
        cuts[label] = _cut(ranks, round(fraction * len(ranks)), spare=True)
    # a picture with several labels is held out where all its classes agree; the rest of a class makes up for it
    pairs = np.unique(rank * len(cuts) + labels)
    several = np.bincount(pairs // len(cuts))[rank] > 1
    held: np.ndarray = several & (np.bincount(rank, rank > cuts[labels])[rank] == 0)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        own, shared = members[~several[members]], members[several[members]]
        wanted = round(fraction * len(members)) - int(held[shared].sum())
        held[own] = rank[own] <= _cut(np.sort(rank[own]), min(wanted, len(own)), spare=bool(held[shared].all()))
    return held


def _cut(ranks: np.ndarray, count: int, *, spare: bool) -> int:
    """The rank up to which `count` of the sorted ranks lie, equal ones together; the last stays out to `spare` it."""
    if count > 0 and spare and ranks[count - 1] == ranks[-1]:
        count = int(np.searchsorted(ranks, ranks[-1]))
    return int(ranks[count - 1]) if count > 0 else -1


def _side(data: ImageData, mask: np.ndarray, fraction: float, side: str) -> ImageData:
    earlier = list(data.spec.options.get("holdout", ()))
    options = {**data.spec.options, "holdout": [*earlier, [fraction, side]]}
    return replace(data.select(np.flatnonzero(mask)), spec=replace(data.spec, options=options))
