"""debug: which training samples are probably mislabelled, which are odd, which typical, which are there twice.

Works on the training samples of any run, with a plain or an exemplar head. Withheld samples are left out and counted.

Letters: N samples, K neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.answers.evaluation import trained_rows
from provnet.base.batches import at_once, pieces
from provnet.base.errors import UsageError
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import ImageData
from provnet.data.modalities.decode import are_pictures
from provnet.data.modalities.text import is_text, overlap
from provnet.models.text import TextEncoder
from provnet.runs.data import in_terms_of
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable
from provnet.tools.debug.assess import Assessment, assess
from provnet.tools.debug.kinds import SURE as BAD_FOR_SURE
from provnet.tools.debug.kinds import bad_pictures, kinds_of
from provnet.tools.debug.mirrored import mirrored_pairs
from provnet.tools.debug.mislabels import Anomalies, Mislabels, anomalies, mislabels
from provnet.tools.debug.one_picture import groups_of, of_one_picture
from provnet.tools.debug.signals import NEIGHBOURS, Neighbours, Signals, nearest_others, sample_signals

CANDIDATES = 5  # nearest samples that may be copies, by features and by coarse pixels
FARTHEST = 0.12  # distance of blurred pictures at length one; noise of .1 on digits stays below
CLOSE = 0.36  # of the usual distance between a sample and the third nearest: found on planted copies
BY_CHANCE = 1.0  # pairs of different pictures, among all samples, that may be as close as a copy
SHARED = 0.7  # of the shingles of two texts, which then are nearly one
FEWEST = 20  # samples from which fixed features are judged out of fold
COARSE, FINE = 16, 32  # sides of the pictures that are searched and compared
SMALLEST = 3  # side of a picture that can be blurred; less is as good as a vector
PAIRS, PICTURES = 2048, 4096  # at a time, where pictures are small


@dataclass(frozen=True, eq=False)
class Duplicates:
    """One row a sample.

    Attributes:
        group: (N,) int64, samples of one picture share a number, counted from 0; -1 where there is no other.
        exact: (N,) bool, whether another sample has exactly the same pixels.
        conflict: (N,) bool, whether a sample of its group carries another label.
        certain: (N,) bool, whether a sample with exactly the same pixels carries another label.
        mirrored: (N,) bool, whether another sample is its mirror image.
    """

    group: np.ndarray
    exact: np.ndarray
    conflict: np.ndarray
    certain: np.ndarray
    mirrored: np.ndarray

    def members(self, group: int) -> np.ndarray:
        """The rows of a group."""
        return np.flatnonzero(self.group == group)


def duplicates(
    samples: SampleTable, images: Any, near: Neighbours, *, device: torch.device | str = "cpu"
) -> Duplicates:
    """Group samples (N) by equal pixels and by nearly equal pictures (N, C, H, W); vectors (N, F) by equality alone.

    `device` is where pictures are compared.

    >>> import provnet
    >>> from provnet.tools.debug.signals import nearest_others
    >>> pixels = provnet.open_data("embedded").images[[0, 1, 2, 1]]
    >>> data = provnet.open_data(pixels, [5, 0, 4, 0])
    >>> near = nearest_others(F.normalize(data.images.flatten(1).float(), dim=1), k=3)
    >>> duplicates(data.samples, data.images, near).group.tolist()
    [-1, 0, -1, 0]
    """
    n = len(samples)
    exact_group = samples.groups
    sizes = np.bincount(exact_group, minlength=1)
    exact = sizes[exact_group] > 1
    pairs = [_chained(exact_group)]
    if are_pictures(images, SMALLEST):
        pairs.append(_near_pairs(samples, images, near, torch.device(device)))
    elif is_text(images):
        pairs.append(_near_texts(images, near))
    turned = mirrored_pairs(images) if isinstance(images, Tensor) else pairs[0][:0]
    mirrored = np.isin(np.arange(n), turned)
    pairs.append(turned)
    group = _joined(n, np.concatenate(pairs))
    certain = _conflicts(np.where(exact, exact_group, -1), samples.labels)
    return Duplicates(group, exact, _conflicts(group, samples.labels), certain, mirrored)


def _chained(groups: np.ndarray) -> np.ndarray:
    """(P, 2) pairs that connect the members of each group."""
    order = np.argsort(groups, kind="stable")
    same = groups[order[1:]] == groups[order[:-1]]
    return np.stack([order[:-1][same], order[1:][same]], 1)


def _near_pairs(samples: SampleTable, images: Any, near: Neighbours, device: torch.device) -> np.ndarray:
    """(P, 2) pairs of samples whose pictures are far closer than usual, each with the one around which its group is."""
    size = at_once(images.shape[1:], device.type, PICTURES)
    coarse = torch.cat([_small(part.to(device), COARSE) for part in torch.split(images, size)])
    searched = (_unit(coarse).flatten(1), _lifted(coarse.flatten(1)))
    to = np.concatenate(
        [near.row[:, :CANDIDATES], *(nearest_others(each, CANDIDATES).row for each in searched)], 1
    )  # (N, K)
    n, k = to.shape
    rows, ends, real = np.repeat(np.arange(n), k), np.maximum(to.reshape(-1), 0), to.reshape(-1) >= 0
    if not real.any():
        return np.empty((0, 2), dtype=np.int64)
    once, which = np.unique(np.minimum(rows, ends)[real] * n + np.maximum(rows, ends)[real], return_inverse=True)
    found = np.full((2, n * k), np.inf)
    found[:, real] = _distance(images, once // n, once % n, device)[:, which]
    nearest = [_nearest(each.reshape(n, k), to) for each in found]
    usual = np.stack([_usual(each[:, -1], samples.labels) for each in nearest])
    limit = _by_chance(nearest[1])

    def close(one: np.ndarray, other: np.ndarray, distance: np.ndarray) -> np.ndarray:
        # the closer class of the two decides: a one that is labelled five has many ones around it
        shape, pixels = distance / np.maximum(np.minimum(usual[:, one], usual[:, other]), 1e-12)
        return np.asarray((distance[0] < FARTHEST) & (shape < CLOSE) & ((shape + pixels) / 2 < limit))

    chosen = close(rows, ends, found)
    first = np.unique(samples.groups, return_index=True)[1][samples.groups]  # equal pictures are one
    return _around_one(
        np.stack([first[rows[chosen]], first[ends[chosen]]], 1),
        lambda one, other: close(one, other, _distance(images, one, other, device)),
    )


def _near_texts(texts: Tensor, near: Neighbours) -> np.ndarray:
    """(P, 2) pairs of texts that have most of their shingles in common."""
    rows, ends = np.repeat(np.arange(len(texts)), CANDIDATES), near.row[:, :CANDIDATES]
    rows, ends = rows.reshape(len(texts), -1)[:, : ends.shape[1]].ravel(), ends.ravel()
    alike = (ends > rows) & (near.cosine[:, :CANDIDATES].ravel() > SHARED / 2)
    rows, ends = rows[alike], ends[alike]
    common = overlap(texts[torch.from_numpy(rows)], texts[torch.from_numpy(ends)])
    return np.stack([rows, ends], 1)[common >= SHARED]


def _around_one(pairs: np.ndarray, close: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """(P, 2) of pairs (P, 2) those, and their neighbours' neighbours, that are close to one sample in the middle.

    Joining whatever is connected would make chains, in which each is close to the next and the ends are different.
    """
    links: dict[int, set[int]] = {}
    for one, other in pairs[pairs[:, 0] != pairs[:, 1]].tolist():
        links.setdefault(one, set()).add(other)
        links.setdefault(other, set()).add(one)
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for middle in sorted(links, key=lambda row: (-len(links[row]), row)):
        if middle in taken:
            continue
        members = links[middle] - taken
        asked = sorted(set().union(*(links[row] for row in links[middle])) - links[middle] - taken - {middle})
        if asked:
            right = close(np.full(len(asked), middle), np.array(asked))
            members |= {row for row, is_close in zip(asked, right.tolist(), strict=True) if is_close}
        taken |= members | ({middle} if members else set())
        found += [(middle, row) for row in sorted(members)]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _nearest(distance: np.ndarray, to: np.ndarray) -> np.ndarray:
    """(N, 3) distance of the nearest of the candidates (N, K), each counted once; the third as one or two may be
    copies. Where there are fewer, the first stands for them.
    """
    order = np.argsort(to, axis=1, kind="stable")
    sorted_to = np.take_along_axis(to, order, 1)
    again = np.zeros(to.shape, dtype=np.bool_)
    np.put_along_axis(again, order[:, 1:], sorted_to[:, 1:] == sorted_to[:, :-1], 1)
    once = np.sort(np.where(again, np.inf, distance), axis=1)[:, :3]
    return np.where(np.isfinite(once), once, once[:, :1])


def _by_chance(nearest: np.ndarray) -> float:
    """The share of the distance (N, 3) of the third nearest within which `BY_CHANCE` pairs are expected by chance.

    In d dimensions a sample has 3 t**d others within the share t of its third nearest. Digits vary in some nine ways,
    and nothing is at a third of the usual distance by chance; squares in two greys vary in five, and some are. The
    ratio of the third and the second tells d: its log is exponential, with a median of log(2) / 2d.

    >>> chance = np.random.default_rng(0)
    >>> away = {d: chance.random((500, 500)) ** (1 / d) for d in (4, 10)}
    >>> [round(_by_chance(np.sort(each)[:, :3]), 1) for each in away.values()]
    [0.2, 0.5]
    """
    second, third = nearest[nearest[:, 1] > 0, 1], nearest[nearest[:, 1] > 0, -1]
    spread = float(np.median(np.log(third / second))) if len(second) else 0.0
    return float((BY_CHANCE / (1.5 * max(len(nearest), 2))) ** (2 * spread / np.log(2)))


def _usual(distance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) the median of the class; of all where a class is too small to tell."""
    found = np.full(len(labels), float(np.median(distance)))
    for each in np.unique(labels):
        mine = labels == each
        if mine.sum() >= 10:
            found[mine] = float(np.median(distance[mine]))
    return found


def _distance(images: Tensor, one: np.ndarray, other: np.ndarray, device: torch.device) -> np.ndarray:
    """(2, P) distance of shapes, at length one, and of pixels as they are; of blurred pictures, the other moved by up
    to a pixel to where it fits best.
    """
    found, size = [], at_once(images.shape[1:], device.type, PAIRS)
    for some in pieces(len(one), size):
        left, right = (_small(images[torch.from_numpy(rows[some])].to(device), FINE) for rows in (one, other))
        (left, left_mean, left_length), (right, right_mean, right_length) = _apart(left), _apart(right)
        moved = [torch.roll(right, (dy, dx), (2, 3)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        cosine = torch.stack([(left * each).flatten(1).sum(1) for each in moved]).amax(0).double()
        shape = (2 - 2 * cosine).clamp_min(0)
        contrast = (left_length - right_length) ** 2 + left_length * right_length * shape
        pixels = contrast / left[0].numel() + (left_mean - right_mean) ** 2
        found.append(torch.stack([shape, pixels]).sqrt().cpu().numpy())
    return np.concatenate(found, 1)


def _lifted(values: Tensor) -> Tensor:
    """(N, D) -> (N, D + 1) at length one, of which the largest cosines are, nearly, the smallest distances."""
    values = values - values.mean(0)
    return F.normalize(F.pad(values, (0, 1), value=float(values.norm(dim=1).max().clamp_min(1e-6))), dim=1)


def _small(images: Tensor, side: int) -> Tensor:
    """Blurred, and no larger than `side`."""
    values = images.float()
    blurred = F.avg_pool2d(values, 3, stride=1, padding=1)
    height, width = (min(side, have) for have in values.shape[2:])
    return F.adaptive_avg_pool2d(blurred, (height, width))


def _unit(values: Tensor) -> Tensor:
    """The same shape, without mean, at length one; a picture of one colour is zero."""
    return _apart(values)[0]


def _apart(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, ...) -> the same without mean and at length one, and (B,) the mean and the length."""
    flat = values.flatten(1)
    mean = flat.mean(1, keepdim=True)
    flat = flat - mean
    return F.normalize(flat, dim=1).view_as(values), mean[:, 0].double(), flat.double().norm(dim=1)


def _joined(n: int, pairs: np.ndarray) -> np.ndarray:
    """(N,) number of the connected group, -1 for samples of no pair."""
    parent = np.arange(n)

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for a, b in pairs.tolist():
        one, other = sorted((root(a), root(b)))
        parent[other] = one
    roots = np.array([root(i) for i in range(n)], dtype=np.int64)
    counts = np.bincount(roots, minlength=n)
    group = np.full(n, -1, dtype=np.int64)
    grouped = counts[roots] > 1
    if grouped.any():
        _, group[grouped] = np.unique(roots[grouped], return_inverse=True)
    return group


def _conflicts(group: np.ndarray, labels: np.ndarray) -> np.ndarray:
    conflict = np.zeros(len(group), dtype=np.bool_)
    grouped = np.flatnonzero(group >= 0)
    if len(grouped):
        count = int(group.max()) + 1
        least, most = np.full(count, labels.max() + 1), np.full(count, -1)
        np.minimum.at(least, group[grouped], labels[grouped])
        np.maximum.at(most, group[grouped], labels[grouped])
        conflict[grouped] = (least != most)[group[grouped]]
    return conflict


FLAGGED = 0.5  # a label that is more probably wrong than right
SURE = 0.5  # share of the other votes that a suggestion needs
CERTAINTY = 0.9  # probability that a suggestion needs to be written into a corrected manifest
CAUTION = 0.3  # of the doubt that is allowed to each suggestion, on the average
NOT_FOREIGN = 0.02  # probability of being of no class up to which a label is corrected
MISFIT = 0.2  # relative error of a sum of probabilities (docs/debugging.md, Weak features)
RIGHT = 0.9  # probability from which a label of one picture is taken for all samples of it
DROP = -1  # in place of a label: none of those that the picture has is known to be right


def certain(sure: np.ndarray, foreign: np.ndarray, certainty: float) -> np.ndarray:
    """Rows whose suggestion is right with this probability each, and more so on the average; most certain first.

    Probabilities close to one are a little too high: three tenths of the doubt that is allowed to each are allowed on
    the average. Of what may be of no class (`foreign`, (N,)) no class is right.

    >>> certain(np.array([0.99, 0.5, 0.98, 0.99]), np.array([0.0, 0.0, 0.0, 0.1]), 0.9).tolist()
    [0, 2]
    """
    sure = np.where(foreign < NOT_FOREIGN, sure, 0.0)
    order = np.argsort(-sure, kind="stable")
    average = np.cumsum(sure[order]) / np.arange(1, len(order) + 1)
    return order[(average >= 1 - CAUTION * (1 - certainty)) & (sure[order] >= certainty)]


@dataclass(frozen=True, eq=False)
class Debugging:
    """What was found, one row a sample; rows are in the order of `samples`.

    Attributes:
        samples: the samples that were looked at.
        index: (N,) int64, which training sample each is.
        mislabels, anomalies, duplicates, near: the findings, see their modules.
        signals: what they were made of.
        bad: (N,) bool, pictures that show nothing: of one colour, or without detail.
        withheld: samples of the run that are withheld and were left out.
        assessment: what fixed features say, for runs that did not learn theirs; else None.
    """

    samples: SampleTable
    index: np.ndarray
    mislabels: Mislabels
    anomalies: Anomalies
    duplicates: Duplicates
    near: Neighbours
    signals: Signals
    bad: np.ndarray
    withheld: int = 0
    assessment: Assessment | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        """One line: arrays would fill a page."""
        flagged, copies = (int(which.sum()) for which in (self.flagged(), self.duplicates.group >= 0))
        known = "" if self.expected is not None else ", cannot tell how many are wrong"
        return f"Debugging({len(self):,} samples, {flagged:,} labels flagged{known}, {copies:,} with duplicates)"

    def flagged(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) bool: labels whose probability of being wrong reaches the threshold.

        Where one picture has several labels at least one is wrong: there `FLAGGED` is enough, whatever the threshold.
        """
        return np.asarray(
            self.mislabels.score >= np.where(self.duplicates.conflict, min(threshold, FLAGGED), threshold)
        )

    def suggested(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) int64: the suggested class of flagged samples, the given label of all others.

        Where it cannot tell, and where no label of a picture is known to be right, there is no suggestion.
        """
        if self.mislabels.cannot_tell:
            return self.samples.labels.copy()
        there_is = self.flagged(threshold) & (self.advised(threshold) != DROP)
        return np.where(there_is, self.mislabels.suggested, self.samples.labels)

    def advised(self, threshold: float = FLAGGED, certainty: float = 0.0) -> np.ndarray:
        """(N,) int64: the label that each sample should have, or `DROP`.

        That is the suggested class of a flagged sample, if most of the votes for other labels than its own are for it
        and it is right with a probability of `certainty`.
        Of one picture under several labels it is the one label that is probably right; where there is none, no sample
        of the picture should be used with the label that it has.

        Where it cannot tell, flags are guesses, and nothing is relabelled. What is known without them remains: of one
        picture under several labels at least one label is wrong.
        """
        if self.mislabels.cannot_tell:
            return np.where(self.duplicates.conflict, DROP, self.samples.labels)
        sure = self.flagged(threshold) & (self.mislabels.agreement >= SURE) & self._certain(certainty)
        found = np.where(sure, self.mislabels.suggested, self.samples.labels)
        conflict = self.duplicates.conflict
        for rows in groups_of(np.where(conflict, self.duplicates.group, -1)):
            best = rows[self.mislabels.score[rows].argmin()]
            right = 1 - self.mislabels.score[best] >= RIGHT
            found[rows] = self.samples.labels[best] if right else DROP
        return np.asarray(found)

    def _certain(self, certainty: float) -> np.ndarray:
        """(N,) bool: suggestions that are certain; all where no certainty is asked for."""
        found = np.full(len(self), certainty <= 0)
        if certainty > 0:
            found[certain(self.mislabels.certainty, self._foreign, certainty)] = True
        return found

    @property
    def _foreign(self) -> np.ndarray:
        """(N,) probability that a sample is of no class, where that is known."""
        return self.anomalies.score if self.assessment is not None else np.where(self.bad, self.anomalies.score, 0.0)

    def kinds(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) what is wrong with each sample, in the words of `kinds.KINDS`; "" for nothing."""
        none = np.zeros(len(self), dtype=np.bool_)
        ambiguous = none if self.assessment is None or self.mislabels.cannot_tell else self.assessment.ambiguous
        twice = self.duplicates.group >= 0
        scores = self.mislabels.score, self.anomalies.score
        return kinds_of(*scores, self.bad, self.duplicates.conflict, twice, ambiguous, threshold)

    @property
    def certainly_wrong(self) -> int:
        """The least number of wrong labels: samples of equal pixels under other labels than most of them have."""
        found = 0
        for rows in groups_of(np.where(self.duplicates.certain, self.samples.groups, -1)):
            found += len(rows) - int(np.bincount(self.samples.labels[rows]).max())
        return found

    @property
    def most_wrong(self) -> int:
        """About how many labels are wrong at most: those that are not predicted unless they are memorised."""
        return max(math.ceil(len(self) * (1 - self.mislabels.predicted)), self.certainly_wrong)

    @property
    def expected(self) -> float | None:
        """How many labels are probably wrong; None where that cannot be told.

        It is the sum of all probabilities, or what fixed features say.
        """
        if self.mislabels.cannot_tell:
            return None
        number = self.mislabels.number
        return float(self.mislabels.score.sum()) if number is None else max(number[0], float(self.certainly_wrong))

    @property
    def expected_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the expected number; None where it cannot be told.

        A network that learned its features may have memorised wrong labels: there only the largest number limits it.
        """
        if self.expected is None:
            return None
        least, most = float(self.certainly_wrong), float(self.most_wrong)
        if self.mislabels.number is None:
            p = self.mislabels.score
            low = self.expected - 1.96 * math.sqrt(float((p * (1 - p)).sum()) + (MISFIT * self.expected) ** 2)
            return max(low, least), max(most, self.expected)
        _, low, high = self.mislabels.number
        return max(low, least), max(high, least)

    def suspects(self, threshold: float = FLAGGED) -> np.ndarray:
        """Rows of the flagged samples, the most suspicious first."""
        rows = self.ranking()
        flagged: np.ndarray = rows[self.flagged(threshold)[rows]]
        return flagged

    def ranking(self) -> np.ndarray:
        """Rows of all samples, the most suspicious first: the order can be right where probabilities are too low.

        Flagged samples whose picture has several labels come before all others, those of one picture together, equal
        pictures before nearly equal ones.
        """
        first = self.duplicates.conflict & (self.mislabels.score >= FLAGGED)
        group = np.where(first, self.duplicates.group, 0)
        return np.lexsort((-self.mislabels.odds, group, ~(first & self.duplicates.certain), ~first))

    def witnesses(self, row: int, k: int = 5) -> list[tuple[int, float]]:
        """Rows of the nearest trusted samples that carry the suggested label, and each one's share of all votes.

        Copies of the picture itself are no evidence and have no vote here.
        """
        near, group = self.near.row[row], self.duplicates.group
        real = (near >= 0) & ((group[row] < 0) | (group[np.maximum(near, 0)] != group[row]))
        trust = 1 - self.mislabels.score[np.maximum(near, 0)]
        weight = np.where(real, self.near.weight[row] * trust, 0.0)
        says = real & (self.samples.labels[np.maximum(near, 0)] == self.mislabels.suggested[row])
        best = np.argsort(-np.where(says, weight, -1.0), kind="stable")[:k]
        total = max(float(weight.sum()), 1e-12)
        return [(int(near[i]), float(weight[i]) / total) for i in best if says[i]]

    def columns(self, threshold: float = FLAGGED) -> Mapping[str, np.ndarray | list[str]]:
        """All findings as named columns of equal length, for CSV and data frames."""
        names = np.array(self.samples.class_names, dtype=object)
        group = self.duplicates.group
        return {
            "index": self.index,
            "sample_id": list(self.samples.sample_ids),
            "sha256": [self.samples.hex(i) for i in range(len(self))],
            "label": list(names[self.samples.labels]),
            "suggested_label": list(names[self.suggested(threshold)]),
            "mislabel": self.mislabels.score,
            "anomaly": self.anomalies.score,
            "typicality": self.anomalies.typicality,
            "duplicate_group": [str(number) if number >= 0 else "" for number in group.tolist()],
            "exact_duplicate": self.duplicates.exact.astype(np.int64),
            "conflict": self.duplicates.conflict.astype(np.int64),
            "best_other_label": list(names[self.mislabels.suggested]),
            "agreement": self.mislabels.agreement,
            "certainty": self.mislabels.certainty,
            "kind": list(self.kinds(threshold)),
            "from_prior": np.full(len(self), self.mislabels.base),
            **{f"from_{name}": part for name, part in self.mislabels.contributions.items()},
            "index_entropy": self.signals.entropy,
        }


def share_flagged(flagged: int, n: int, cannot_tell: str) -> Interval:
    """The share of labels that are flagged; without an interval where it says nothing about how many are wrong.

    >>> share_flagged(0, 100, "").high < 0.04, share_flagged(0, 100, "the features are weak").high
    (True, None)
    """
    return replace(wilson(flagged, n), low=None, high=None, why=cannot_tell) if cannot_tell else wilson(flagged, n)


def debug(
    run: Run | Fitted, data: ImageData | None = None, *, index: np.ndarray | None = None, progress: bool = False
) -> Debugging:
    """Look at a run's training samples; `data` holds their pictures, None means the run's own, opened again.

    `index` says which training sample each row of `data` is, where some are missing; None finds them by their hashes.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(np.arange(60))
    >>> found = debug(fit(data, config=train_config(epochs=2)))
    >>> found.mislabels.score.shape, bool((found.anomalies.typicality <= 1).all())
    ((60,), True)
    """
    run = run_of(run)
    data = run.data(progress=progress) if data is None else data
    own = trained_rows(run, data, index)
    data = in_terms_of(run.config, data)
    withheld = int(run.samples.withheld.sum())
    active = np.flatnonzero(~run.samples.withheld[own])
    if len(active) < len(own):
        own, data = own[active], data.select(active)
    if len(own) == 0:
        raise UsageError("there are no samples to look at: all are withheld or missing")
    samples = run.samples.select(own)
    labels = samples.labels
    signals = sample_signals(run, data.inputs, labels, own, progress=progress)
    near = nearest_others(signals.features, NEIGHBOURS, progress=progress)
    branch = run.network.task_head is not None
    twice = duplicates(samples, data.inputs, near, device=signals.features.device)
    classes = len(samples.class_names)
    fixed = run.network.fixed_features and not _finetuned(run) and classes > 1 and len(own) >= FEWEST
    found = assess(signals.raw, labels, classes) if fixed else None
    if isinstance(run.network.backbone, TextEncoder) and isinstance(data.inputs, Tensor) and classes > 1:
        found = assess(signals.features, labels, classes, grams=run.network.backbone.sparse(data.inputs))
    if found is None:
        wrong = mislabels(labels, signals.logits, near, signals.course, class_branch=branch)
    else:
        wrong = found.as_mislabels()
    wrong = of_one_picture(wrong, labels, twice.group)
    bad = bad_pictures(data.inputs)
    odd = anomalies(labels, signals, near, wrong.score)
    score = odd.score if found is None else found.foreign
    return Debugging(
        samples=samples,
        index=own,
        mislabels=wrong,
        anomalies=replace(odd, score=np.where(bad, np.maximum(score, BAD_FOR_SURE), score)),
        duplicates=twice,
        near=near,
        signals=signals,
        bad=bad,
        withheld=withheld,
        assessment=found,
    )


def _finetuned(run: Run) -> bool:
    """Whether a pretrained backbone was trained on; read again, its weights are as fixed as those of any other."""
    settings = run.config.training.get("training")
    return isinstance(settings, Mapping) and bool(settings.get("finetune"))
