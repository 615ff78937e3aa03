"""Training with an index over some samples only (§4.3): who is indexed, and what that changes in a step.

The run's sample table holds exactly the indexed samples, so every index that leaves a run names one of them. The class
branch learns from all samples: for the others the index loss counts 0, by a weight and not by leaving them out, so that
a recorded step stays the same for every batch.

Letters: N samples that are trained on, S of them indexed, B batch, D features.
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
from provnet.heads.index_map import IndexMap, TargetSampler
from provnet.samples.identity import SampleTable

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
class Counted:
    """For each sample that is trained on: its index (0 where it has none), and what its index loss counts, 1 or 0.

    Counting N/S instead would keep the balance of the two losses, but it answers worse: docs/subsets.md.
    """

    own: Tensor  # (N,) int64
    weight: Tensor  # (N,) float32
    scale: float  # N/S: from a mean over all samples to one over the indexed


@dataclass(frozen=True, eq=False)
class Indexed:
    """What of the data is indexed; `rows` None means everything. `settings` is what the run keeps of it."""

    rows: Tensor | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def map(self, index_map: IndexMap) -> IndexMap:
        """The map of the indexed samples alone, out of that of all."""
        return index_map if self.rows is None else IndexMap(index_map.labels[self.rows], index_map.classes)

    def table(self, samples: SampleTable) -> SampleTable:
        """The sample table of the run."""
        return samples if self.rows is None else samples.select(self.rows.numpy())

    def columns(self, history: np.ndarray) -> np.ndarray:
        """(epochs, N) -> (epochs, S)."""
        return history if self.rows is None else np.ascontiguousarray(history[:, self.rows.numpy()])

    def sampler(self, index_map: IndexMap, alpha: float, labels: Tensor) -> TargetSampler:
        """Targets for all samples that are trained on."""
        return TargetSampler(index_map, alpha) if self.rows is None else _Sampler(index_map, alpha, self.rows, labels)

    def counted(self, n: int, device: torch.device) -> Counted | None:
        """What a step needs to know, on its device; None where every sample counts the same."""
        if self.rows is None:
            return None
        own, weight = torch.zeros(n, dtype=torch.int64), torch.zeros(n)
        own[self.rows] = torch.arange(len(self.rows))
        weight[self.rows] = 1.0
        return Counted(own.to(device), weight.to(device), n / len(self.rows))


class _Sampler(TargetSampler):
    """Targets of the indexed samples; the others get the first of their class, which counts 0 but is always valid."""

    def __init__(self, index_map: IndexMap, alpha: float, rows: Tensor, labels: Tensor) -> None:
        super().__init__(index_map, alpha)
        self.rows = rows
        self.targets = index_map.table[:, 0].cpu()[labels.cpu()]

    def draw(self, seed: int, epoch: int) -> Tensor:
        """(N,) int64 target of every sample in this epoch."""
        found = self.targets.clone()
        found[self.rows] = super().draw(seed, epoch)
        return found


def narrowed(data: ImageData, subset: IndexSubset | None, network: str) -> tuple[ImageData, Indexed]:
    """The data to train on, and what of them is indexed; a subset that leaves a class without an index is refused.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> seen, indexed = narrowed(data, IndexSubset(np.arange(10), "subset"), "single")
    >>> len(seen), indexed.settings["subset"]["of"]
    (10, 20)
    """
    image_data("the training data", data)
    if not isinstance(subset, IndexSubset | None):
        raise UsageError(f"index_subset must be a provnet.training.subset.IndexSubset, got {type(subset).__name__}")
    if subset is None:
        return data, Indexed()
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
        return data.select(rows), Indexed(None, {SUBSET: kept})
    return data, Indexed(torch.from_numpy(rows), {SUBSET: kept})


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
