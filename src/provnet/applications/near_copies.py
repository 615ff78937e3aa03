"""How near a picture lies to one training picture, compared with how near the next ones lie: the copy ratio.

A distance alone misleads: simple and blurred pictures are near everything, noisy ones near nothing. So the 20 nearest
training pictures are found, the picture is laid into the space between them, which takes away noise and detail that
none of them has, and its distance to the nearest is divided by the usual distance to the others. A copy has a ratio
near 0; a fresh picture lies among its neighbours, near 1. Copies of one picture within the training data count once, so
that they do not hide a copy of them all.

Letters: B pictures, N training pictures, K candidates, M neighbours, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from provnet.applications.near_copy_views import blurred, coarse, fine, levels_of, moved, reduced
from provnet.chunks import at_once
from provnet.errors import NonFiniteError, UsageError

CANDIDATES, NEIGHBOURS = 40, 20
RIDGE = 0.02  # of the usual squared distance between neighbours: keeps the space between them from following noise
SAME = 0.36  # of that usual distance: a training picture so much nearer to the first is the same content
QUERIES, KEYS = 32, 4096  # pictures and training pictures compared at a time; fewer are reduced where they are large
Report = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class CopyRatios:
    """One row a picture.

    Attributes:
        ratio: (B,) float64, 0 at a training picture, near 1 among several; 1 where there is only one to compare with.
        cosine: (B,) float64, likeness to the nearest, of pictures without mean at length one.
        row: (B,) int64, the nearest training picture.
        level: (B,) int64, the step of blur at which it matches best.
    """

    ratio: np.ndarray
    cosine: np.ndarray
    row: np.ndarray
    level: np.ndarray


def copy_ratios(
    images: Tensor,
    training: Tensor,
    *,
    groups: np.ndarray | None = None,
    own: np.ndarray | None = None,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> CopyRatios:
    """Compare raw pictures (B, ...) with raw training pictures (N, ...), each of them, in parts.

    With `groups` (N,) and `own` (B,) training pictures of a picture's own group are passed over: a sample is not its
    own copy.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=200).images
    >>> found = copy_ratios(torch.cat([data[7:8] // 2, data[150:151]]), data[:100])
    >>> int(found.row[0]), bool(found.ratio[0] < 0.05), bool(found.ratio[1] > 0.2)
    (7, True, True)
    """
    _check(images, training)
    steps = levels_of(training)
    few = at_once(training.shape[1:], torch.device(device).type, KEYS)
    keys = torch.cat([coarse(reduced(part.to(device))) for part in torch.split(training, few)])
    parts = []
    for start in range(0, len(images), QUERIES):
        queries = reduced(images[start : start + QUERIES].to(device))
        banned = None
        if groups is not None and own is not None:
            banned = _same_group(groups, own[start : start + QUERIES], device)
        rows = _candidates(queries, keys, banned)
        near = torch.cat([reduced(training[some].to(device)) for some in torch.split(rows.cpu().flatten(), few)])
        found = [_compared(queries, blurred(near, step), rows) for step in steps]
        best = torch.stack([each.cosine for each in found]).argmax(0)
        place = torch.arange(len(best), device=best.device)
        ratio, cosine, row = (
            torch.stack([getattr(each, name) for each in found])[best, place].cpu().numpy()
            for name in ("ratio", "cosine", "row")
        )
        parts.append(CopyRatios(ratio, cosine, row, best.cpu().numpy()))
        if report is not None:
            report(min(start + QUERIES, len(images)))
    return CopyRatios(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(CopyRatios)))


@dataclass(frozen=True, eq=False)
class _Found:
    ratio: Tensor
    cosine: Tensor
    row: Tensor


def _compared(queries: Tensor, near: Tensor, rows: Tensor) -> _Found:
    """Queries with their candidates, all at one step of blur."""
    count, width = rows.shape
    keys = fine(near).view(count, width, -1)
    shifted = torch.stack([fine(each) for each in moved(queries)], 1)  # (B, S, D)
    cosines = shifted @ keys.transpose(1, 2)
    place = torch.arange(count, device=rows.device)
    cosines = cosines[place, cosines.amax(2).argmax(1)].where(rows >= 0, -2.0)  # as moved to where it fits best
    cosines, order = cosines.sort(1, descending=True)
    between = keys @ keys.transpose(1, 2)
    between = between[place[:, None, None], order[:, :, None], order[:, None, :]]
    ratio = _ratio(cosines.double(), between.double())
    return _Found(ratio, cosines[:, 0].double(), rows.gather(1, order)[:, 0])


def _ratio(cosines: Tensor, between: Tensor) -> Tensor:
    """(B,) from the cosines (B, K) of a picture with its candidates, nearest first, and theirs (B, K, K)."""
    first = between[:, 0]
    apart = (2 - 2 * first).clamp_min(0)  # squared distances from the nearest
    real = cosines > -1.5
    usual = apart.masked_fill(~real, torch.nan).nanmedian(1, keepdim=True).values
    other = real & (apart > (SAME**2 * usual).clamp_min(1e-9))
    other[:, 0] = False
    other &= other.cumsum(1) <= NEIGHBOURS
    # coordinates with the nearest as origin: inner products of the others, and of the picture with them
    inner = between - first[:, :, None] - first[:, None, :] + 1
    inner = inner * (other[:, :, None] & other[:, None, :])
    towards = (cosines - cosines[:, :1] - first + 1) * other
    squares = inner.diagonal(dim1=1, dim2=2)
    many = other.sum(1)
    ridge = RIDGE * squares.sum(1) / many.clamp_min(1)
    bent = inner + torch.diag_embed(torch.where(other, ridge[:, None], 1.0))
    weights = torch.linalg.solve(bent, towards.unsqueeze(2)).squeeze(2)
    reached = (inner @ weights.unsqueeze(2)).squeeze(2)
    nearest = (weights * reached).sum(1).clamp_min(0)
    others = (nearest[:, None] - 2 * reached + squares).masked_fill(~other, torch.nan)
    middle = others.nanmedian(1).values.clamp_min(1e-12)
    return torch.where(many > 0, (nearest / middle).sqrt(), 1.0)


def _candidates(queries: Tensor, keys: Tensor, banned: Callable[[slice], Tensor] | None) -> Tensor:
    """(B, K) the training pictures most like each, however it is moved, of all of them; -1 where there are fewer."""
    shifted = [coarse(each) for each in moved(queries)]
    score = torch.full((len(queries), 0), -torch.inf, device=keys.device)
    row = torch.empty((len(queries), 0), dtype=torch.int64, device=keys.device)
    for start in range(0, len(keys), KEYS):
        part = keys[start : start + KEYS]
        best = shifted[0] @ part.t()
        for each in shifted[1:]:
            best = torch.maximum(best, each @ part.t())
        if banned is not None:
            best = best.masked_fill(banned(slice(start, start + len(part))), -torch.inf)
        here = torch.arange(start, start + len(part), device=keys.device).expand_as(best)
        score, row = torch.cat([score, best], 1), torch.cat([row, here], 1)
        kept = score.topk(min(CANDIDATES, score.shape[1]), 1)
        score, row = kept.values, row.gather(1, kept.indices)
    return row.where(torch.isfinite(score), -1)


def _same_group(groups: np.ndarray, own: np.ndarray, device: torch.device | str) -> Callable[[slice], Tensor]:
    every, mine = (torch.from_numpy(np.asarray(values)).to(device) for values in (groups, own))
    return lambda rows: mine.unsqueeze(1) == every[rows].unsqueeze(0)


def _check(images: Tensor, training: Tensor) -> None:
    if len(images) == 0 or len(training) == 0:
        raise UsageError(f"nothing to compare: {len(images)} pictures and {len(training)} training pictures")
    if images.shape[1:] != training.shape[1:]:
        raise UsageError(
            f"pictures of shape {tuple(images.shape[1:])} cannot be compared with training pictures of shape "
            f"{tuple(training.shape[1:])}"
        )
    for name, values in (("pictures", images), ("training pictures", training)):
        if values.is_floating_point() and not bool(torch.isfinite(values).all()):
            raise NonFiniteError(f"the {name} hold NaN or infinite values; no copy can be told")
