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
from provnet.heads.losses import IndexLoss, index_loss
from provnet.heads.scores import DenseScores, Equal, Scores, equal_slots
from provnet.samples.identity import SampleTable

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
    """What every index head can do. Heads share the network's IndexMap, they do not own it.

    `outputs` are what `output` gave in the same pass: (B, slots), or None.
    """

    index_map: IndexMap

    @abstractmethod
    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) features and (B,) classes -> (B, slots) scores, -inf where a slot names no sample."""

    @abstractmethod
    def output(self, features: Tensor, classes: Tensor) -> Tensor | None:
        """The scores that a forward pass of the network makes; None where they are made when they are needed."""

    @abstractmethod
    def scores(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        log_class: Tensor | None = None,
        equal: Equal | None = None,
    ) -> Scores:
        """What can be asked of a batch; joint with `log_class` (B, C), and `equal` samples share their weight."""

    @abstractmethod
    def loss(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        index: Tensor,
        smoothing: float,
        negatives: int = 0,
    ) -> IndexLoss:
        """Cross-entropy of each sample, (B,), and whether it was found."""

    @abstractmethod
    def valid(self, classes: Tensor) -> Tensor | None:
        """(B, slots) bool: which slots name a sample, given the classes; None where all do."""

    @abstractmethod
    def to_slot(self, index: Tensor) -> Tensor:
        """The slot of each global index."""

    @abstractmethod
    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """The global index behind each slot (B, K), given the classes (B,)."""

    @abstractmethod
    def members(self) -> Tensor:
        """(slots, C) one-hot classes of the slots, of a head that looks among all samples."""

    @abstractmethod
    def equal(self, samples: SampleTable, *, joint: bool) -> Equal | None:
        """The slots of equal samples, whose weight is to be shared; None where there is nothing to share."""

    @abstractmethod
    def alike(self, features: Tensor, backbone: Tensor) -> Tensor:
        """(B, D) features by which samples are compared: those of the index branch, or of the backbone."""

    @abstractmethod
    def placed(self, features: Tensor) -> Tensor:
        """(B, D) features of the index branch, as distances between them are measured."""

    def prepare_members(self) -> None:
        """Hold what `members` gives ready: a network without a class branch asks for it in every step."""

    def observe(self, index: Tensor, features: Tensor, counts: Tensor | None = None) -> None:
        """After a step: learn from the features (B, D) of these samples; `counts` (B,) is 1 or 0, None for all 1."""

    def learned_hits(self) -> tuple[int, int] | None:
        """How many training samples were found before the head was told their features, and of how many."""
        return None


class OutputHead(IndexHead):
    """A head of the paper: one output layer, a neuron for each slot."""

    linear: WideLinear

    def output(self, features: Tensor, classes: Tensor) -> Tensor:
        """All scores."""
        scores: Tensor = self(features, classes)
        return scores

    def scores(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        log_class: Tensor | None = None,
        equal: Equal | None = None,
    ) -> DenseScores:
        """Those of the pass, which are held all at once."""
        assert outputs is not None
        return DenseScores(self, outputs, classes, log_class, equal)

    def loss(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        index: Tensor,
        smoothing: float,
        negatives: int = 0,
    ) -> IndexLoss:
        """Told from all others."""
        assert outputs is not None
        slots = self.to_slot(index)
        return IndexLoss(index_loss(outputs, self.valid(classes), slots, smoothing), outputs.argmax(1) == slots)

    def members(self) -> Tensor:
        """Of a head that looks within one class there are none."""
        raise NotImplementedError("this head looks within one class")

    def equal(self, samples: SampleTable, *, joint: bool) -> Equal | None:
        """Neurons learn apart, also for equal samples."""
        return equal_slots(self, samples, joint=joint)

    def alike(self, features: Tensor, backbone: Tensor) -> Tensor:
        """The backbone's: the hidden layers of a class-conditional branch have the given label among their inputs."""
        return backbone

    def placed(self, features: Tensor) -> Tensor:
        """As they are."""
        return features


@final
class FlatHead(OutputHead):
    """N outputs, one per training sample (single branch, class independent). A slot is the index itself."""

    one_hot: Tensor

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

    def prepare_members(self) -> None:
        """A buffer that is made of the labels again when a run is read."""
        classes = F.one_hot(self.index_map.labels, self.index_map.classes).float()
        self.register_buffer("one_hot", classes, persistent=False)

    def members(self) -> Tensor:
        """(N, C): a product with it sums over the samples of each class."""
        return self.one_hot


def within_class(index_map: IndexMap, classes: Tensor) -> Tensor:
    """(B, M) bool: local positions below the size of the class."""
    return torch.arange(index_map.largest, device=classes.device) < index_map.sizes[classes].unsqueeze(1)


class _ClassHead(OutputHead):
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


INDEX_HEADS: dict[str, type[FlatHead | SharedHead | PerClassHead]] = {
    "flat": FlatHead,
    "shared": SharedHead,
    "per-class": PerClassHead,
}
