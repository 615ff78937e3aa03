"""Groups of equal and nearly equal pictures, and conflicts: the same picture under different labels.

Exact duplicates are told by the hash of the decoded picture. Near ones (re-encoded, noisy, shifted by a pixel) are
looked for among the few samples most like each one, by the network's features and by coarse pixels, and confirmed by
their pixels: blurred and shifted to fit, they must be far closer than the third nearest sample usually is. Vectors are
grouped only where they are equal: rows of a table are close by chance, in units that nobody compares.

Letters: N samples, K candidates, P pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.applications.neighbours import Neighbours, others
from provnet.chunks import at_once
from provnet.data.identity import SampleTable

CANDIDATES = 5  # nearest samples that may be copies, by features and by coarse pixels
FARTHEST = 0.12  # distance of blurred pictures at length one; noise of .1 on digits stays below
CLOSE = 0.36  # of the usual distance between a sample and the third nearest: found on planted copies
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
    """

    group: np.ndarray
    exact: np.ndarray
    conflict: np.ndarray

    def members(self, group: int) -> np.ndarray:
        """The rows of a group."""
        return np.flatnonzero(self.group == group)


def duplicates(
    samples: SampleTable, images: Tensor, near: Neighbours, *, device: torch.device | str = "cpu"
) -> Duplicates:
    """Group samples (N) by equal pixels and by nearly equal pictures (N, C, H, W); vectors (N, F) by equality alone.

    `device` is where pictures are compared.

    >>> import provnet
    >>> from provnet.applications.neighbours import others
    >>> pixels = provnet.open_data("embedded").images[[0, 1, 2, 1]]
    >>> data = provnet.open_data(pixels, [5, 0, 4, 0])
    >>> near = others(F.normalize(data.images.flatten(1).float(), dim=1), k=3)
    >>> duplicates(data.samples, data.images, near).group.tolist()
    [-1, 0, -1, 0]
    """
    n = len(samples)
    exact_group = samples.groups
    sizes = np.bincount(exact_group, minlength=1)
    exact = sizes[exact_group] > 1
    pairs = [_chained(exact_group)]
    if images.ndim == 4 and min(images.shape[2:]) >= SMALLEST:
        pairs.append(_near_pairs(samples.labels, images, near, torch.device(device)))
    group = _joined(n, np.concatenate(pairs))
    return Duplicates(group, exact, _conflicts(group, samples.labels))


def _chained(groups: np.ndarray) -> np.ndarray:
    """(P, 2) pairs that connect the members of each group."""
    order = np.argsort(groups, kind="stable")
    same = groups[order[1:]] == groups[order[:-1]]
    return np.stack([order[:-1][same], order[1:][same]], 1)


def _near_pairs(labels: np.ndarray, images: Tensor, near: Neighbours, device: torch.device) -> np.ndarray:
    """(P, 2) pairs of samples and candidates whose pixels are far closer than usual."""
    size = at_once(images.shape[1:], device.type, PICTURES)
    coarse = torch.cat([_coarse(part.to(device)) for part in torch.split(images, size)])
    to = np.concatenate([near.row[:, :CANDIDATES], others(coarse, CANDIDATES).row], 1)  # (N, K)
    n, k = to.shape
    rows, found = np.repeat(np.arange(n), k), np.full(n * k, np.inf)
    real = to.reshape(-1) >= 0
    if not real.any():
        return np.empty((0, 2), dtype=np.int64)
    ends = np.maximum(to.reshape(-1), 0)
    once, which = np.unique(np.minimum(rows, ends)[real] * n + np.maximum(rows, ends)[real], return_inverse=True)
    found[real] = _distance(images, once // n, once % n, device)[which]
    usual = _usual(_third(found.reshape(n, k), to), labels)
    # the closer class of the two decides: a one that is labelled five has many ones around it
    chosen = found < np.minimum(CLOSE * np.minimum(usual[rows], usual[ends]), FARTHEST)
    return np.stack([rows[chosen], to.reshape(-1)[chosen]], 1)


def _third(distance: np.ndarray, to: np.ndarray) -> np.ndarray:
    """(N,) distance of the third nearest of the candidates (N, K), each counted once: one or two may be copies."""
    order = np.argsort(to, axis=1, kind="stable")
    sorted_to = np.take_along_axis(to, order, 1)
    again = np.zeros(to.shape, dtype=np.bool_)
    np.put_along_axis(again, order[:, 1:], sorted_to[:, 1:] == sorted_to[:, :-1], 1)
    once = np.sort(np.where(again, np.inf, distance), axis=1)
    third = once[:, min(2, once.shape[1] - 1)]
    return np.where(np.isfinite(third), third, once[:, 0])


def _usual(distance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) the median of the class; of all where a class is too small to tell."""
    found = np.full(len(labels), float(np.median(distance)))
    for each in np.unique(labels):
        mine = labels == each
        if mine.sum() >= 10:
            found[mine] = float(np.median(distance[mine]))
    return found


def _distance(images: Tensor, one: np.ndarray, other: np.ndarray, device: torch.device) -> np.ndarray:
    """(P,) distance of pictures at length one, blurred, the other moved by up to a pixel to where it fits best."""
    found, size = [], at_once(images.shape[1:], device.type, PAIRS)
    for start in range(0, len(one), size):
        left, right = (
            _unit(_small(images[torch.from_numpy(rows[start : start + size])].to(device), FINE))
            for rows in (one, other)
        )
        moved = [torch.roll(right, (dy, dx), (2, 3)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        cosine = torch.stack([(left * each).flatten(1).sum(1) for each in moved]).amax(0)
        found.append((2 - 2 * cosine.double()).clamp_min(0).sqrt().cpu().numpy())
    return np.concatenate(found)


def _coarse(images: Tensor) -> Tensor:
    """(B, D) at length one, to search in."""
    return _unit(_small(images, COARSE)).flatten(1)


def _small(images: Tensor, side: int) -> Tensor:
    """Blurred, and no larger than `side`."""
    values = images.float()
    blurred = F.avg_pool2d(values, 3, stride=1, padding=1)
    height, width = (min(side, have) for have in values.shape[2:])
    return F.adaptive_avg_pool2d(blurred, (height, width))


def _unit(values: Tensor) -> Tensor:
    """The same shape, without mean, at length one; a picture of one colour is zero."""
    flat = values.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1).view_as(values)


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
