"""Index heads: from index features to scores over slots. Only a head knows what a slot is.

ExemplarHead has one unit-length key per training sample; a score is scale times the cosine with it. It is what scales:
no output layer of N neurons, only N keys of D numbers. A key is the moving average of its own sample's features (a
bank, no gradient) or a trained parameter. When training ends every key is set to its sample's features (`refresh`). A
training sample then finds itself by construction, exact duplicates aside, so exact index accuracy says nothing about
what was learned. Look at the learned figure, at noise, shift and JPEG, and at the classes retrieved.

Letters: B batch, D features, N samples, C classes, M size of the largest class, K exemplars.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import pieces
from provnet.base.errors import NonFiniteError, choose
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import DTYPES, PackedKeys, all_rows, gather, pack, shard_of, shares_of, sum_over, unit
from provnet.heads.losses import IndexLoss, index_cross_entropy, index_loss, sampled_cross_entropy
from provnet.heads.retrieval import Ranked, TopK, best_jointly, merge_over, top_k, top_k_within
from provnet.heads.scores import SCORES, DenseScores, Equal, KeyScores, Scores, equal_slots
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


MOMENTUM = 0.5
SCALE = 16.0  # what a learned scale starts with
LARGEST_SCALE = 64.0
SHARPEST = 40.0  # scale up to which fp32 holds exp(-2 * scale), the weight of an opposite key
CHUNK = {"cpu": 8192, "cuda": 65_536}  # keys scored at a time in the loss
MOST_ONES = 64  # classes of a part whose sums are made by a product


@final
class ExemplarHead(IndexHead):
    """Keys sorted by class, so that the samples of a class are one slice.

    With `conditional` a slot is the local position within the given class; else it is the row of the key.

    >>> head = ExemplarHead(2, IndexMap([1, 0]), conditional=False)
    >>> head.set_keys(torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> head.best(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), k=2).index.tolist()
    [[0, 1]]
    """

    keys: Tensor
    steps: Tensor | None
    learned: Tensor
    starts: Tensor
    rows: Tensor
    order: Tensor
    log_scale: Tensor

    def __init__(
        self, features: int, index_map: IndexMap, *, conditional: bool, scale: float = 0.0, stored: str = "fp32"
    ) -> None:
        super().__init__()
        self.index_map = index_map
        self.conditional = conditional
        self.stored = stored
        self.shard = shard_of(index_map.n, 0, 1)
        starts = torch.cumsum(index_map.sizes, 0) - index_map.sizes
        self.ends: list[int] = torch.cumsum(index_map.sizes, 0).tolist()  # known without asking the device
        rows = starts[index_map.labels] + index_map.local
        self.register_buffer("keys", torch.zeros(index_map.n, features, dtype=choose("key type", stored, DTYPES)))
        self.register_buffer("steps", None if stored == "fp32" else torch.zeros(index_map.n))  # scales of packed keys
        self.register_buffer("learned", torch.zeros(2, dtype=torch.int64))  # hits before `refresh`, and of how many
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("rows", rows, persistent=False)  # index -> row
        self.register_buffer("order", torch.argsort(rows), persistent=False)  # row -> index
        value = torch.tensor(math.log(scale or SCALE))
        if scale:
            self.register_buffer("log_scale", value)
        else:
            self.log_scale = nn.Parameter(value)

    @property
    def scale(self) -> Tensor:
        """How sharply the cosine is turned into a share."""
        return self.log_scale.exp().clamp(max=LARGEST_SCALE)

    @property
    def bank(self) -> PackedKeys:
        """The keys as they are kept; unit length."""
        if isinstance(self.keys, nn.Parameter):
            return PackedKeys(F.normalize(self.keys.detach(), dim=1))
        return PackedKeys(self.keys, None if self.keys.dtype == torch.float32 else self.steps)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D), (B,) -> (B, N) by row, or (B, M) by local position within the class: where there are few samples."""
        scores = self.scale * (unit(features) @ self.bank.unpacked().t())
        if not self.conditional:
            return scores
        local = torch.arange(self.index_map.largest, device=classes.device)
        rows = (self.starts[classes].unsqueeze(1) + local).clamp(max=self.index_map.n - 1)  # (B, M)
        return scores.gather(1, rows).masked_fill(~within_class(self.index_map, classes), -torch.inf)

    def valid(self, classes: Tensor) -> Tensor | None:
        """Slots below the size of the class, or all of them."""
        return within_class(self.index_map, classes) if self.conditional else None

    def to_slot(self, index: Tensor) -> Tensor:
        """Local position, or row of the key."""
        return self.index_map.split(index)[1] if self.conditional else self.rows[index]

    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """The sample behind each slot."""
        if self.conditional:
            return self.index_map.join(classes.unsqueeze(1).expand_as(slots), slots)
        return self.order[slots]

    def members(self) -> Tensor:
        """(N, C) in the order of the keys: by class."""
        each, classes = self.index_map.sizes, self.index_map.classes
        return F.one_hot(torch.arange(classes, device=each.device).repeat_interleave(each), classes).float()

    def equal(self, samples: SampleTable, *, joint: bool) -> Equal | None:
        """Equal samples have equal keys: they share their weight by themselves."""
        return None

    def alike(self, features: Tensor, backbone: Tensor) -> Tensor:
        """Those that are compared with keys."""
        return features

    def placed(self, features: Tensor) -> Tensor:
        """At length one, so that distances rank as cosines do."""
        return unit(features)

    # while training

    def reset_parameters(self) -> None:
        """Draw every key anew, by torch's own generator."""
        self.open_keys(trained=False)
        self.keys.copy_(unit(torch.randn(self.keys.shape)))
        self.close_keys()

    def output(self, features: Tensor, classes: Tensor) -> None:
        """Scores of keys are made where they are needed, never all at once."""

    def open_keys(self, *, trained: bool) -> None:
        """Make the keys ready for training: fp32, and parameters where they are to be trained by gradients."""
        keys = self.bank.unpacked().clone()
        del self.keys
        if trained:
            self.keys = nn.Parameter(keys)
        else:
            self.register_buffer("keys", keys)

    def close_keys(self) -> None:
        """Bring the keys into the type that they are stored in."""
        packed = pack(self.bank.unpacked(), self.stored)
        del self.keys
        self.register_buffer("keys", packed.values.clone())
        self.steps = packed.scale

    def split_keys(self, rank: int, processes: int) -> None:
        """Keep only the rows of this process; the bank of all is put together by `join_keys`."""
        self.shard = shard_of(self.index_map.n, rank, processes)
        if processes > 1:
            self.keys = self.keys[self.shard.rows].clone()

    def join_keys(self) -> None:
        """Every process gets the whole bank."""
        self.keys = all_rows(self.keys, self.shard)
        self.shard = shard_of(self.index_map.n, 0, 1)

    def loss(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        index: Tensor,
        smoothing: float,
        negatives: int = 0,
    ) -> IndexLoss:
        """Cross-entropy of each sample, (B,), and whether it was found, without (B, N) memory.

        With `negatives` it is told from so many keys, drawn by torch's own generator, instead of from all; not where
        one looks within a class or keys are split over processes.
        """
        keys = F.normalize(self.keys, dim=1) if isinstance(self.keys, nn.Parameter) else self.keys
        if 0 < negatives < len(keys) and not self.conditional and self.shard.processes == 1:
            device = features.device
            generator = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
            queries, rate = self.scale * unit(features), negatives / len(keys)
            return sampled_cross_entropy(
                queries,
                keys,
                self.rows[index],
                rate=rate,
                generator=generator,
                smoothing=smoothing,
                chunk=CHUNK[device.type],
            )
        shares = shares_of(len(index), self.shard, features.device)
        queries, rows = gather(self.scale * unit(features), shares), gather(self.rows[index], shares)
        span = None
        if self.conditional:
            given = gather(classes, shares)
            span = self.starts[given], self.starts[given] + self.index_map.sizes[given]
        chunk = CHUNK[keys.device.type]
        found = index_cross_entropy(queries, keys, rows, smoothing=smoothing, span=span, shard=self.shard, chunk=chunk)
        return IndexLoss(found.loss[shares.own], found.hit[shares.own])

    @torch.no_grad()
    def observe(self, index: Tensor, features: Tensor, counts: Tensor | None = None) -> None:
        """Move the keys of these samples towards their features of now; trained keys move by their gradients.

        A sample that counts 0 adds exactly nothing to a key: a recorded step cannot leave it out.
        """
        if isinstance(self.keys, nn.Parameter):
            return
        shares = shares_of(len(index), self.shard, features.device)
        rows = gather(self.rows[index], shares) - self.shard.first
        if counts is not None:
            mine = (rows >= 0) & (rows < len(self.keys))
            counts = gather(counts, shares) * mine
            rows = rows.where(mine, 0)
            before, seen = self.keys[rows], gather(unit(features), shares)
            after = unit(MOMENTUM * before + (1 - MOMENTUM) * seen)
            self.keys.index_add_(0, rows, (after - before) * counts.unsqueeze(1))
            return
        seen = gather(unit(features), shares)
        if self.shard.processes > 1:
            mine = (rows >= 0) & (rows < len(self.keys))
            rows, seen = rows[mine], seen[mine]
        self.keys[rows] = unit(MOMENTUM * self.keys[rows] + (1 - MOMENTUM) * seen)

    @torch.no_grad()
    def set_keys(self, index: Tensor, features: Tensor) -> None:
        """Set the keys of these samples, all of them this process's own, to their features."""
        self.keys[self.rows[index] - self.shard.first] = unit(features)

    # afterwards

    def scores(
        self,
        features: Tensor,
        classes: Tensor,
        outputs: Tensor | None,
        log_class: Tensor | None = None,
        equal: Equal | None = None,
    ) -> KeyScores:
        """Those of keys are made when they are asked for."""
        return KeyScores(self, features, classes, log_class)

    def learned_hits(self) -> tuple[int, int]:
        """By the keys as they were learned, before `refresh`: afterwards a sample finds itself by construction."""
        hits, count = self.learned.tolist()
        return hits, count

    @torch.no_grad()
    def best(self, features: Tensor, classes: Tensor, k: int, log_class: Tensor | None = None) -> Ranked:
        """The k samples with the largest share, best first, without (B, N) memory.

        A share is a softmax over all keys, or over those of the class where conditional. With `log_class` (B, C) it is
        P(class) times the share within the class; that is for heads that are not conditional.
        """
        if log_class is not None and not self.conditional:
            bias = log_class - self.class_totals(features)
            found = best_jointly(
                unit(features), self.bank, k, scale=self.scale, bias=bias, parts=self.parts, labels=self._labels
            )
            return Ranked(self.order[found.row], found.score.clamp(max=0.0))
        shares = shares_of(len(classes), self.shard, features.device)
        queries = gather(unit(features), shares)
        if self.conditional:
            edges = torch.stack([self.starts, self.starts + self.index_map.sizes]) - self.shard.first
            first, end = edges.clamp(0, self.shard.end - self.shard.first)
            found = top_k_within(queries, self.bank, first, end - first, gather(classes, shares), k)
            total = self._totals_within(features, classes)
        else:
            found = top_k(queries, self.bank, k)
            total = self.class_totals(features).logsumexp(1)
        row = (found.row + self.shard.first).where(found.row >= 0, -1)
        found = merge_over(TopK(found.score, row), k, self.shard, shares)
        index = self.order[found.row.clamp(min=0)].where(found.row >= 0, -1)
        return Ranked(index, (self.scale * found.score - total.unsqueeze(1)).clamp(max=0.0))

    @torch.no_grad()
    def class_totals(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C) log-sum-exp of the scores of each class; finite, also for a class without samples.

        Keys, features and a scale that are not finite are refused, but for training, which looks at its loss.
        """
        shares = shares_of(len(features), self.shard, features.device)
        queries, scale = gather(unit(features), shares), self.scale
        # a recorded step must not look at values, and while training only the largest total is looked at
        wide = torch.float64 if not self.training and float(scale) > SHARPEST else torch.float32
        sums = queries.new_zeros(self.index_map.classes, len(queries), dtype=wide)
        for start, part in self.parts(len(queries)):
            scores = (scale * (part @ queries.t()) - scale).to(wide)  # a cosine is at most 1: nothing overflows
            if not self.training:
                sums += 0 * scores.amin(0)  # -inf would become a weight of 0: now it is NaN, as NaN and inf are
            self._add_by_class(sums, start, scores.exp_())
        sums = sum_over(sums, self.shard)
        if not self.training and not bool(torch.isfinite(sums).all()):  # in every process alike
            raise NonFiniteError(
                "the scores of some keys are not finite: no sample can be named. Check the input's values and the "
                "model's weights (provnet verify)"
            )
        sums = sums[:, shares.own]
        return (sums.t().clamp_min(torch.finfo(wide).tiny).log() + scale).float()

    def _totals_within(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B,) log-sum-exp of the scores within the class of each query; one product for each class that occurs."""
        if self.shard.processes > 1:
            return self.class_totals(features).gather(1, classes.unsqueeze(1)).squeeze(1)
        queries = unit(features)
        totals = queries.new_zeros(len(queries))
        for each in sorted(set(classes.tolist())):
            start = int(self.starts[each])
            keys = self.bank.unpacked(slice(start, start + int(self.index_map.sizes[each])))
            mine = classes == each
            totals[mine] = (self.scale * (queries[mine] @ keys.t())).logsumexp(1)
        return totals

    def parts(self, batch: int) -> Iterator[tuple[int, Tensor]]:
        """(first row, keys) of pieces small enough to hold the scores of a batch."""
        bank, size = self.bank, max(1, SCORES[self.keys.device.type] // max(batch, 1))
        for rows in pieces(len(bank), size):
            yield rows.start, bank.unpacked(rows)

    def _add_by_class(self, sums: Tensor, start: int, weights: Tensor) -> None:
        """Add the weights (n, B) of the keys from `start` on to the sums (C, B) of their classes.

        On a GPU many rows that go to few places wait for each other: there a product with ones does it.
        """
        labels, first = self._labels(slice(start, start + len(weights))), self.shard.first + start
        low, high = (bisect_right(self.ends, row) for row in (first, first + len(weights) - 1))
        if not weights.is_cuda or high - low > MOST_ONES:
            sums.index_add_(0, labels, weights)
        else:
            ones = torch.arange(low, high + 1, device=labels.device).unsqueeze(1) == labels
            sums[low : high + 1] += ones.to(weights.dtype) @ weights

    def _labels(self, rows: slice | Tensor) -> Tensor:
        """The classes of some keys of this process."""
        return self.index_map.labels[self.order[self.shard.rows][rows]]
