"""TargetSampler: label mixing (§3.1). With probability alpha the target is another sample of the same class."""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.data.batches import keyed_generator
from provnet.errors import UsageError
from provnet.indexing import IndexMap


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
