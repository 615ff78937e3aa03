"""Training with an index over some samples only (§4.3): who is indexed, and what that changes in a step.

The run's sample table holds exactly the indexed samples, so every index that leaves a run names one of them. The class
branch learns from all samples: for the others the index loss counts 0, by a weight and not by leaving them out, so that
a recorded step stays the same for every batch.

Letters: N samples that are trained on, S of them indexed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.base.errors import UsageError, one_of
from provnet.base.files import brief
from provnet.base.options import SUBSET
from provnet.data.dataset import ImageData, image_data
from provnet.heads.index_map import IndexMap

CLASSES_ON = ("all", "subset")


@dataclass(frozen=True, eq=False)
class IndexSubset:
    """Which samples of some data are indexed.

    Attributes:
        rows: (S,) int64, positions in the data, rising; every class that has samples needs one of them.
        classes_on: `all`: the class branch is trained on all samples; `subset`: on the same ones.
        about: how they were chosen, kept in the run.
    """

    rows: np.ndarray
    classes_on: str = "all"
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Indexed:
    """Of data that are trained on only some samples have an index: S of N.

    What the others count is 0. Counting N/S for the indexed ones instead would keep the balance of the two losses, but
    it answers worse: docs/subsets.md.
    """

    rows: Tensor  # (S,) int64, which they are
    own: Tensor  # (N,) int64: the index of each sample; for the others that of the first of their class, always valid
    weight: Tensor  # (N,) float32: what its index loss counts, 1 or 0

    @property
    def scale(self) -> float:
        """N/S: from a mean over all samples to one over the indexed."""
        return len(self.own) / len(self.rows)


def indexed_among(rows: Tensor, labels: Tensor, index_map: IndexMap, device: torch.device) -> Indexed:
    """Rows (S,) that have an index, of data with labels (N,); what a step reads lies on the device.

    >>> some = indexed_among(torch.tensor([1, 3]), torch.tensor([0, 0, 1, 1]), IndexMap([0, 1]), torch.device("cpu"))
    >>> some.own.tolist(), some.weight.tolist(), some.scale
    ([0, 0, 1, 1], [0.0, 1.0, 0.0, 1.0], 2.0)
    """
    own, weight = index_map.table[:, 0].cpu()[labels.cpu()], torch.zeros(len(labels))
    own[rows], weight[rows] = torch.arange(len(rows)), 1.0
    return Indexed(rows, own.to(device), weight.to(device))


def narrowed(
    data: ImageData, subset: IndexSubset | None, network: str
) -> tuple[ImageData, Tensor | None, dict[str, Any]]:
    """The data to train on, which rows of them have an index (None: all), and what the run keeps of that.

    A subset that leaves a class without an index is refused.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> seen, rows, settings = narrowed(data, IndexSubset(np.arange(10), "subset"), "single")
    >>> len(seen), rows, settings["subset"]["of"]
    (10, None, 20)
    """
    image_data("the training data", data)
    if not isinstance(subset, IndexSubset | None):
        raise UsageError(f"index_subset must be a provnet.training.subset.IndexSubset, got {type(subset).__name__}")
    if subset is None:
        return data, None, {}
    rows = _checked(data, subset)
    everywhere = one_of("choice of samples for the classes", subset.classes_on, CLASSES_ON) == "all"
    if network == "single" and everywhere and len(rows) < len(data):
        raise UsageError(
            "a single branch learns classes from its index alone, samples without an index would teach it nothing; "
            'use classes_on "subset" (--subset-classes-on subset), or a two-branch network'
        )
    rest = np.setdiff1d(np.arange(len(data)), rows)
    kept: dict[str, Any] = {
        **subset.about,
        "classes_on": subset.classes_on,
        "indexed": len(rows),
        "of": len(data),
        "rows_sha256": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
    }
    if everywhere and len(rest):
        kept["rest_content"] = data.samples.select(rest).content_root
    if not everywhere or len(rest) == 0:
        return data.select(rows), None, {SUBSET: kept}
    return data, torch.from_numpy(rows), {SUBSET: kept}


def _checked(data: ImageData, subset: IndexSubset) -> np.ndarray:
    given = np.asarray(subset.rows)
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0:
        raise UsageError(f"a subset is whole numbers of shape (S,), at least one; got {given.dtype} {given.shape}")
    rows = given.astype(np.int64)
    if rows.min() < 0 or rows.max() >= len(data) or (np.diff(rows) <= 0).any():
        raise UsageError(
            f"a subset names positions 0..{len(data) - 1}, each once, in rising order; got {rows.min()}..{rows.max()}"
        )
    labels, classes = data.samples.labels, len(data.class_names)
    sizes, there = np.bincount(labels, minlength=classes), np.bincount(labels[rows], minlength=classes)
    bare = np.flatnonzero((sizes > 0) & (there == 0))
    if len(bare):
        raise UsageError(
            f'{len(bare)} classes have no indexed sample, the first "{brief(data.class_names[int(bare[0])])}"; every '
            "class needs one, or it could never be explained"
        )
    return rows
