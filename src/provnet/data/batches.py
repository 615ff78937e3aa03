"""The order of training as a pure function of (seed, epoch), so that any step can be found again."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import Tensor

from provnet.errors import UsageError


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


def carried(done: tuple[int, int], before: list[tuple[int, int]], now: list[tuple[int, int]]) -> int:
    """The steps that lead to where training is: after the whole epochs and the batches of the next that are `done`.

    Another number of processes may cut an epoch's last batch another way; all batches before it lie where they lay.

    >>> carried((2, 1), bounds(19, 8), bounds(19, 8, least=4))
    5
    """
    epochs, batches = done
    if before[:batches] != now[:batches]:
        last = before[-1][1] - before[-1][0]
        raise UsageError(
            f"cannot resume with another number of processes here: of an epoch that was begun a batch of {last} is "
            "left, too small to be shared; go on with the number of processes of the checkpoint"
        )
    return epochs * len(now) + batches
