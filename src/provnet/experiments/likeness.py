"""Whether samples look alike, as far as the distance of pixels tells it: a measure that no network had a part in."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

AT_ONCE = 1_000  # samples whose distances to all others are held at a time


def nearer(asked: Tensor, first: Tensor, second: Tensor) -> np.ndarray:
    """(n,) whether `asked` is nearer to `first` than to `second`, picture by picture.

    >>> black, grey, white = (torch.full((1, 1, 2, 2), level, dtype=torch.uint8) for level in (0, 100, 255))
    >>> nearer(grey, black, white).tolist(), nearer(grey, white, black).tolist(), nearer(grey, black, black).tolist()
    ([True], [False], [False])
    """
    away = [(_flat(asked) - _flat(one)).square().sum(1) for one in (first, second)]
    return np.asarray((away[0] < away[1]).numpy())


def together(images: Tensor, groups: np.ndarray) -> np.ndarray:
    """(n,) whether the nearest other picture lies in the same group (n,).

    >>> levels = torch.tensor([0, 10, 200, 210], dtype=torch.uint8).view(4, 1, 1, 1)
    >>> together(levels, np.array([0, 0, 1, 2])).tolist()
    [True, True, False, False]
    """
    pixels = _flat(images)
    nearest = []
    for start in range(0, len(pixels), AT_ONCE):
        away = torch.cdist(pixels[start : start + AT_ONCE], pixels)
        mine = torch.arange(len(away))
        away[mine, start + mine] = torch.inf
        nearest.append(away.argmin(1))
    return np.asarray(groups[torch.cat(nearest).numpy()] == groups)


def by_chance(groups: np.ndarray) -> float:
    """How often another sample, drawn by chance, lies in the same group.

    >>> by_chance(np.array([0, 0, 1, 1]))
    0.3333333333333333
    """
    _, sizes = np.unique(groups, return_counts=True)
    n = len(groups)
    return float((sizes * (sizes - 1)).sum() / (n * (n - 1)))


def _flat(images: Tensor) -> Tensor:
    return images.flatten(1).to(torch.float64)  # sums of squares of whole numbers stay exact, so equal is equal
