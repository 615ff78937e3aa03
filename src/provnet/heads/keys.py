"""PackedKeys: keys of training samples as they are stored, in fp32, bf16 or int8, packed ones with a scale a row.

bf16 halves and int8 quarters the memory. The scale gives a key back the length that rounding took or added: else of two
near-copies the one that became longer would be found for both. Products are never taken in the packed type: a chunk is
turned back into fp32 when it is scanned, see `retrieval.top_k`.

Keys may be split over processes: each holds some rows, and together they give what one process would. Every process
sends its queries to all others and scores them against its own rows; maxima, sums and the best of each part are then
put together.

Letters: B queries (of all processes; b of this one), N keys (n of this process), D features, K keys of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from provnet.base.batches import is_matrix
from provnet.base.errors import NonFiniteError, UsageError, choose

FEW = 8  # up to this many queries a CPU multiplies faster with the keys on the left
PARTS = 8  # of the keys for each thread, where there is one query
Array = NDArray[np.float32]
LEVELS = 127  # int8 holds -127..127; -128 is left out, so that a key and its negative pack alike


@dataclass(frozen=True)
class PackedKeys:
    """Keys in a storage format.

    Attributes:
        values: (N, D) in fp32, bf16 or int8.
        scale: (N,) fp32 for int8, None for fp32, either for bf16.
    """

    values: Tensor
    scale: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        if not is_matrix(self.values) or self.values.dtype not in DTYPES.values():
            given = f"{self.values.dtype} of shape {tuple(self.values.shape)}"
            raise UsageError(
                f"packed keys must be fp32, bf16 or int8 of shape (N, D), got {given}; use pack(keys, dtype)"
            )
        needed = self.values.dtype == torch.int8
        if self.scale is None:
            fits = not needed
        else:
            fits = self.scale.shape == self.values.shape[:1] and self.values.dtype != torch.float32
        if not fits:
            raise UsageError("int8 keys need one scale per row, fp32 keys none; use pack(keys, dtype)")

    def __len__(self) -> int:
        """How many keys there are (N)."""
        return self.values.shape[0]  # len() of a tensor takes a microsecond, which one query notices

    @property
    def dtype(self) -> str:
        """The name of the format: fp32, bf16 or int8."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.values.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and their scales."""
        return self.values.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def unpacked(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """Some rows, or all, as fp32; a slice of fp32 keys is a view."""
        values = self.values[rows].float()
        return values if self.scale is None else values.mul_(self.scale[rows].unsqueeze(-1))

    def part(self, begin: int, end: int) -> PackedKeys:
        """Rows begin to end - 1, as a view."""
        return PackedKeys(self.values[begin:end], None if self.scale is None else self.scale[begin:end])

    def to(self, device: torch.device | str) -> PackedKeys:
        """The same keys on another device."""
        return PackedKeys(self.values.to(device), None if self.scale is None else self.scale.to(device))


def unit(features: Tensor) -> Tensor:
    """(B, D) at length one, float32.

    >>> unit(torch.tensor([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    return F.normalize(features.float(), dim=1)


def pack(keys: Tensor, dtype: str = "fp32") -> PackedKeys:
    """Store (N, D) keys as "fp32", "bf16" or "int8"; a key that is not finite is refused. fp32 keys are not copied.

    >>> packed = pack(torch.tensor([[1.0, -0.5], [0.0, 0.0]]), "int8")
    >>> packed.values.tolist(), packed.nbytes
    ([[127, -64], [0, 0]], 12)
    """
    target = choose("key format", dtype, DTYPES)
    if not is_matrix(keys) or not keys.is_floating_point():
        given = f"{keys.dtype} of shape {tuple(keys.shape)}"
        raise UsageError(f"keys must be floating point of shape (N, D), got {given}")
    plain = keys.detach().float()
    row = first_not_finite(plain)
    if row is not None:
        raise NonFiniteError(
            f"key {row} is not finite: it cannot be stored. Refresh the keys or check the model's weights"
        )
    if dtype != "int8":
        packed = plain.to(target)
        row = first_not_finite(packed)  # bf16 rounds the last few fp32 numbers up to infinity
        if row is not None:
            raise NonFiniteError(f"key {row} is too large for {dtype}; normalise the keys or store them as fp32")
        return PackedKeys(packed, None if dtype == "fp32" else _as_long(plain, packed))
    largest = plain.abs().amax(1) if plain.shape[1] else plain.new_zeros(len(plain))
    step = largest / LEVELS
    divisor = step.where(step > 0, 1.0).unsqueeze(1)  # a row of zeros stays a row of zeros
    values = (plain / divisor).round_().clamp_(-LEVELS, LEVELS).to(torch.int8)
    return PackedKeys(values, _as_long(plain, values))


def _as_long(plain: Tensor, values: Tensor) -> Tensor:
    """(N,) what makes rounded keys as long as they were; 1 for a row of zeros."""
    before, now = (torch.linalg.vector_norm(rows.float(), dim=1, dtype=torch.float64) for rows in (plain, values))
    scale: Tensor = (before / now.where(now > 0, 1.0)).where(now > 0, 1.0).float()
    return scale


def packed_view(keys: Tensor | PackedKeys) -> PackedKeys:
    """Keys as given or packed, always packed; plain fp32 and bf16 keys are not copied, others become fp32.

    >>> packed_view(torch.ones(2, 3, dtype=torch.float64)).dtype
    'fp32'
    """
    if isinstance(keys, PackedKeys):
        return keys if not keys.values.requires_grad else PackedKeys(keys.values.detach(), keys.scale)
    if not keys.is_floating_point():
        raise UsageError(f"keys must be floating point or packed with pack(keys, dtype), got {keys.dtype}")
    return PackedKeys(keys.detach() if keys.dtype == torch.bfloat16 else keys.detach().float())


def first_not_finite(rows: Tensor) -> int | None:
    """The first row that holds a NaN or an infinity, or None.

    >>> first_not_finite(torch.tensor([[0.0], [torch.inf]]))
    1
    """
    finite = torch.isfinite(rows)
    finite = finite.all(1) if finite.ndim > 1 else finite
    return None if bool(finite.all()) else int((~finite).nonzero()[0])


def multiply(queries: Tensor, keys: Tensor, out: Tensor) -> None:
    """Write the (B, N) products of fp32 or float64 queries with fp32 keys to `out`, which is fp32.

    Products with out=, and those in float64, are left alone by autocast.

    >>> out = torch.empty(1, 2)
    >>> multiply(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), out)
    >>> out.tolist()
    [[3.0, 7.0]]
    """
    (batch, _), (n, width), threads = queries.shape, keys.shape, torch.get_num_threads()
    if queries.dtype == torch.float64:
        out.copy_(torch.mm(queries, keys.double().t()))
    elif batch > FEW or not keys.is_cpu:
        torch.mm(queries, keys.t(), out=out)
    elif batch > 1:
        out.copy_(torch.mm(keys, queries.t(), out=out.new_empty((n, batch))).t())
    else:
        parts = PARTS * threads
        height = n // parts if threads > 1 else 0
        whole = parts * height
        if whole:
            left, right = keys[:whole].view(parts, height, width), queries.t().expand(parts, -1, -1)
            torch.bmm(left, right, out=out[:, :whole].view(parts, height, 1))
        if whole < n:
            with np.errstate(all="ignore"):  # as torch does
                np.vecdot(keys[whole:].numpy(), queries.numpy(), out=out[0, whole:].numpy())


def score_rows(queries: Tensor, keys: PackedKeys, rows: Tensor) -> Tensor:
    """(B, K) products of fp32 queries with the keys of (B, K) rows, in float64, rounded to fp32 once.

    >>> keys = packed_view(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> score_rows(torch.ones(1, 2), keys, torch.tensor([[1, 0]])).tolist()
    [[7.0, 3.0]]
    """
    if not queries.is_cpu:
        return (keys.unpacked(rows) * queries.double().unsqueeze(1)).sum(2).float()
    return torch.from_numpy(exact_products(keys.unpacked(rows).numpy(), queries.numpy()[:, np.newaxis]))


def exact_products(keys: Array, queries: Array) -> Array:
    """Products over the last axis in float64, rounded to fp32 once: each sum has the same bits in any company.

    >>> exact_products(np.float32([[1, 2], [3, 4]]), np.float32([1, 1])).tolist()
    [3.0, 7.0]
    """
    with np.errstate(all="ignore"):  # as torch does; but numpy starts sooner
        products: NDArray[np.float64] = np.multiply(keys, queries, dtype=np.float64).sum(-1)
        return products.astype(np.float32)


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


def all_rows(rows: Tensor, shard: Shard) -> Tensor:
    """(n, ...) of every process -> (N, ...), the whole bank."""
    sizes = tuple(shard_of(shard.total, rank, shard.processes) for rank in range(shard.processes))
    return gather(rows, Shares(tuple(s.end - s.first for s in sizes), shard.rank))


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
