"""Keys split over processes: each holds some rows, and together they give what one process would.

Every process sends its queries to all others and scores them against its own rows; maxima, sums and the best of each
part are then put together. One process alone (`ALONE`) does the same without talking.

Letters: B batch of all processes, b of this one, D features, N keys, n keys of this process, K keys asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from provnet.heads.retrieval import TopK, merge


@dataclass(frozen=True)
class Shard:
    """The rows of the keys that this process holds: `first` to `end` of `total`.

    >>> [(s.first, s.end) for s in (shard_of(10, rank, 3) for rank in range(3))]
    [(0, 4), (4, 7), (7, 10)]
    """

    first: int
    end: int
    total: int
    rank: int = 0
    processes: int = 1

    @property
    def rows(self) -> slice:
        """The rows as a slice of all."""
        return slice(self.first, self.end)


def shard_of(n: int, rank: int, processes: int) -> Shard:
    """The share of one process of n rows; shares differ by one row at most.

    >>> shard_of(5, rank=1, processes=2)
    Shard(first=3, end=5, total=5, rank=1, processes=2)
    """
    base, extra = divmod(n, processes)
    first = rank * base + min(rank, extra)
    return Shard(first, first + base + (rank < extra), n, rank, processes)


@dataclass(frozen=True)
class Shares:
    """How many rows of a batch each process brought; in the order of their ranks."""

    sizes: tuple[int, ...]
    rank: int

    @property
    def own(self) -> slice:
        """The rows of this process among those of all."""
        start = sum(self.sizes[: self.rank])
        return slice(start, start + self.sizes[self.rank])


def shares_of(batch: int, shard: Shard, device: torch.device) -> Shares:
    """Ask every process how many rows it has."""
    if shard.processes == 1:
        return Shares((batch,), 0)
    sizes = torch.zeros(shard.processes, dtype=torch.int64, device=device)
    sizes[shard.rank] = batch
    dist.all_reduce(sizes)
    return Shares(tuple(sizes.tolist()), shard.rank)


def gather(rows: Tensor, shares: Shares) -> Tensor:
    """(b, ...) of every process -> (B, ...), with gradients: each process gets the sum of those for its own rows."""
    if len(shares.sizes) == 1:
        return rows
    gathered: Tensor = _Gather.apply(rows, shares)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, shares: Shares) -> Tensor:
        ctx.shares = shares
        most = max(shares.sizes)
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in shares.sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, shares.sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        whole = grads[0].contiguous()
        dist.all_reduce(whole)
        return whole[ctx.shares.own], None


def sum_over(values: Tensor, shard: Shard) -> Tensor:
    """The sum over all processes."""
    if shard.processes > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def max_over(values: Tensor, shard: Shard) -> Tensor:
    """The largest of all processes, element by element."""
    if shard.processes > 1:
        values = values.clone()
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values


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


def all_rows(rows: Tensor, shard: Shard) -> Tensor:
    """(n, ...) of every process -> (N, ...), the whole bank."""
    sizes = tuple(shard_of(shard.total, rank, shard.processes) for rank in range(shard.processes))
    return gather(rows, Shares(tuple(s.end - s.first for s in sizes), shard.rank))
