"""The training samples nearest to an image, by plain pixels and by the network's features: the control.

Distances are Euclidean: of pixels as the root of the mean square on a scale of 0 to 1, of features at length one, so
that they lie between 0 and 2. Every training sample is compared.

Letters: B images, N training samples, D numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.errors import UsageError
from provnet.models.exemplar import unit
from provnet.retrieval import top_k

QUERIES = 1024


@dataclass(frozen=True, eq=False)
class Nearest:
    """(B,) the nearest row, its distance, and the distance of the next one, infinite where there is none."""

    row: np.ndarray
    distance: np.ndarray
    following: np.ndarray


def nearest_pixels(images: Tensor, training: Tensor, *, device: torch.device | str = "cpu") -> Nearest:
    """Compare raw images (B, ...) with raw training samples (N, ...), by the root of the mean squared difference.

    >>> found = nearest_pixels(torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    >>> found.row.tolist(), found.distance.tolist(), found.following.round(3).tolist()
    ([1], [0.0], [0.707])
    """
    scale = 255.0 if training.dtype == torch.uint8 else 1.0
    keys = training.flatten(1).to(device).float() / scale
    found = nearest(images.flatten(1).float() / (255.0 if images.dtype == torch.uint8 else 1.0), keys)
    root = keys.shape[1] ** 0.5
    return Nearest(found.row, found.distance / root, found.following / root)


def nearest_features(features: np.ndarray, training: np.ndarray, *, device: torch.device | str = "cpu") -> Nearest:
    """Compare features (B, D) with those of training samples (N, D), all brought to length one."""
    sides = [unit(torch.from_numpy(values)) for values in (features, training)]
    return nearest(sides[0], sides[1].to(device))


def nearest(queries: Tensor, keys: Tensor) -> Nearest:
    """The nearest of the keys (N, D) to each query (B, D), exactly.

    >>> nearest(torch.tensor([[4.0]]), torch.tensor([[0.0], [3.0]])).distance.tolist()
    [1.0]
    """
    if len(queries) == 0 or len(keys) == 0:
        raise UsageError(f"nothing to compare: {len(queries)} images and {len(keys)} training samples")
    # the smallest |q - x|² is the largest q·x - |x|²/2: one more number makes it an inner product
    lengths = -0.5 * keys.double().square().sum(1, keepdim=True)
    wide = torch.cat([keys, lengths.float()], 1)
    rows, near, following = [], [], []
    for start in range(0, len(queries), QUERIES):
        some = queries[start : start + QUERIES].to(keys.device)
        found = top_k(torch.cat([some, torch.ones_like(some[:, :1])], 1), wide, 2).row
        gaps = (some.double().unsqueeze(1) - keys[found].double()).square().sum(2).sqrt()
        gaps, order = gaps.sort(dim=1, stable=True)  # rounding may have swapped two that are nearly as near
        rows.append(found.gather(1, order)[:, 0].cpu())
        near.append(gaps[:, 0].cpu())
        following.append(gaps[:, 1].cpu() if gaps.shape[1] > 1 else torch.full_like(near[-1], torch.inf))
    return Nearest(*(np.asarray(torch.cat(part).numpy()) for part in (rows, near, following)))
