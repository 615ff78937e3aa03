"""IndexMap: the two ways to name a training sample, index <-> (class, local).

Letters: N samples, C classes, M size of the largest class.
`index` is the global position of a training sample, `local` its position within its class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.batches import is_column, keyed_generator
from provnet.base.errors import UsageError


class IndexMap(nn.Module):
    """A bijection between global indices and (class, local) pairs.

    Any grouping can stand for the class: labels, clusters, metadata, shards. Classes without
    samples are allowed (size 0). Buffers: `labels (N,)`, `local (N,)`, `table (C, M)` with -1
    where a class has no such sample, `sizes (C,)`; all int64.

    >>> index_map = IndexMap([1, 0, 1])
    >>> [t.tolist() for t in index_map.split(torch.tensor([2]))]
    [[1], [1]]
    >>> index_map.join(torch.tensor([1]), torch.tensor([1])).tolist()
    [2]
    """

    labels: Tensor
    local: Tensor
    table: Tensor
    sizes: Tensor

    def __init__(self, labels: Tensor | np.ndarray | Sequence[int], classes: int | None = None) -> None:
        super().__init__()
        given = np.asarray(labels)
        if given.size and given.dtype.kind not in "iub":
            raise UsageError(f"labels must be whole numbers, got {given.dtype}")
        if not is_column(given):
            raise UsageError(f"labels must be one-dimensional, one per sample; got shape {given.shape}")
        if classes is not None and not isinstance(classes, int | np.integer):
            raise UsageError(f"the number of classes must be a whole number, got {classes!r}")
        y = torch.from_numpy(given.astype(np.int64))  # a copy: the caller may go on writing
        if len(y) == 0:
            raise UsageError("an IndexMap needs at least one sample, got none")
        if int(y.min()) < 0:
            raise UsageError(f"labels must be 0 or more, got {int(y.min())}")
        count = int(y.max()) + 1 if classes is None else int(classes)
        if int(y.max()) >= count:
            raise UsageError(f"labels must lie below the number of classes, {count}; got {int(y.max())}")
        sizes = torch.bincount(y, minlength=count)
        order = torch.argsort(y, stable=True)  # samples of a class keep their order
        starts = torch.cumsum(sizes, 0) - sizes
        local = torch.empty_like(y)
        local[order] = torch.arange(len(y)) - starts[y[order]]
        table = torch.full((count, int(sizes.max())), -1, dtype=torch.int64)
        table[y, local] = torch.arange(len(y))
        self.register_buffer("labels", y, persistent=False)
        self.register_buffer("local", local, persistent=False)
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("sizes", sizes, persistent=False)

    @property
    def n(self) -> int:
        """How many samples there are (N)."""
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many classes there are, empty ones included (C)."""
        return len(self.sizes)

    @property
    def largest(self) -> int:
        """The size of the largest class (M)."""
        return int(self.table.shape[1])

    def split(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return (class, local) of each global index."""
        return self.labels[index], self.local[index]

    def join(self, classes: Tensor, local: Tensor) -> Tensor:
        """Return the global index of each (class, local) pair; a pair that names no sample is refused."""
        there = (classes >= 0) & (classes < self.classes) & (local >= 0) & (local < self.largest)
        index = self.table[classes.where(there, 0), local.where(there, 0)].where(there, -1)
        if bool((index < 0).any()):
            raise UsageError("a (class, local) pair names no sample: local must lie below the size of its class")
        return index

    def extra_repr(self) -> str:
        """Show the sizes in `print(model)`."""
        return f"n={self.n}, classes={self.classes}, largest={self.largest}"


class TargetSampler:
    """Draws one target index per sample and epoch, as a pure function of (seed, epoch).

    A class of one sample keeps its own index. Classes never mix.

    >>> TargetSampler(IndexMap([0, 0, 1]), alpha=1.0).draw(seed=0, epoch=0).tolist()
    [1, 0, 2]
    """

    def __init__(self, index_map: IndexMap, alpha: float) -> None:
        if not 0 <= alpha <= 1:
            raise UsageError(f"alpha must lie in [0, 1], got {alpha}")
        self.index_map = index_map
        self.alpha = alpha

    def draw(self, seed: int, epoch: int) -> Tensor:
        """(N,) int64 target of every sample in this epoch."""
        own = torch.arange(self.index_map.n)
        if self.alpha == 0:
            return own
        generator = keyed_generator(seed, epoch, 2)
        uniform = torch.rand(2, self.index_map.n, dtype=torch.float64, generator=generator)
        classes, local = (t.cpu() for t in self.index_map.split(own.to(self.index_map.labels.device)))
        others = self.index_map.sizes.cpu()[classes] - 1
        pick = (uniform[1] * others).long().clamp(max=(others - 1).clamp(min=0))
        pick = pick + (pick >= local).long()  # skip the sample's own place
        mixed = (uniform[0] < self.alpha) & (others > 0)
        target = torch.where(mixed, pick, local)
        return self.index_map.table.cpu()[classes, target]
