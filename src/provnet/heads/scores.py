"""Scores: what the index branch says of a batch. They hide whether an output layer or keys stand behind it.

A head makes them (`IndexHead.scores`). `DenseScores` hold a score for each slot; `KeyScores` scan the keys in pieces
and never hold a score for each sample. Both give numbers of samples as the head counts them: only `provnet.answers`
turns these into samples of a run.

Shares are a softmax over the samples of the class that is looked at, or over all, as the head looks. Joint ones are
P(class) times the share within the sample's class.

Letters: B batch, N samples, S slots, C classes, K exemplars, G groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import pieces
from provnet.heads.keys import unit
from provnet.heads.retrieval import MARGIN, Ranked, TopK, in_order, ranks_of, rows_of, top_k, top_k_within
from provnet.samples.identity import SampleTable

if TYPE_CHECKING:
    from provnet.heads.heads import ExemplarHead, IndexHead

SCORES = {"cpu": 2**22, "cuda": 2**27}  # held at a time in a scan
MANY_SCORES = 2**24  # the same where training samples are looked at, a large batch at a time
NEXT = 9  # matches after the best one that it is compared with
CLOSEST = 1e-6  # a distance from a key is not known to be less


class Spread(NamedTuple):
    """How a softmax is spread, (B,) float64 each: its largest share, and its entropy in nats."""

    confidence: Tensor
    entropy: Tensor


class Match(NamedTuple):
    """The best match of the index branch before it becomes a share, (B,) float64 each.

    `similarity` is a cosine where keys stand for outputs, else the largest score; `contrast` says how much nearer the
    best match is than the next nine: the log of the ratio of distances, or the difference of scores.
    """

    similarity: Tensor
    contrast: Tensor


class Mass(NamedTuple):
    """Weights of a batch, summed.

    Attributes:
        by_group: (B, G) float64, each row adds up to 1; or to 0 where no sample may be named.
        by_sample: (N,) float64, summed over the queries that count.
        counts: (B,) bool, queries that are asked about and have a sample that may be named.
    """

    by_group: Tensor
    by_sample: Tensor
    counts: Tensor


class Scores(ABC):
    """The index branch's scores of a batch."""

    @abstractmethod
    def finite(self) -> Tensor:
        """(B,) whether everything that names a sample is finite; of keys, their own values are looked at later."""

    @abstractmethod
    def best(self, k: int) -> Ranked:
        """The k samples with the largest share, best first; of equal shares the lower sample comes first."""

    @abstractmethod
    def of(self, index: Tensor) -> Tensor:
        """(B, L) samples -> (B, L) logs of their shares; -inf outside of the class that is looked at."""

    @abstractmethod
    def ranking(self, index: Tensor) -> Tensor:
        """(n,) samples -> (B, n) what they are ordered by; NaN outside of the class that is looked at."""

    @abstractmethod
    def by_class(self) -> Tensor:
        """(B, C) logs of the sums of exp(score) over the samples of each class, where one looks among all."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """(B,) entropy of the shares, as a share of that of equal ones."""

    @abstractmethod
    def spread(self) -> Spread:
        """Spread of the shares; NaN where the class that is looked at has no sample: all of them are withheld.

        They are summed in float64 and apart from the largest one: confidences that float32 rounds to 1 still differ.
        """

    @abstractmethod
    def match(self) -> Match:
        """Similarity and contrast of the best match; NaN where there is none."""

    @abstractmethod
    def mass(self, groups: Tensor, count: int, asked: Tensor) -> Mass:
        """Shares by group; `groups` (N,) gives that of each sample, 0 to count - 1. `asked` (B,) rows count."""


@final
class DenseScores(Scores):
    """Scores (B, S) of an output layer, which are held all at once.

    With `log_class` (B, C) shares are joint; with `equal` equal samples have the mean of theirs.
    """

    def __init__(
        self,
        head: IndexHead,
        scores: Tensor,
        classes: Tensor,
        log_class: Tensor | None = None,
        equal: Equal | None = None,
    ) -> None:
        self.head, self.scores, self.classes = head, scores, classes
        self.log_class, self.equal = log_class, equal

    @cached_property
    def valid(self) -> Tensor | None:
        """(B, S) slots that name a sample."""
        return self.head.valid(self.classes)

    @cached_property
    def comparable(self) -> Tensor:
        """(B, S) whose softmax are the shares: -inf outside of the class that is looked at, joint if asked."""
        scores = self.scores.float()
        if self.valid is not None:  # within one class: P(class) would be a common factor
            scores = scores.masked_fill(~self.valid, -torch.inf)
        elif self.log_class is not None:
            scores = joint_scores(scores, self.head.index_map.labels, self.log_class)
        return scores if self.equal is None else share_equal_scores(scores, self.classes, self.equal)

    def finite(self) -> Tensor:
        """Scores of all slots that name a sample."""
        fine = torch.isfinite(self.scores)
        return (fine if self.valid is None else fine | ~self.valid).all(1)

    def best(self, k: int) -> Ranked:
        """Of equal scores the lower slot first, whatever k is."""
        scores, equal = self.comparable, self.equal
        count, slots = min(k, scores.shape[1]), scores.shape[1]
        some = TopK(*scores.topk(min(count + MARGIN + (0 if equal is None else equal.most - 1), slots), dim=1))
        best = in_order(some.score, some.row, count)
        last = best.score[:, -1]
        cut = (some.score[:, -1] == last) & torch.isfinite(last)  # `topk` chose among equal ones as it liked
        if some.row.shape[1] < slots and bool(cut.any()):
            ranks = ranks_of(scores[cut], torch.arange(slots, device=scores.device))
            best.row[cut] = rows_of(ranks.topk(count, 1).values)
        real = torch.isfinite(best.score)
        index = self.head.to_index(best.row.where(real, best.row[:, :1]), self.classes).where(real, -1)
        return Ranked(index, (best.score - scores.logsumexp(1, keepdim=True)).clamp(max=0.0))

    def of(self, index: Tensor) -> Tensor:
        """From the slots of the samples."""
        scores = self.comparable
        logs = scores.gather(1, self.head.to_slot(index)) - scores.logsumexp(1, keepdim=True)
        return _within(self.head, logs, index, self.classes, -torch.inf)

    def ranking(self, index: Tensor) -> Tensor:
        """The scores as they are."""
        return _within(self.head, self.scores.float()[:, self.head.to_slot(index)], index, self.classes, torch.nan)

    def by_class(self) -> Tensor:
        """A product with the classes of the slots."""
        return class_sums(self.scores.float(), self.head.members())

    def entropy(self) -> Tensor:
        """Over the slots that name a sample."""
        log_share = torch.log_softmax(self.comparable, 1)
        found = -(log_share.exp() * log_share.clamp(min=-1e4)).sum(1)
        count = torch.full_like(found, self.scores.shape[1]) if self.valid is None else self.valid.sum(1)
        return _of_largest(found, count)

    def spread(self) -> Spread:
        """Of the slots that name a sample."""
        return spread_of(self.comparable)

    def match(self) -> Match:
        """The largest score, and by how much it leads."""
        best = self.comparable.topk(min(1 + NEXT, self.comparable.shape[1]), 1).values.double()
        return Match(best[:, 0], best[:, 0] - _mean_of_next(best, best[:, 0]))

    def mass(self, groups: Tensor, count: int, asked: Tensor) -> Mass:
        """Of all slots."""
        slots = torch.arange(self.scores.shape[1], device=self.scores.device).expand_as(self.scores)
        if self.valid is None:
            index = self.head.to_index(slots, self.classes)
        else:
            index = self.head.to_index(slots.where(self.valid, 0), self.classes).where(self.valid, -1)
        return mass_of(index, self.comparable.softmax(1), groups, count, asked)


@final
class KeyScores(Scores):
    """Cosines of features (B, D) with keys, times the head's scale, in pieces of the keys: no (B, N) memory.

    With `log_class` (B, C) shares are joint, unless the head looks within one class. Equal samples have equal keys.
    """

    def __init__(self, head: ExemplarHead, features: Tensor, classes: Tensor, log_class: Tensor | None = None) -> None:
        self.head, self.features, self.classes, self.log_class = head, features, classes, log_class

    def finite(self) -> Tensor:
        """Features; keys are looked at while they are scanned."""
        return torch.isfinite(self.features).all(1)

    def best(self, k: int) -> Ranked:
        """As the head finds them."""
        return self.head.best(self.features, self.classes, k, self.log_class)

    def of(self, index: Tensor) -> Tensor:
        """One pass over all keys for what they are shares of."""
        head, totals = self.head, self.by_class()
        if head.conditional:
            whole = totals.gather(1, self.classes.unsqueeze(1))
        elif self.log_class is not None:
            whole = (totals - self.log_class).gather(1, head.index_map.labels[index])
        else:
            whole = totals.logsumexp(1, keepdim=True)
        keys = head.bank.unpacked(head.rows[index])  # (B, L, D)
        logs = head.scale * (keys @ unit(self.features).unsqueeze(2)).squeeze(2) - whole
        return _within(head, logs, index, self.classes, -torch.inf)

    def ranking(self, index: Tensor) -> Tensor:
        """Cosines."""
        cosines = unit(self.features) @ self.head.bank.unpacked(self.head.rows[index]).t()
        return _within(self.head, cosines, index, self.classes, torch.nan)

    def by_class(self) -> Tensor:
        """One pass over all keys."""
        return self.head.class_totals(self.features)

    @torch.no_grad()
    def entropy(self) -> Tensor:
        """Over the keys that are looked at."""
        head, queries = self.head, unit(self.features)
        entropy, count = queries.new_zeros(len(queries)), queries.new_zeros(len(queries))
        for rows, start, end in self._groups():
            entropy[rows] = _entropy_over(queries[rows], head, start, end)
            count[rows] = end - start
        return _of_largest(entropy, count)

    @torch.no_grad()
    def spread(self) -> Spread:
        """One pass over the keys, which keeps the largest score so far apart."""
        queries, scale = unit(self.features), self.head.scale
        top = queries.new_full((len(queries),), -1.01 * float(scale))  # below every score
        total, drop = (queries.new_zeros(len(queries), dtype=torch.float64) for _ in range(2))
        for rows, keys in self._scan():
            scores = scale * (queries[rows] @ keys.t())
            highest = torch.maximum(top[rows], scores.amax(1))
            rise = (highest - top[rows]).double()
            kept = torch.exp(-rise)
            below = highest.unsqueeze(1) - scores
            weights = torch.exp(-below)
            drop[rows] = (drop[rows] + rise * total[rows]) * kept + (weights * below).sum(1, dtype=torch.float64)
            total[rows] = total[rows] * kept + weights.sum(1, dtype=torch.float64)
            top[rows] = highest
        return _spread(total.where(total > 0, torch.nan), drop)

    @torch.no_grad()
    def match(self) -> Match:
        """The largest cosine, and how much nearer its key is than the next."""
        head, queries = self.head, unit(self.features)
        if head.conditional:
            found = top_k_within(queries, head.bank, head.starts, head.index_map.sizes, self.classes, 1 + NEXT)
        else:
            found = top_k(queries, head.bank, min(1 + NEXT, head.index_map.n))
        best = found.score.double().where(found.row >= 0, -torch.inf)
        nearest, others = (1 - best[:, 0]).clamp(min=CLOSEST), 1 - _mean_of_next(best, torch.zeros_like(best[:, 0]))
        there = torch.isfinite(best[:, 0])
        contrast = (others.clamp(min=CLOSEST) / nearest).log()
        return Match(best[:, 0].where(there, torch.nan), contrast.where(there, torch.nan))

    @torch.no_grad()
    def mass(self, groups: Tensor, count: int, asked: Tensor) -> Mass:
        """One pass over the keys for their sums, and one for their shares."""
        head, queries = self.head, unit(self.features)
        bias, labels = self._bias(), head.index_map.labels
        counts = asked & torch.isfinite(bias).any(1)
        by_group = torch.zeros(len(queries), count, dtype=torch.float64, device=queries.device)
        by_sample = torch.zeros(len(groups), dtype=torch.float64, device=queries.device)
        for start, keys in head.parts(len(queries)):
            index = head.order[start : start + len(keys)]
            shares = (head.scale * (queries @ keys.t()) + bias[:, labels[index]]).exp().double()
            by_group.index_add_(1, groups[index], shares)
            by_sample[index] = counts.double() @ shares
        return Mass(_whole(by_group), by_sample, counts)

    def _bias(self) -> Tensor:
        """(B, C) what turns the scores of a class into logs of shares; -inf where a class has no part."""
        totals = self.by_class().masked_fill(self.head.index_map.sizes == 0, -torch.inf)
        if self.head.conditional:
            chosen = torch.zeros_like(totals, dtype=torch.bool).scatter_(1, self.classes.unsqueeze(1), True)
            return (-totals).where(chosen & torch.isfinite(totals), -torch.inf)
        if self.log_class is not None:
            log_class = self.log_class.masked_fill(~torch.isfinite(totals), -torch.inf)
            bias = torch.log_softmax(log_class, 1) - totals
            return bias.where(torch.isfinite(totals), -torch.inf)
        return (-totals.logsumexp(1, keepdim=True)).expand_as(totals)

    def _groups(self) -> list[tuple[Tensor, int, int]]:
        """(rows of the batch, first and end of the keys that they are compared with): all, or a class at a time."""
        every = torch.arange(len(self.classes), device=self.classes.device)
        if not self.head.conditional:
            return [(every, 0, self.head.index_map.n)]
        edges = list(zip(self.head.starts.tolist(), self.head.index_map.sizes.tolist(), strict=True))
        present = sorted(set(self.classes.tolist()))
        return [(every[self.classes == each], edges[each][0], sum(edges[each])) for each in present]

    def _scan(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows of the batch, keys that they are compared with), in pieces."""
        for rows, start, end in self._groups():
            size = max(1, SCORES[self.classes.device.type] // max(len(rows), 1))
            part = self.head.bank.part(start, end)
            yield from ((rows, part.unpacked(some)) for some in pieces(len(part), size))


@dataclass(frozen=True)
class Equal:
    """Which slots of an output layer stand for equal samples.

    Attributes:
        slots: (R, D) int64; -1 where a class has fewer.
        groups: (R, D) int64, the same number for equal samples.
        most: how many the largest group has.
    """

    slots: Tensor
    groups: Tensor
    most: int


def equal_slots(head: IndexHead, samples: SampleTable, *, joint: bool) -> Equal | None:
    """The slots of an output layer whose samples share their weight; None where there are none.

    Joint weights know the class from a branch of its own: there samples are equal only where their labels are, too.
    """
    device = head.index_map.labels.device
    within = head.valid(torch.zeros(1, dtype=torch.int64, device=device)) is not None
    numbers = samples.groups
    if within or joint:
        numbers = np.unique(numbers * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(numbers)
    members = np.flatnonzero(counts[numbers] > 1)
    if not len(members):
        return None
    slot = head.to_slot(torch.from_numpy(members).to(device)).cpu().numpy()
    row = samples.labels[members] if within else np.zeros_like(members)
    order = np.argsort(row, kind="stable")
    sizes = np.bincount(row, minlength=len(samples.class_names) if within else 1)
    place = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slots, groups = (np.full((len(sizes), int(sizes.max())), -1, dtype=np.int64) for _ in range(2))
    slots[row[order], place] = slot[order]
    groups[row[order], place] = np.unique(numbers[members], return_inverse=True)[1].reshape(-1)[order]
    return Equal(torch.from_numpy(slots).to(device), torch.from_numpy(groups).to(device), int(counts.max()))


def share_equal_scores(scores: Tensor, classes: Tensor, equal: Equal) -> Tensor:
    """Scores (B, S) whose softmax is the same, but that equal samples have the mean of theirs; a copy.

    >>> equal = Equal(torch.tensor([[0, 2]]), torch.tensor([[7, 7]]), 2)
    >>> share_equal_scores(torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log(), torch.tensor([0]), equal).exp()
    tensor([[0.3250, 0.2500, 0.3250, 0.1000]])
    """
    row = classes if len(equal.slots) > 1 else torch.zeros_like(classes)
    slots, groups = equal.slots[row], equal.groups[row]  # (B, D)
    there = slots >= 0
    means = group_means(scores.gather(1, slots.clamp(min=0)), groups)
    return scores.index_put((there.nonzero()[:, 0], slots[there]), means[there])


def group_means(scores: Tensor, groups: Tensor) -> Tensor:
    """(B, D) scores -> the logarithm of the mean of exp(score) over the same group of the row; -1 is a group, too.

    >>> group_means(torch.tensor([[1.0, 3.0, 5.0]]).log(), torch.tensor([[4, 4, 9]])).exp().round(decimals=3)
    tensor([[2., 2., 5.]])
    """
    place = groups - groups.min()
    wide = scores.new_zeros(len(scores), int(place.max()) + 1)
    top = torch.full_like(wide, -torch.inf).scatter_reduce_(1, place, scores, "amax")  # of each group: no underflow
    sums = wide.scatter_add(1, place, (scores - top.gather(1, place)).exp())
    count = wide.scatter_add(1, place, torch.ones_like(scores))
    return (top + (sums / count).log()).gather(1, place)


def joint_scores(scores: Tensor, labels: Tensor, log_class: Tensor) -> Tensor:
    """Scores (B, N) of samples with labels (N,) as logs of P(class) (B, C) times the share within the class.

    >>> log_class = torch.tensor([[0.25, 0.75]]).log()
    >>> joint_scores(torch.tensor([[0.0, 0.0, -500.0]]), torch.tensor([0, 0, 1]), log_class).exp()
    tensor([[0.1250, 0.1250, 0.7500]])
    """
    each = labels.expand_as(scores)
    top = torch.full_like(log_class, -torch.inf).scatter_reduce_(1, each, scores, "amax")  # of each class: no underflow
    within = scores - top[:, labels]
    sums = torch.zeros_like(log_class).scatter_add_(1, each, within.exp())
    return within + (log_class - sums.log())[:, labels]


def class_sums(scores: Tensor, members: Tensor) -> Tensor:
    """Logs of the sums of exp(score) (B, S) over the slots of each class, given their one-hot classes (S, C).

    >>> class_sums(torch.zeros(1, 3), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).exp()
    tensor([[2., 1.]])
    """
    top = scores.detach().amax(1, keepdim=True)
    with torch.autocast(scores.device.type, enabled=False):
        sums = (scores - top).exp() @ members
    return sums.clamp_min(torch.finfo(torch.float32).tiny).log() + top


def spread_of(scores: Tensor) -> Spread:
    """Spread of the softmax over (B, S) scores; -inf is no slot.

    >>> found = spread_of(torch.tensor([[0.0, 0.0, -torch.inf]]))
    >>> round(float(found.confidence), 3), round(float(found.entropy), 3)
    (0.5, 0.693)
    """
    below = scores.amax(1, keepdim=True) - scores
    weights = torch.exp(-below)
    below = below.masked_fill_(weights == 0, 0.0)
    total = weights.sum(1, dtype=torch.float64)
    return _spread(total, (weights * below).sum(1, dtype=torch.float64))


def mass_of(index: Tensor, weight: Tensor, groups: Tensor, count: int, asked: Tensor) -> Mass:
    """From (B, L) samples, -1 where there is none, and their weights; the rest as `Scores.mass`.

    >>> index, weight = torch.tensor([[2, 0, -1]]), torch.tensor([[0.5, 0.25, 0.0]])
    >>> mass_of(index, weight, torch.tensor([0, 0, 1]), 2, torch.tensor([True])).by_group.round(decimals=3).tolist()
    [[0.333, 0.667]]
    """
    there = index >= 0
    shares = _whole(weight.double().where(there, 0.0))
    index = index.clamp(min=0)
    counts = asked & there.any(1)
    by_group = torch.zeros(len(index), count, dtype=torch.float64, device=index.device)
    by_group.scatter_add_(1, groups[index], shares)
    by_sample = torch.zeros(len(groups), dtype=torch.float64, device=index.device)
    by_sample.index_add_(0, index.flatten(), (shares * counts.unsqueeze(1)).flatten())
    return Mass(by_group, by_sample, counts)


def _whole(shares: Tensor) -> Tensor:
    """Rows that add up to 1, but for rounding at most, or to 0."""
    total = shares.sum(1, keepdim=True)
    return shares / total.where(total > 0, 1.0)


def _within(head: IndexHead, values: Tensor, index: Tensor, classes: Tensor, otherwise: float) -> Tensor:
    """Values of samples, but of other classes, which were not looked at."""
    if head.valid(classes) is None:
        return values
    return values.masked_fill(head.index_map.labels[index] != classes.unsqueeze(1), otherwise)


def _of_largest(entropy: Tensor, count: Tensor) -> Tensor:
    """As a share of the entropy of so many equal weights; a class of one sample has entropy zero."""
    return (entropy / count.clamp(min=2).float().log()).clamp(0.0, 1.0)


def _entropy_over(queries: Tensor, head: ExemplarHead, start: int, end: int) -> Tensor:
    """(B,) entropy of the shares of the keys from `start` to `end`."""
    total, weighted = queries.new_zeros(len(queries)), queries.new_zeros(len(queries))
    scale, part = head.scale, head.bank.part(start, end)
    for rows in pieces(len(part), max(1, MANY_SCORES // max(len(queries), 1))):
        scores = scale * (queries @ part.unpacked(rows).t())
        weights = torch.exp(scores - scale)  # a cosine is at most 1: nothing overflows
        total += weights.sum(1)
        weighted += (weights * scores).sum(1)
    total = total.clamp_min(torch.finfo(torch.float32).tiny)
    return total.log() + scale - weighted / total


def _spread(total: Tensor, drop: Tensor) -> Spread:
    """From the sum of exp(score - top) and of that times (top - score)."""
    return Spread(1 / total, (total.log() + drop / total).clamp(min=0.0))


def _mean_of_next(best: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of all but the first of (B, K), -inf left out; `otherwise` where there is none."""
    real = torch.isfinite(best[:, 1:])
    count = real.sum(1)
    mean = best[:, 1:].masked_fill(~real, 0.0).sum(1) / count.clamp(min=1)
    return torch.where(count > 0, mean, otherwise)
