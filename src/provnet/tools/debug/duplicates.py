"""Which samples are there twice: equal pixels, nearly equal pictures, and photographs of which one is the mirror image.

Letters: N samples, K neighbours, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import at_once, pieces
from provnet.data.modalities.decode import are_pictures
from provnet.data.modalities.text import is_text, overlap
from provnet.samples.identity import SampleTable
from provnet.tools.debug.signals import Neighbours, nearest_others

CANDIDATES = 5  # nearest samples that may be copies, by features and by coarse pixels
FARTHEST = 0.12  # distance of blurred pictures at length one; noise of .1 on digits stays below
CLOSE = 0.36  # of the usual distance between a sample and the third nearest: found on planted copies
BY_CHANCE = 1.0  # pairs of different pictures, among all samples, that may be as close as a copy
SHARED = 0.7  # of the shingles of two texts, which then are nearly one
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


LEAST = 48  # pixels of the shorter side; smaller pictures are drawings, or tell too little
SEARCHED, COMPARED = 8, 32  # sides of the pictures that are searched and compared
SAME, SYMMETRIC = 0.99, 0.98  # correlations: of a picture with a mirrored one, and of one with its own mirror image
GREY_LEVELS = 6.0  # grey levels by which they may differ, on average
PART = 2048  # samples that are compared with all others at a time


def mirrored_pairs(images: Tensor) -> np.ndarray:
    """(P, 2) rows of pictures (N, C, H, W) of bytes of which one is the mirror image of the other.

    >>> pictures = torch.randint(0, 256, (3, 3, 8, 8)).repeat_interleave(8, 2).repeat_interleave(8, 3).byte()
    >>> mirrored_pairs(torch.cat([pictures, pictures[1:2].flip(3)])).tolist()
    [[1, 3]]
    """
    if images.dtype != torch.uint8 or not are_pictures(images, LEAST) or len(images) < 2:
        return np.empty((0, 2), dtype=np.int64)
    coarse, turned = _reduced(images, SEARCHED), _reduced(images, SEARCHED, turned=True)
    flat, found = _unit(coarse.flatten(1)), list[Tensor]()
    for rows in pieces(len(images), PART):
        likeness = _unit(turned[rows].flatten(1)) @ flat.T
        value, row = likeness.topk(min(3, len(images)), dim=1)
        one = torch.arange(len(images))[rows][:, None].expand_as(row)
        chosen = (value > SYMMETRIC) & (row > one)
        found.append(torch.stack([one[chosen], row[chosen]], 1))
    pairs = torch.cat(found)
    kept = [pairs[part][_same(images, pairs[part])] for part in pieces(len(pairs), PART)]
    return np.asarray(torch.cat(kept).numpy()) if kept else np.empty((0, 2), dtype=np.int64)


def _same(images: Tensor, pairs: Tensor) -> Tensor:
    """(P,) bool, whether pairs of rows are mirror images, looked at closely."""
    one, other = (_reduced(images[pairs[:, side]], COMPARED) for side in (0, 1))
    turned = one.flip(3)
    agrees = (_unit(turned.flatten(1)) * _unit(other.flatten(1))).sum(1)
    own = (_unit(one.flatten(1)) * _unit(turned.flatten(1))).sum(1)
    difference = (turned - other).abs().flatten(1).mean(1)
    return (agrees > SAME) & (own < SYMMETRIC) & (difference < GREY_LEVELS)


def _reduced(images: Tensor, side: int, *, turned: bool = False) -> Tensor:
    parts = [F.adaptive_avg_pool2d(images[rows].float(), side) for rows in pieces(len(images), PART)]
    whole = torch.cat(parts)
    return whole.flip(3) if turned else whole
