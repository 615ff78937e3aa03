"""Index heads: from index features to scores over slots. Only a head knows what a slot is.

Letters: B batch, D features, N samples, C classes, M size of the largest class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.heads.index_map import IndexMap

LARGE = 2**20  # weights
FEW = 256  # samples in a batch


class WideLinear(nn.Linear):
    """nn.Linear, without autocast where it has many weights and the batch is small.

    >>> WideLinear(4, 2)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D')."""
        if not x.is_cuda or self.weight.numel() < LARGE or len(x) > FEW:
            return super().forward(x)
        with torch.autocast("cuda", enabled=False):
            return F.linear(x.float(), self.weight, self.bias)


class IndexHead(nn.Module, ABC):
    """What every index head can do. Heads share the network's IndexMap, they do not own it."""

    index_map: IndexMap

    @abstractmethod
    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) features and (B,) classes -> (B, slots) scores, -inf where a slot names no sample."""

    @abstractmethod
    def valid(self, classes: Tensor) -> Tensor | None:
        """(B, slots) bool: which slots name a sample, given the classes; None where all do."""

    @abstractmethod
    def to_slot(self, index: Tensor) -> Tensor:
        """The slot of each global index."""

    @abstractmethod
    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """The global index behind each slot (B, K), given the classes (B,)."""


@final
class FlatHead(IndexHead):
    """N outputs, one per training sample (single branch, class independent). A slot is the index itself."""

    def __init__(self, features: int, index_map: IndexMap) -> None:
        super().__init__()
        self.index_map = index_map
        self.linear = WideLinear(features, index_map.n)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) -> (B, N); the classes are not used."""
        scores: Tensor = self.linear(features)
        return scores

    def valid(self, classes: Tensor) -> None:
        """Every slot names a sample."""

    def to_slot(self, index: Tensor) -> Tensor:
        """The index itself."""
        return index

    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """The slot itself."""
        return slots


def within_class(index_map: IndexMap, classes: Tensor) -> Tensor:
    """(B, M) bool: local positions below the size of the class."""
    return torch.arange(index_map.largest, device=classes.device) < index_map.sizes[classes].unsqueeze(1)


class _ClassHead(IndexHead):
    """A head over the samples of one class at a time. A slot is the local position."""

    def valid(self, classes: Tensor) -> Tensor:
        """Slots below the size of the class."""
        return within_class(self.index_map, classes)

    def to_slot(self, index: Tensor) -> Tensor:
        """Local position."""
        return self.index_map.split(index)[1]

    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """The sample of that class at that local position."""
        return self.index_map.join(classes.unsqueeze(1).expand_as(slots), slots)


@final
class SharedHead(_ClassHead):
    """M outputs shared by all classes (class conditional, app. 7.2)."""

    def __init__(self, features: int, index_map: IndexMap) -> None:
        super().__init__()
        self.index_map = index_map
        self.linear = WideLinear(features, index_map.largest)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D), (B,) -> (B, M), masked to the size of each class."""
        scores: Tensor = self.linear(features)
        return scores.masked_fill(~self.valid(classes), -torch.inf)


@final
class PerClassHead(_ClassHead):
    """One layer per class, M_c outputs each, nothing shared.

    The layers are rows of one packed (N, D) matrix sorted by class, so thousands of classes cost one
    multiplication and no loop.
    """

    starts: Tensor

    def __init__(self, features: int, index_map: IndexMap) -> None:
        super().__init__()
        self.index_map = index_map
        self.linear = WideLinear(features, index_map.n)
        self.register_buffer("starts", torch.cumsum(index_map.sizes, 0) - index_map.sizes, persistent=False)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D), (B,) -> (B, M), masked to the size of each class."""
        local = torch.arange(self.index_map.largest, device=classes.device)
        rows = (self.starts[classes].unsqueeze(1) + local).clamp(max=self.index_map.n - 1)  # (B, M)
        scores: Tensor = self.linear(features).gather(1, rows)
        return scores.masked_fill(~self.valid(classes), -torch.inf)


PlainHead = FlatHead | SharedHead | PerClassHead  # those of the paper: one output layer, `linear`

INDEX_HEADS: dict[str, type[PlainHead]] = {
    "flat": FlatHead,
    "shared": SharedHead,
    "per-class": PerClassHead,
}
