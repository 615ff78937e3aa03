"""The order of training as a pure function of (seed, epoch), so that any step can be found again."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, KeysView, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, final, overload

import torch
from torch import Tensor

from provnet.base.errors import UsageError


def keyed_generator(*key: int) -> torch.Generator:
    """A CPU generator whose state depends on the key alone.

    >>> a, b = keyed_generator(1, 2), keyed_generator(1, 2)
    >>> torch.rand(3, generator=a).tolist() == torch.rand(3, generator=b).tolist()
    True
    """
    return torch.Generator().manual_seed(fold(*key))


def fold(*key: int) -> int:
    """Mix integers into one 63-bit seed (splitmix64), so that (1, 2) and (2, 1) differ."""
    state = 0x9E3779B97F4A7C15
    for part in map(_whole, key):
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def _whole(part: Any) -> int:
    try:
        return operator.index(part)
    except TypeError:
        raise UsageError(f"a seed must be a whole number, got {part!r:.80}") from None


def order(n: int, seed: int, epoch: int) -> Tensor:
    """The permutation of one epoch, (n,) int64.

    >>> sorted(order(5, seed=0, epoch=3).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.randperm(n, generator=keyed_generator(seed, epoch, 1))


def bounds(n: int, batch: int, least: int = 2) -> list[tuple[int, int]]:
    """Start and end of each batch; a last batch below `least` joins the one before (BatchNorm needs two samples).

    >>> bounds(9, 4)
    [(0, 4), (4, 9)]
    """
    edges = [*range(0, n, batch), n]
    if len(edges) > 2 and edges[-1] - edges[-2] < least:
        del edges[-2]
    return list(itertools.pairwise(edges))


def steps_before(done: tuple[int, int], before: list[tuple[int, int]], now: list[tuple[int, int]]) -> int:
    """The steps that lead to where training is: after the whole epochs and the batches of the next that are `done`.

    Another number of processes may cut an epoch's last batch another way; all batches before it lie where they lay.

    >>> steps_before((2, 1), bounds(19, 8), bounds(19, 8, least=4))
    5
    """
    epochs, batches = done
    if before[:batches] != now[:batches]:
        last = before[-1][1] - before[-1][0]
        raise UsageError(
            f"cannot resume with another number of processes: the unfinished epoch ends with a batch of {last} is "
            "left, too small to be shared; go on with the number of processes of the checkpoint"
        )
    return epochs * len(now) + batches


AUGMENTATION = 4  # fourth kind of randomness beside order (1), targets (2) and dropout (3)
LANES = 4  # numbers of 16 bits in a word


def sample_keys(index: Tensor, *, seed: int, epoch: int | Tensor) -> Tensor:
    """One 64-bit key a sample, (B,) int64 indices -> (B,) int64.

    An epoch given as a tensor is one that `epoch_salt` made, with the seed in it: a recorded step reads it anew.

    >>> a, b = (sample_keys(torch.tensor(rows), seed=0, epoch=1) for rows in ([7, 3, 5], [5, 7]))
    >>> bool(a[0] == b[1]), bool(a[2] == b[0]), len(set(a.tolist()))
    (True, True, 3)
    """
    return _mix(index * _GOLDEN + (epoch if isinstance(epoch, Tensor) else epoch_salt(seed, epoch)))


def epoch_salt(seed: int, epoch: int) -> int:
    """What tells the keys of one epoch from those of another.

    >>> index = torch.arange(3)
    >>> given = torch.tensor(epoch_salt(5, 1))
    >>> torch.equal(sample_keys(index, seed=5, epoch=1), sample_keys(index, seed=5, epoch=given))
    True
    """
    return fold(seed, epoch, AUGMENTATION)


def words(keys: Tensor, first: int, count: int) -> Tensor:
    """Draws `first` to `first + count` of each key, 64 random bits each: (B,) -> (B, count) int64.

    >>> keys = sample_keys(torch.arange(3), seed=0, epoch=0)
    >>> torch.equal(words(keys, 0, 9)[:, 4:6], words(keys, 4, 2))
    True
    """
    counter = torch.arange(first + 1, first + 1 + count, device=keys.device) * _GOLDEN
    return _mix(keys[:, None] + counter)


def uniform(keys: Tensor, first: int, count: int) -> Tensor:
    """Uniform draws from [0, 1) in steps of 2^-24: (B,) -> (B, count) float32.

    >>> drawn = uniform(sample_keys(torch.arange(1000), seed=0, epoch=0), 0, 10)
    >>> round(float(drawn.mean()), 2), bool((drawn >= 0).all() and (drawn < 1).all())
    (0.5, True)
    """
    return ((words(keys, first, count) >> 40) & 0xFFFFFF).float() * 2.0**-24


def normal(keys: Tensor, first: int, count: int) -> Tensor:
    """Normal draws, (B,) -> (B, count) float32; they use up a quarter as many words, from `first` on.

    Each takes 16 bits of a word and looks up that quantile, which is fast and gives the same bits on every device.

    >>> drawn = normal(sample_keys(torch.arange(1000), seed=0, epoch=0), 0, 10)
    >>> round(float(drawn.std()), 1), drawn.shape
    (1.0, torch.Size([1000, 10]))
    """
    lanes = words(keys, first, -(-count // LANES)).view(torch.int16).int().bitwise_and_(0xFFFF)
    return _quantiles(keys.device).index_select(0, lanes.flatten()).view(lanes.shape)[:, :count]


@cache
def _quantiles(device: torch.device) -> Tensor:
    """The 65,536 mid-quantiles of the normal distribution, always computed on the CPU: the same on every device."""
    steps = torch.arange(2**16, dtype=torch.float64, device="cpu")
    table: Tensor = torch.special.ndtri((steps + 0.5) * 2.0**-16)
    return table.float().to(device)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64, in place."""
    x ^= (x >> 30).bitwise_and_((1 << 34) - 1)
    x *= _FIRST
    x ^= (x >> 27).bitwise_and_((1 << 37) - 1)
    x *= _SECOND
    x ^= (x >> 31).bitwise_and_((1 << 33) - 1)
    return x


# the three constants of splitmix64 as signed numbers
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def is_column(values: Any) -> bool:
    """Whether an array has one value per row: (N,)."""
    return len(values.shape) == 1


def is_matrix(values: Any) -> bool:
    """Whether an array has one row of values per sample: (N, D)."""
    return len(values.shape) == 2


def pieces(n: int, size: int) -> Iterator[slice]:
    """The rows 0 to n - 1, so many at a time.

    >>> [(rows.start, rows.stop) for rows in pieces(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


MOST = 256
PIXELS = 2**19  # at a time, over all pictures: 0.6 GB in backbone residual
VALUES = 2**22  # at a time, over all samples: for vectors, and for pictures of many channels


GPU = 8  # times as much, not measured: 5 GB in backbone residual, by what a picture takes on a CPU


def at_once(shape: Sequence[int], device: str = "cpu", most: int = MOST) -> int:
    """Samples at a time, for samples of this shape, (F,) or (C, H, W), on this type of device; `most` where small.

    >>> at_once((1, 28, 28)), at_once((3, 224, 224)), at_once((3, 224, 224), "cuda"), at_once((64,))
    (256, 10, 83, 256)
    """
    pixels = math.prod(shape[1:])  # 1 for a vector
    values = math.prod(shape)
    times = 1 if device == "cpu" else GPU
    return max(1, min(most, times * PIXELS // max(pixels, 1), times * VALUES // max(values, 1)))


@final
class Fields:
    """Inputs of several tensors, each with one row per sample: tokenised text has token ids and an attention mask.

    It can be asked as a tensor can: `len`, rows, `shape`, `device`, `to`; and by name, so that a network takes
    `**fields`.

    >>> both = Fields({"input_ids": torch.arange(6).view(3, 2), "attention_mask": torch.ones(3, 2)})
    >>> len(both), both[1:].shape, both["input_ids"].shape
    (3, (2, 2), torch.Size([3, 2]))
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)
        lengths = {name: len(one) for name, one in self._tensors.items()}
        if len(set(lengths.values())) != 1:
            raise UsageError(f"all fields must have the same number of rows, one per sample; got {lengths}")

    def keys(self) -> KeysView[str]:
        """The names of the tensors."""
        return self._tensors.keys()

    def named(self) -> list[tuple[str, Tensor]]:
        """The tensors with their names."""
        return list(self._tensors.items())

    def __len__(self) -> int:
        return len(next(iter(self._tensors.values())))

    @overload
    def __getitem__(self, rows: str) -> Tensor: ...
    @overload
    def __getitem__(self, rows: slice | Tensor) -> Fields: ...
    def __getitem__(self, rows: str | slice | Tensor) -> Tensor | Fields:
        """One tensor by its name, or some samples of all."""
        if isinstance(rows, str):
            return self._tensors[rows]
        return Fields({name: one[rows] for name, one in self._tensors.items()})

    @property
    def shape(self) -> tuple[int, ...]:
        """The samples, and the shape of one in the first tensor."""
        return tuple(next(iter(self._tensors.values())).shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first tensor."""
        return next(iter(self._tensors.values())).dtype

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return next(iter(self._tensors.values())).device

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return sum(one.nbytes for one in self._tensors.values())

    def to(self, device: torch.device | str) -> Fields:
        """The same on a device."""
        return Fields({name: one.to(device) for name, one in self._tensors.items()})


Inputs: TypeAlias = Tensor | Fields  # what a network receives of some samples: (B, ...), or several such tensors


def split(inputs: Inputs, size: int) -> list[Any]:
    """Inputs, so many samples at a time; views, nothing is copied.

    >>> [len(part) for part in split(torch.zeros(5, 2), 2)]
    [2, 2, 1]
    """
    return [inputs[rows] for rows in pieces(len(inputs), size)] or [inputs]


def join(parts: Sequence[Any]) -> Any:
    """The inverse of `split`."""
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    return Fields({name: torch.cat([part[name] for part in parts]) for name, _ in parts[0].named()})


def tensors_of(inputs: Inputs) -> list[tuple[str, Tensor]]:
    """The tensors of inputs, by name; a single one has none.

    >>> [name for name, _ in tensors_of(torch.zeros(2, 3))]
    ['']
    """
    return [("", inputs)] if isinstance(inputs, Tensor) else inputs.named()


def all_finite(inputs: Inputs) -> bool:
    """Whether no value is NaN or infinite; a part is looked at at a time, as the whole may lie in a file.

    >>> all_finite(torch.tensor([[1.0], [float("nan")]]))
    False
    """
    floats = [one for _, one in tensors_of(inputs) if one.is_floating_point()]
    return all(bool(torch.isfinite(part).all()) for one in floats for part in split(one, PIECE))


PIECE = 4096  # samples that are looked at together
