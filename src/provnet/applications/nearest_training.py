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

from provnet.errors import NonFiniteError, UsageError
from provnet.keybank import first_not_finite
from provnet.models.exemplar import unit
from provnet.retrieval import top_k

QUERIES, NUMBERS = 1024, 2**23  # at a time: queries, and float64 numbers
CANDIDATES = 16  # keys of a query whose exact distance is taken
ROUNDING = 2**-22  # of an fp32 product, its two sides and a length, with some room


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
    """The nearest of the keys (N, D) to each query (B, D), exactly; of equally near ones the lower row.

    >>> nearest(torch.tensor([[4.0]]), torch.tensor([[0.0], [3.0]])).distance.tolist()
    [1.0]
    """
    if len(queries) == 0 or len(keys) == 0:
        raise UsageError(f"nothing to compare: {len(queries)} images and {len(keys)} training samples")
    for kind, values in (("image", queries), ("training sample", keys)):
        if (bad := first_not_finite(values)) is not None:
            raise NonFiniteError(f"{kind} {bad} holds NaN or infinity: no distance can be told; check the input")
    centre, wide, longest = _centred(keys)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    step = min(QUERIES, max(NUMBERS // (CANDIDATES * max(keys.shape[1], 1)), 1))
    for start in range(0, len(queries), step):
        some = queries[start : start + step].to(keys.device).double()
        rows, near, following, doubtful = _quick(some, keys, centre, wide, longest)
        if bool(doubtful.any()):
            rows[doubtful], near[doubtful], following[doubtful] = _slow(some[doubtful], keys)
        found.append((rows.cpu(), near.cpu(), following.cpu()))
    return Nearest(*(np.asarray(torch.cat(part).numpy()) for part in zip(*found, strict=True)))


def _centred(keys: Tensor) -> tuple[Tensor, Tensor, float]:
    """(D,) mean, (N, D + 1) fp32 keys around it with -|x|²/2, and the largest |x|: an offset costs all the digits."""
    parts = torch.split(keys, max(NUMBERS // max(keys.shape[1], 1), 1))
    centre = torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(keys)
    wide, start, longest = keys.new_empty((len(keys), keys.shape[1] + 1), dtype=torch.float32), 0, 0.0
    for part in parts:
        around = part.double() - centre
        squares = around.square().sum(1)
        longest = max(longest, float(squares.max()) ** 0.5)
        wide[start : start + len(part)] = torch.cat([around, -0.5 * squares.unsqueeze(1)], 1)
        start += len(part)
    return centre, wide, longest


def _quick(
    some: Tensor, keys: Tensor, centre: Tensor, wide: Tensor, longest: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row, distance, the next distance, and whether rounding could have kept a nearer key from the candidates."""
    around = some - centre
    # the smallest |q - x|² is the largest q·x - |x|²/2: one more number makes it an inner product
    best = top_k(torch.cat([around, torch.ones_like(around[:, :1])], 1).float(), wide, CANDIDATES)
    candidates = best.row.sort(1).values  # so that of equal distances the lower row comes first
    gaps = (some.unsqueeze(1) - keys[candidates].double()).square().sum(2)
    gaps, order = gaps.sort(dim=1, stable=True)
    following = gaps[:, 1] if gaps.shape[1] > 1 else torch.full_like(gaps[:, 0], torch.inf)
    length = around.square().sum(1)
    # a key that is no candidate is at least this far away, half of the square
    beyond = length / 2 - best.score[:, -1] - ROUNDING * longest * (length.sqrt() + longest / 2)
    doubtful = (following / 2 >= beyond) & (gaps.shape[1] < len(keys))
    return candidates.gather(1, order)[:, 0], gaps[:, 0].sqrt(), following.sqrt(), doubtful


def _slow(some: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, distance and the next distance by float64 differences with every key, a block of keys at a time."""
    near, following = (some.new_full((len(some),), torch.inf) for _ in range(2))
    rows, start = torch.zeros_like(near, dtype=torch.int64), 0
    for part in torch.split(keys, max(NUMBERS // max(keys.shape[1], len(some)), 1)):
        gaps = torch.cdist(some, part.double(), compute_mode="donot_use_mm_for_euclid_dist")
        place = gaps.argmin(1, keepdim=True)  # the first of equal ones
        first = gaps.gather(1, place)[:, 0]
        second = gaps.scatter_(1, place, torch.inf).amin(1)
        following = torch.minimum(torch.maximum(near, first), torch.minimum(following, second))
        rows = torch.where(first < near, place[:, 0] + start, rows)
        near, start = torch.minimum(near, first), start + len(part)
    return rows, near, following
