"""The training samples nearest to an image, by plain pixels and by the network's features: the control.

Distances are Euclidean: of pixels as the root of the mean square on a scale of 0 to 1, of features at length one, so
that they lie between 0 and 2. Every training sample is compared.

Letters: B images, N training samples, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.errors import NonFiniteError, UsageError
from provnet.keybank import first_not_finite
from provnet.models.exemplar import unit
from provnet.ranks import TopK
from provnet.retrieval import merge, top_k

QUERIES, NUMBERS = 1024, 2**23  # at a time: queries, and float64 numbers
BLOCK = 2**27  # numbers of keys that are held as fp32 at a time
CANDIDATES = 16  # keys of a query whose exact distance is taken
ROUNDING = 2**-22  # of an fp32 product, its two sides and a length, with some room
Floats = Callable[[Tensor], Tensor]  # raw rows -> numbers (B, D)


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
    found = _nearest(images, training, _pixels, torch.device(device))
    root = training[0].numel() ** 0.5
    return Nearest(found.row, found.distance / root, found.following / root)


def _pixels(images: Tensor) -> Tensor:
    """Raw images as floats (B, D), bytes on a scale of 0 to 1."""
    values = images.flatten(1).float()
    return values.div_(255.0) if images.dtype == torch.uint8 else values


def nearest_features(features: np.ndarray, training: np.ndarray, *, device: torch.device | str = "cpu") -> Nearest:
    """Compare features (B, D) with those of training samples (N, D), all brought to length one."""
    sides = [unit(torch.from_numpy(values)) for values in (features, training)]
    return nearest(sides[0], sides[1].to(device))


def nearest(queries: Tensor, keys: Tensor) -> Nearest:
    """The nearest of the keys (N, D) to each query (B, D), exactly; of equally near ones the lower row.

    >>> nearest(torch.tensor([[4.0]]), torch.tensor([[0.0], [3.0]])).distance.tolist()
    [1.0]
    """
    return _nearest(queries, keys, lambda rows: rows, keys.device)


def _nearest(queries: Tensor, keys: Tensor, floats: Floats, device: torch.device) -> Nearest:
    """`nearest` for raw queries and keys (B, ...), (N, ...), which are brought to floats a few at a time."""
    if len(queries) == 0 or len(keys) == 0:
        raise UsageError(f"nothing to compare: {len(queries)} images and {len(keys)} training samples")
    for kind, values in (("image", queries), ("training sample", keys)):
        if values.is_floating_point() and (bad := first_not_finite(values.flatten(1))) is not None:
            raise NonFiniteError(f"{kind} {bad} holds NaN or infinity: no distance can be told; check the input")
    width = max(keys[0].numel(), 1)

    def read(rows: Tensor) -> Tensor:
        return floats(rows.to(device)).double()

    parts = torch.split(keys, max(NUMBERS // width, 1))
    centre = torch.stack([read(part).sum(0) for part in parts]).sum(0) / len(keys)
    step = min(QUERIES, max(NUMBERS // (CANDIDATES * width), 1))
    best, longest = _candidates(torch.split(queries, step), keys, read, centre)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, len(queries), step):
        rows, some = slice(start, start + step), read(queries[start : start + step])
        near = TopK(best.score[rows], best.row[rows])
        row, distance, following, doubtful = _quick(some, keys, read, near, some - centre, longest)
        if bool(doubtful.any()):
            row[doubtful], distance[doubtful], following[doubtful] = _slow(some[doubtful], keys, read)
        found.append((row.cpu(), distance.cpu(), following.cpu()))
    return Nearest(*(np.asarray(torch.cat(part).numpy()) for part in zip(*found, strict=True)))


def _candidates(queries: Sequence[Tensor], keys: Tensor, read: Floats, centre: Tensor) -> tuple[TopK, float]:
    """The keys of each query with the smallest |q - x|² in fp32, block by block of the keys, and the largest |x|."""
    best: dict[int, TopK] = {}
    first, longest = 0, 0.0
    for block in torch.split(keys, max(BLOCK // max(len(centre), 1), 1)):
        wide, far = _centred(block, read, centre)
        longest = max(longest, far)
        for place, some in enumerate(queries):
            around = read(some) - centre
            # the smallest |q - x|² is the largest q·x - |x|²/2: one more number makes it an inner product
            here = top_k(torch.cat([around, torch.ones_like(around[:, :1])], 1).float(), wide, CANDIDATES)
            here = TopK(here.score, here.row + first)
            best[place] = merge([best[place], here], CANDIDATES) if place in best else here
        first += len(block)
    found = best.values()  # in the order of the queries
    return TopK(torch.cat([one.score for one in found]), torch.cat([one.row for one in found])), longest


def _centred(keys: Tensor, read: Floats, centre: Tensor) -> tuple[Tensor, float]:
    """(N, D + 1) fp32 keys around the centre with -|x|²/2, and the largest |x|: an offset costs all the digits."""
    wide = torch.empty((len(keys), len(centre) + 1), dtype=torch.float32, device=centre.device)
    start, longest = 0, 0.0
    for part in torch.split(keys, max(NUMBERS // max(len(centre), 1), 1)):
        around = read(part) - centre
        squares = around.square().sum(1)
        longest = max(longest, float(squares.max()) ** 0.5)
        wide[start : start + len(part)] = torch.cat([around, -0.5 * squares.unsqueeze(1)], 1)
        start += len(part)
    return wide, longest


def _quick(
    some: Tensor, keys: Tensor, read: Floats, best: TopK, around: Tensor, longest: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row, distance, the next distance, and whether rounding could have kept a nearer key from the candidates."""
    candidates = best.row.sort(1).values  # so that of equal distances the lower row comes first
    near = read(keys[candidates.flatten().to(keys.device)]).view(*candidates.shape, -1)
    gaps = (some.unsqueeze(1) - near).square_().sum(2)
    gaps, order = gaps.sort(dim=1, stable=True)
    following = gaps[:, 1] if gaps.shape[1] > 1 else torch.full_like(gaps[:, 0], torch.inf)
    length = around.square().sum(1)
    # a key that is no candidate is at least this far away, half of the square
    beyond = length / 2 - best.score[:, -1] - ROUNDING * longest * (length.sqrt() + longest / 2)
    doubtful = (following / 2 >= beyond) & (gaps.shape[1] < len(keys))
    return candidates.gather(1, order)[:, 0], gaps[:, 0].sqrt(), following.sqrt(), doubtful


def _slow(some: Tensor, keys: Tensor, read: Floats) -> tuple[Tensor, Tensor, Tensor]:
    """Row, distance and the next distance by float64 differences with every key, a block of keys at a time."""
    near, following = (some.new_full((len(some),), torch.inf) for _ in range(2))
    rows, start = torch.zeros_like(near, dtype=torch.int64), 0
    for part in torch.split(keys, max(NUMBERS // max(some.shape[1], len(some)), 1)):
        gaps = torch.cdist(some, read(part), compute_mode="donot_use_mm_for_euclid_dist")
        place = gaps.argmin(1, keepdim=True)  # the first of equal ones
        first = gaps.gather(1, place)[:, 0]
        second = gaps.scatter_(1, place, torch.inf).amin(1)
        following = torch.minimum(torch.maximum(near, first), torch.minimum(following, second))
        rows = torch.where(first < near, place[:, 0] + start, rows)
        near, start = torch.minimum(near, first), start + len(part)
    return rows, near, following
