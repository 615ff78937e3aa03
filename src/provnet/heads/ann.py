"""The optional faiss engine: nearly the same keys as `retrieval.top_k`, far faster on a CPU above a million keys.

Keys are grouped into lists around centres (inverted lists, one byte a feature); a query looks into the lists whose
centres are nearest. How many is chosen when the index is built, from the recall against the exact scan on a sample of
queries, and the recall is kept beside it. What is found is scored again with the keys in fp32: the score of a row is
that of the exact scan, bit for bit. Only a row may be missed.

Letters: B queries, N keys, D features, K keys asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from provnet.base.batches import is_matrix
from provnet.base.errors import NonFiniteError, UsageError
from provnet.heads.keys import Array, PackedKeys, first_not_finite, packed_view
from provnet.heads.retrieval import MARGIN, TopK, rank_rows, recall, top_k

PER_LIST = 40  # keys that each centre is learned from
MOST_LISTS = 2**14  # every key is compared with every centre once, and every query
ROUNDS, LAST_ROUNDS = 8, 2  # of k-means: for the centres of parts, then over all of them
FEATURES_FROM = 2**16  # keys that the range of a feature is learned from
NOISE = 0.5  # length of what is added to keys of length 1 where no sample of queries is given
LENGTH = 0.01  # how far from 1 the length of a key may be: int8 keys are a little off


@dataclass(frozen=True)
class Ann:
    """An index, and what was measured when it was built.

    Attributes:
        keys: (N, D) fp32.
        lists: how many lists there are.
        probes: how many of them a query looks into.
        recall: share of the exact best `k` that were found for the sample.
        k: how many keys were asked for when recall was measured.
        sample: how many queries it was measured on.
        index: faiss's own object.
    """

    keys: Tensor
    lists: int
    probes: int
    recall: float
    k: int
    sample: int
    index: Any


@torch.no_grad()
def build_ann(
    keys: Tensor | PackedKeys,
    *,
    queries: Tensor | None = None,
    k: int = 10,
    target: float = 0.99,
    lists: int | None = None,
    seed: int = 0,
) -> Ann:
    """An index over (N, D) keys of length 1 that finds at least `target` of the best k.

    `queries` is a sample of what will be asked; without it 512 keys with noise half as long as they are. Lists are
    added until only half of the misses allowed are left, as a sample may flatter, or until all are probed: read
    `recall`. The same keys, seed and number of threads give the same index.

    >>> ann = build_ann(normalize(torch.randn(3000, 16, generator=torch.Generator().manual_seed(0))))
    >>> ann.recall >= 0.99, ann.probes < ann.lists
    (True, True)
    """
    faiss = _faiss()
    plain = packed_view(keys).unpacked().contiguous()
    _check(plain, k, target, lists)
    n, width = plain.shape
    lists = lists or max(min(round(16 * math.sqrt(n)), n // PER_LIST, MOST_LISTS), 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    learned_from = plain[order[: PER_LIST * lists]].numpy()
    centres = faiss.IndexFlatIP(width)
    centres.add(_centres(learned_from, lists, seed))
    byte = faiss.ScalarQuantizer.QT_8bit
    index = faiss.IndexIVFScalarQuantizer(centres, width, lists, byte, faiss.METRIC_INNER_PRODUCT)
    index.train(learned_from[:FEATURES_FROM])
    index.add(plain.numpy())
    asked = _sample(plain, seed) if queries is None else queries
    if len(asked) == 0:
        raise UsageError("a sample of queries must hold at least one; leave it out to use keys with noise")
    exact = top_k(asked, plain, k)
    probes, found = 0, 0.0
    while probes < lists and found < (1 + target) / 2:
        probes = min(max(2 * probes, 1), lists)
        found = recall(ann_top_k(asked, Ann(plain, lists, probes, found, k, len(asked), index), k), exact)
    return Ann(plain, lists, probes, found, k, len(asked), index)


@torch.no_grad()
def ann_top_k(queries: Tensor, ann: Ann, k: int) -> TopK:
    """As `retrieval.top_k`, but a row may be missed: see `ann.recall`, which was measured for `ann.k`.

    Never fewer than k rows (or N): a query whose lists hold fewer is scanned exactly. Among more equal keys than are
    asked for, those with higher rows may be named.

    >>> keys = torch.eye(4)
    >>> ann_top_k(torch.tensor([[0.0, 0.9, 0.1, 0.0]]), build_ann(keys), 2).row.tolist()
    [[1, 2]]
    """
    if not is_matrix(queries) or queries.shape[1] != ann.keys.shape[1] or not queries.is_floating_point():
        given = f"{queries.dtype} of shape {tuple(queries.shape)}"
        raise UsageError(f"queries must be floating point of shape (B, {ann.keys.shape[1]}), got {given}")
    if k < 1 or not queries.is_cpu:
        raise UsageError(f"k must be 1 or more and queries on the CPU, got k={k} on {queries.device}")
    if (bad := first_not_finite(queries)) is not None:
        raise NonFiniteError(f"query {bad} is not finite: no key can be named. Check the input and the weights")
    k = min(k, len(ann.keys))
    plain = queries.float().contiguous()
    options = _faiss().SearchParametersIVF(nprobe=ann.probes)
    rows = torch.from_numpy(ann.index.search(plain.numpy(), min(k + MARGIN, len(ann.keys)), params=options)[1])
    enough = (rows >= 0).sum(1) >= k
    if bool(enough.all()):
        return rank_rows(plain, ann.keys, rows, k)
    found = top_k(plain[~enough], ann.keys, k)
    score, row = plain.new_empty((len(plain), k)), rows.new_empty((len(plain), k))
    score[~enough], row[~enough] = found.score, found.row
    found = rank_rows(plain[enough], ann.keys, rows[enough], k)
    score[enough], row[enough] = found.score, found.row
    return TopK(score, row)


def _centres(keys: Array, lists: int, seed: int) -> Array:
    """Centres of the lists by k-means in two steps: of parts, then within each part, and once more over all of them.

    Straight away over all of them would take some hundred times as long for a million keys.
    """
    parts = max(round(math.sqrt(lists)), 1)
    coarse = _k_means(keys, parts, seed, ROUNDS)
    part = coarse.index.search(keys, 1)[1][:, 0]
    order, sizes = np.argsort(part, kind="stable"), np.bincount(part, minlength=parts)
    ends = np.cumsum(sizes)
    counts = np.diff(ends * lists // len(keys), prepend=0)  # lists for each part, by its size
    members = [order[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    found = [_k_means(keys[m], int(c), seed, ROUNDS).centroids for m, c in zip(members, counts, strict=True) if c]
    centres: Array = _k_means(keys, lists, seed, LAST_ROUNDS, np.concatenate(found)).centroids
    return centres


def _k_means(keys: Array, count: int, seed: int, rounds: int, start: Array | None = None) -> Any:
    """Faiss's k-means on the unit sphere."""
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(keys)}  # all are used, few are no matter
    found = _faiss().Kmeans(keys.shape[1], count, niter=rounds, seed=seed, spherical=True, **limits)
    found.train(keys, init_centroids=start)
    return found


def _sample(keys: Tensor, seed: int) -> Tensor:
    """Keys with noise, 512 or as many as there are."""
    generator = torch.Generator().manual_seed(seed)
    some = keys[torch.randperm(len(keys), generator=generator)[:512]]
    return normalize(some + NOISE / math.sqrt(keys.shape[1]) * torch.randn(some.shape, generator=generator))


def _check(keys: Tensor, k: int, target: float, lists: int | None) -> None:
    """Refuse keys that cannot be indexed."""
    if not keys.is_cpu or 0 in keys.shape:
        given = f"{tuple(keys.shape)} on {keys.device}"
        raise UsageError(f"the faiss engine needs keys (N, D) on the CPU, got {given}; top_k scans keys on a GPU")
    if k < 1 or not 0 < target <= 1 or (lists is not None and not 1 <= lists <= len(keys)):
        given = f"k={k}, target={target}, lists={lists}"
        raise UsageError(f"k must be 1 or more, target in (0, 1], lists in 1..{len(keys)}, got {given}")
    if (bad := first_not_finite(keys)) is not None:
        raise NonFiniteError(f"key {bad} is not finite: it cannot be indexed. Check the model's weights")
    off = (torch.linalg.vector_norm(keys, dim=1) - 1).abs()
    if float(off.max()) > LENGTH:
        row = int(off.argmax())
        raise UsageError(f"keys must have length 1, key {row} has {float(keys[row].norm()):.3g}; normalise them")


def _faiss() -> Any:
    """The faiss module, which is an extra."""
    try:
        import faiss
    except ImportError as error:
        raise UsageError(f"the faiss engine is not installed ({error}): pip install '.[faiss]'") from None
    return faiss
