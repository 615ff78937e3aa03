"""Random numbers without a generator: each is a pure function of (seed, epoch, sample index, number of the draw).

A counter-based hash (splitmix64) on int64 tensors: a sample's numbers do not depend on the batch it is in, on order,
workers, processes or device. Multiplication and addition of int64 wrap around in torch, as the hash needs; the right
shift copies the sign, so every shift is masked.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from provnet.data.batches import fold

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
