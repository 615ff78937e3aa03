"""Scores with the rows behind them, in one order: the larger score first, and the lower row where scores are equal.

`topk` leaves the order of equal scores open, and which of two equal pictures is named must not depend on how many were
asked for.

The optional faiss engine finds nearly the same keys as `top_k`, far faster on a CPU above a million keys. Keys are
grouped into lists around centres (inverted lists, one byte per feature); a query looks into the lists whose centres are
nearest. How many is chosen when the index is built, from the recall against the exact scan on a sample of queries, and
the recall is kept beside it. What is found is scored again with the keys in fp32, so the score of a row is that of the
exact scan, bit for bit. Only a row may be missed.

Letters: B queries, N keys, D features, K keys of a query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from provnet.base.batches import is_column, is_matrix, pieces
from provnet.base.errors import NonFiniteError, UsageError
from provnet.heads.keys import (
    Array,
    PackedKeys,
    Shard,
    Shares,
    exact_products,
    first_not_finite,
    multiply,
    packed_view,
    score_rows,
)

LAST_ROW = 2**32 - 1


@dataclass(frozen=True)
class TopK:
    """The best keys of each query, best first.

    Attributes:
        score: (B, K) float32 inner products; -inf where row is -1.
        row: (B, K) int64 rows of the keys; -1 where there are fewer than K.
    """

    score: Tensor
    row: Tensor


@dataclass(frozen=True)
class Ranked:
    """The best samples of each query: (B, K) indices, -1 where a class has fewer, and the log of their shares."""

    index: Tensor
    log_share: Tensor


def ranks_of(scores: Tensor, rows: Tensor) -> Tensor:
    """One int64 per fp32 score that sorts by score, then by lower row.

    >>> ranks_of(torch.tensor([2.0, -1.0, 2.0]), torch.tensor([7, 8, 3])).argsort(descending=True).tolist()
    [2, 0, 1]
    """
    bits = scores.view(torch.int32)
    ordered = torch.where(bits < 0, -(2**31) - bits, bits)  # negative floats count downwards, and -0.0 is 0.0
    return torch.add(LAST_ROW - rows, ordered, alpha=2**32)


def rows_of(ranks: Tensor) -> Tensor:
    """The rows behind ranks.

    >>> rows_of(ranks_of(torch.tensor([2.0, -1.0]), torch.tensor([7, 8]))).tolist()
    [7, 8]
    """
    return LAST_ROW - (ranks & LAST_ROW)


def scores_of(ranks: Tensor) -> Tensor:
    """The scores behind ranks.

    >>> scores_of(ranks_of(torch.tensor([2.0, -1.0]), torch.tensor([7, 8]))).tolist()
    [2.0, -1.0]
    """
    ordered = (ranks >> 32).int()
    return torch.where(ordered < 0, -(2**31) - ordered, ordered).view(torch.float32)


def in_order(score: Tensor, row: Tensor, k: int) -> TopK:
    """The best k of (B, K) candidates, best first; row -1 comes last.

    >>> in_order(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([[0, 9, 4]]), 2).row.tolist()
    [[4, 9]]
    """
    places = ranks_of(score, row.where(row >= 0, LAST_ROW)).topk(k, 1).indices
    return TopK(score.gather(1, places), row.gather(1, places))


MARGIN = 8  # candidates beyond K: keys whose products differ by less than fp32 rounding may change places
SAFE, TINY = 8, 2**-20  # an fp32 score is trusted to so many times the largest error of the candidates, or so closely
BLOCK = 64  # scores of a single query whose maximum is taken
QUERIES, PRODUCTS = 1024, 2**24  # at a time: queries, and float64 products
CPU_SCORES, GPU_SCORES = 2**22, 2**28  # held at a time: the cache of a CPU, 1 GiB of a GPU


def top_k(
    queries: Tensor, keys: Tensor | PackedKeys, k: int, *, chunk: int | None = None, rerank: Tensor | None = None
) -> TopK:
    """The k keys with the largest inner product with each query, the lower row first where products are equal.

    `k` is cut to the number of keys. Packed keys are scanned as they are; with the fp32 keys `rerank` a wider list is
    scored again against those, which finds nearly all of the best, see `recall`. Keys in fp32 and bf16 are not copied.
    A NaN or an infinity is an error, never a row.

    >>> found = top_k(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [3.0, 0.0], [3.0, 5.0]]), k=2)
    >>> found.row.tolist(), found.score.tolist()
    ([[1, 2]], [[3.0, 3.0]])
    """
    _check(queries, keys, k, chunk, rerank)
    bank = packed_view(keys)
    exact = bank if rerank is None else packed_view(rerank)
    try:
        return _find(queries.detach().float(), bank, exact, min(k, len(bank)), chunk)
    except NonFiniteError:
        raise _not_finite(queries, bank, exact) from None  # rows as the caller counts them


def top_k_within(
    queries: Tensor, keys: Tensor | PackedKeys, starts: Tensor, sizes: Tensor, classes: Tensor, k: int
) -> TopK:
    """`top_k` within the class of each query: keys sorted by class, class c from starts[c], sizes[c] of them.

    Always K wide: beyond the size of the class row is -1 and score -inf. Each class that occurs costs one product
    with its slice of the keys.

    >>> keys = torch.tensor([[9.0], [1.0], [2.0]])
    >>> classes = torch.tensor([1, 0])
    >>> top_k_within(torch.ones(2, 1), keys, torch.tensor([0, 1]), torch.tensor([1, 2]), classes, k=2).row.tolist()
    [[2, 1], [0, -1]]
    """
    _check(queries, keys, k, None, None)
    if classes.shape != queries.shape[:1] or not is_column(starts) or starts.shape != sizes.shape:
        given = ", ".join(str(tuple(each.shape)) for each in (queries, classes, starts, sizes))
        raise UsageError(f"queries must be (B, D), classes (B,), starts and sizes (C,), got {given}")
    distinct = sorted(set(classes.tolist()))
    if distinct and not 0 <= distinct[0] <= distinct[-1] < starts.shape[0]:
        raise UsageError(f"classes must lie in 0..{len(starts) - 1}, got {distinct[0]}..{distinct[-1]}")
    bank, plain, found = packed_view(keys), queries.detach().float(), []
    firsts, counts = starts.tolist(), sizes.tolist()
    for each in distinct:
        begin, size = firsts[each], counts[each]
        if not 0 <= begin <= begin + size <= len(bank):
            raise UsageError(f"class {each} is given rows {begin}..{begin + size}, but there are {len(bank)} keys")
        part, some = bank.part(begin, begin + size), plain if len(distinct) == 1 else plain[classes == each]
        try:
            best = _find(some, part, part, min(k, size), None)
        except NonFiniteError:
            raise _not_finite(queries, bank) from None
        found.append(TopK(best.score, best.row + begin))
    if len(found) == 1 and found[0].row.shape[1] == k:
        return found[0]
    score, row = plain.new_full((len(plain), k), -torch.inf), plain.new_full((len(plain), k), -1).long()
    for each, best in zip(distinct, found, strict=True):
        here = (classes == each, slice(best.row.shape[1]))
        score[here], row[here] = best.score, best.row
    return TopK(score, row)


def rank_rows(queries: Tensor, keys: Tensor | PackedKeys, rows: Tensor, k: int) -> TopK:
    """The best k of the (B, K) rows given for each query, scored and ordered as `top_k` does it; -1 is no row.

    >>> rank_rows(torch.ones(1, 1), torch.tensor([[5.0], [7.0], [9.0]]), torch.tensor([[0, 1]]), 1).row.tolist()
    [[1]]
    """
    score = score_rows(queries.detach().float(), packed_view(keys), rows.clamp(min=0))
    if not bool(torch.isfinite(score).all()):
        raise _not_finite(queries, packed_view(keys))
    return in_order(score.where(rows >= 0, -torch.inf), rows, min(k, rows.shape[1]))


def merge(parts: Sequence[TopK], k: int) -> TopK:
    """The best k of several lists for the same queries, such as those of shards; rows must count from one origin.

    >>> one, two = (TopK(torch.tensor([[score]]), torch.tensor([[row]])) for score, row in ((1.0, 4), (2.0, 9)))
    >>> merge([one, two], 1).row.tolist()
    [[9]]
    """
    given = [len(part.row) for part in parts]
    if k < 1 or len(set(given)) != 1:
        raise UsageError(f"give lists for the same queries and k of 1 or more, got lists for {given} queries, k={k}")
    score, row = torch.cat([part.score for part in parts], 1), torch.cat([part.row for part in parts], 1)
    return in_order(score, row, min(k, row.shape[1]))


def merge_over(found: TopK, k: int, shard: Shard, shares: Shares) -> TopK:
    """The best k of all processes for this process's own queries; `found` is for all queries, rows counted from 0."""
    if shard.processes == 1:
        return found
    width = min(k, shard.total)
    score = found.score.new_full((len(found.score), width), -torch.inf)
    row = found.row.new_full((len(found.row), width), -1)
    score[:, : found.score.shape[1]], row[:, : found.row.shape[1]] = found.score, found.row
    scores, rows = ([torch.empty_like(x) for _ in range(shard.processes)] for x in (score, row))
    dist.all_gather(scores, score)
    dist.all_gather(rows, row)
    own = shares.own
    return merge([TopK(s[own], r[own]) for s, r in zip(scores, rows, strict=True)], k)


def recall(found: TopK, exact: TopK) -> float:
    """The share of the exact rows that were found; 1.0 where there are none to find.

    >>> rows = [TopK(torch.zeros(1, 2), torch.tensor([row])) for row in ([0, 7], [7, 3])]
    >>> recall(*rows)
    0.5
    """
    if len(found.row) != len(exact.row):
        raise UsageError(f"both must be for the same queries, got {len(found.row)} and {len(exact.row)}")
    real = exact.row >= 0
    hits = (exact.row.unsqueeze(2) == found.row.unsqueeze(1)).any(2) & real
    return int(hits.sum()) / int(real.sum()) if bool(real.any()) else 1.0


def _check(queries: Tensor, keys: Tensor | PackedKeys, k: int, chunk: int | None, rerank: Tensor | None) -> None:
    """Refuse shapes and numbers that cannot be."""
    values = keys.values if isinstance(keys, PackedKeys) else keys
    shape = tuple(values.shape)
    if k < 1 or (chunk is not None and chunk < 1):
        raise UsageError(f"k and chunk must be 1 or more, got k={k}, chunk={chunk}")
    if not is_matrix(queries) or not is_matrix(values) or queries.shape[1] != values.shape[1]:
        raise UsageError(f"queries must be (B, D) and keys (N, D) of one D, got {tuple(queries.shape)} and {shape}")
    if not queries.is_floating_point() or queries.device != values.device:
        given = f"{queries.dtype} on {queries.device}, keys on {values.device}"
        raise UsageError(f"queries must be floating point on the device of the keys, got {given}")
    if rerank is not None and (rerank.shape != values.shape or rerank.device != values.device):
        raise UsageError(f"rerank must be the same keys in fp32, {shape}, got {tuple(rerank.shape)} on {rerank.device}")
    if shape[0] > LAST_ROW:
        raise UsageError(f"at most {LAST_ROW} keys can be scanned at once, got {len(values)}; use shards and merge")


def _find(queries: Tensor, keys: PackedKeys, exact: PackedKeys, k: int, chunk: int | None) -> TopK:
    """`top_k` of what was checked; queries are fp32 and k is at most N."""
    batch = queries.shape[0]
    if batch == 0 or k == 0:
        return TopK(queries.new_empty((batch, k)), queries.new_empty((batch, k), dtype=torch.int64))
    quick = batch == 1 and queries.is_cpu and keys.values.dtype == torch.float32 and keys is exact and not chunk
    if quick and len(keys) <= CPU_SCORES and (found := _find_one(queries, keys, k)) is not None:
        return found
    step = min(max(PRODUCTS // (max(keys.values.shape[1], 1) * (k + MARGIN)), 1), QUERIES)
    parts = [_some(queries[rows], keys, exact, k, chunk) for rows in pieces(batch, step)]
    return TopK(torch.cat([part.score for part in parts]), torch.cat([part.row for part in parts]))


def _find_one(query: Tensor, keys: PackedKeys, k: int) -> TopK | None:
    """`_find` for one query on a CPU, where calls cost as much as the work; None where many keys nearly tie."""
    n, count = len(keys), min(len(keys), k + MARGIN)
    blocks = -(-n // BLOCK)
    out = query.new_empty((1, blocks * BLOCK))
    multiply(query, keys.values, out[:, :n])
    scores = out.numpy()[0]
    scores[n:] = scores[0]  # to fill the last block
    if not math.isfinite(out.sum()):  # one call says that all is well
        _refuse_not_finite(*torch.aminmax(out))
    scanned = scores[:n]
    maxima = scores.reshape(BLOCK, blocks).max(0) if blocks > count else scanned
    least = np.partition(maxima, -count)[-count]  # `count` keys are at least as good
    rows = (scanned >= least).nonzero()[0]
    if not k <= len(rows) <= 4 * count:
        return None
    score = exact_products(keys.values.numpy()[rows], query.numpy())
    order = np.argsort(-score, kind="stable")[np.newaxis, :k]  # rows are in order: the lower one stays first
    last = score[order[0, -1]]
    _refuse_not_finite(last, score[order[0, 0]])
    if count < n and last - least <= SAFE * np.abs(scanned[rows] - score).max() + TINY * abs(last):
        return None
    return TopK(torch.from_numpy(score[order]), torch.from_numpy(rows[order]))


def _some(queries: Tensor, keys: PackedKeys, exact: PackedKeys, k: int, chunk: int | None) -> TopK:
    """`_find` for as many queries as are scanned together."""
    count = min(len(keys), k + MARGIN if keys is exact else WIDTHS[keys.values.dtype] * k + 4 * MARGIN)
    ranks = _scan(queries, keys, count, chunk)
    scanned, rows = scores_of(ranks), rows_of(ranks)
    score = score_rows(queries, exact, rows)
    _refuse_not_finite(*torch.aminmax(score))
    found = in_order(score, rows, k)
    if count < len(keys) and keys is exact:
        doubtful = is_doubtful(found.score[:, -1], scanned, score)
        if bool(doubtful.any()):
            rows = rows_of(_scan(queries[doubtful].double(), keys, count, chunk))
            better = in_order(score_rows(queries[doubtful], exact, rows), rows, k)
            found.score[doubtful], found.row[doubtful] = better.score, better.row
    return found


def is_doubtful(last: Tensor, scanned: Tensor, exact: Tensor) -> Tensor:
    """(B,) bool: whether the error of fp32 scores (B, K) could have kept a better key than the last (B,) out of them.

    >>> is_doubtful(torch.tensor([1.0, 1.0]), torch.tensor([[0.5], [1.0]]), torch.tensor([[0.5], [1.0]])).tolist()
    [False, True]
    """
    return last - scanned.amin(1) <= SAFE * (scanned - exact).abs().amax(1) + TINY * last.abs()


def _scan(queries: Tensor, keys: PackedKeys, count: int, chunk: int | None) -> Tensor:
    """(B, count) ranks of the best keys, by products of the type of the queries, rounded to fp32."""
    n, width = keys.values.shape
    copied = keys.values.dtype != torch.float32 or queries.dtype != torch.float32
    held = (CPU_SCORES if queries.is_cpu else GPU_SCORES) // max(len(queries), copied * width)
    chunk = min(chunk or max(held, 1), n)
    block = 1 << round(math.log2(max(chunk / count, 1)) / 2)  # about as many maxima as scores to sort
    buffer = queries.new_empty((len(queries), -(-chunk // block) * block), dtype=torch.float32)
    best = queries.new_empty((len(queries), 0), dtype=torch.int64)
    for rows in pieces(n, chunk):
        some = keys.unpacked(rows)
        scores = buffer[:, : len(some)]
        multiply(queries, some, scores)
        _refuse_not_finite(*torch.aminmax(scores))
        ranks = _best_of_chunk(buffer, len(some), block, min(count, len(some)), rows.start)
        best = torch.cat((best, ranks), 1)
        if best.shape[1] > count:
            best = best.topk(count, 1).values
    return best


def _refuse_not_finite(low: SupportsFloat, high: SupportsFloat) -> None:
    """Raise where a product is NaN or infinite: sorted, it would name a key."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise NonFiniteError("a product is not finite")


def _best_of_chunk(buffer: Tensor, n: int, block: int, count: int, start: int) -> Tensor:
    """(B, count) ranks of the best of the first n scores of the buffer, whose first is that of row `start`."""
    if block == 1:
        return ranks_of(buffer[:, :n], torch.arange(start, start + n, device=buffer.device)).topk(count, 1).values
    blocks = -(-n // block)
    buffer[:, n : blocks * block] = -torch.inf  # below every score, and there are `count` scores
    scores = buffer[:, : blocks * block].view(-1, blocks, block)
    # A key of a block that is not among the best has `count` keys before it, as blocks are neighbours: ties, too.
    maxima = ranks_of(scores.amax(2), torch.arange(blocks, device=buffer.device))
    chosen = rows_of(maxima.topk(min(count, blocks), 1, sorted=False).values).unsqueeze(2)
    rows = chosen * block + torch.arange(start, start + block, device=buffer.device)
    ranks = ranks_of(scores.gather(1, chosen.expand(-1, -1, block)), rows)
    return ranks.flatten(1).topk(count, 1).values


def _not_finite(queries: Tensor, *banks: PackedKeys) -> NonFiniteError:
    """Say which query or key it was."""
    parts = [("key", part) for bank in banks for part in (bank.values, bank.scale) if part is not None]
    for kind, rows in (("query", queries), *parts):
        if (row := first_not_finite(rows)) is not None:
            return NonFiniteError(f"{kind} {row} is not finite: no key can be named. Check the input and the weights")
    return NonFiniteError("a product of a query and a key is too large for float32: normalise queries and keys")


WIDTHS = {torch.float32: 1, torch.bfloat16: 2, torch.int8: 4}  # candidates per key asked for, with re-ranking


Parts = Callable[[int], Iterator[tuple[int, Tensor]]]  # numbers for each key -> (first row, keys) of pieces
Labels = Callable[[Tensor], Tensor]  # rows of keys -> their classes


def best_jointly(
    queries: Tensor, bank: PackedKeys, k: int, *, scale: Tensor, bias: Tensor, parts: Parts, labels: Labels
) -> TopK:
    """The k keys (N, D) with the largest scale * cosine + bias (B, C) of their class, the lower row first where equal.

    >>> bank = PackedKeys(torch.eye(2))
    >>> found = best_jointly(
    ...     torch.tensor([[1.0, 0.0]]), bank, 2, scale=torch.tensor(1.0), bias=torch.tensor([[0.0, 5.0]]),
    ...     parts=lambda _: iter([(0, bank.unpacked())]), labels=lambda rows: rows,
    ... )
    >>> found.row.tolist(), found.score.tolist()
    ([[1, 0]], [[5.0, 1.0]])
    """
    count = min(k + MARGIN, len(bank))

    def scores(cosine: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
        classes = labels(rows)
        return scale * cosine + (bias[:, classes] if is_column(classes) else bias.gather(1, classes))

    def candidates(queries: Tensor, bias: Tensor) -> Tensor:
        """(B, count) ranks by products of the type of the queries, rounded to fp32."""
        best = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        wide = 2 if queries.dtype == torch.float32 else 4  # ranks are twice as wide as scores, and so is float64
        for start, part in parts(wide * len(queries)):
            rows = torch.arange(start, start + len(part), device=part.device)
            ranks = ranks_of(scores((queries @ part.t().to(queries.dtype)).float(), rows, bias), rows)
            best = torch.cat([best, ranks.topk(min(count, len(part)), 1).values], 1)
            best = best.topk(min(count, best.shape[1]), 1).values
        return best

    def ranked(ranks: Tensor, queries: Tensor, bias: Tensor) -> tuple[TopK, Tensor]:
        """The best k of the candidates, and the scores of all of them, exactly."""
        rows = rows_of(ranks)
        exact = scores(score_rows(queries, bank, rows), rows, bias)
        return in_order(exact, rows, min(k, count)), exact

    ranks = candidates(queries, bias)
    found, exact = ranked(ranks, queries, bias)
    if count < len(bank):
        doubtful = is_doubtful(found.score[:, -1], scores_of(ranks), exact)
        if bool(doubtful.any()):
            some, of = queries[doubtful], bias[doubtful]
            better, _ = ranked(candidates(some.double(), of), some, of)
            found.score[doubtful], found.row[doubtful] = better.score, better.row
    return found


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
    _check_ann(plain, k, target, lists)
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


def _check_ann(keys: Tensor, k: int, target: float, lists: int | None) -> None:
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
