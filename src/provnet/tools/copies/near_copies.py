"""How near a picture lies to one training picture, compared with how near the next ones lie: the copy ratio.

A distance alone misleads: simple and blurred pictures are near everything, noisy ones near nothing. So the 20 nearest
training pictures are found, the picture is laid into the space between them, which takes away noise and detail that
none of them has, and its distance to the nearest is divided by the usual distance to the others. A copy has a ratio
near 0; a fresh picture lies among its neighbours, near 1. Copies of one picture within the training data count once, so
that they do not hide a copy of them all.

Letters: B pictures, N training pictures, K candidates, M neighbours, D numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import at_once, keyed_generator, pieces
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.progress import progress_bar
from provnet.data.modalities.decode import are_pictures
from provnet.runs.inputs import finite_number

SIDE, COARSE = 32, 13  # longest side that is compared, and that is searched
LEVELS = (0.0, 0.7, 1.2, 2.0)  # spread, in pixels, of the blur that a training picture is given to match a blurred copy
SHIFTS = tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1))
SMALLEST = 6  # pictures with a shorter side are compared as plain numbers


def shrink(images: Tensor) -> Tensor:
    """Raw pictures (B, C, H, W) as floats, no side above 32; anything else as one row of numbers (B, D).

    >>> shrink(torch.zeros(2, 3, 64, 48, dtype=torch.uint8)).shape
    torch.Size([2, 3, 32, 32])
    """
    values = images.float()
    if not are_pictures(values, SMALLEST):
        return values.flatten(1)
    height, width = (min(SIDE, have) for have in values.shape[2:])
    same = (height, width) == tuple(values.shape[2:])
    return values if same else F.adaptive_avg_pool2d(values, (height, width))


def blur(images: Tensor, level: float) -> Tensor:
    """Reduced pictures under a Gaussian blur of `level` pixels; numbers that are no pictures stay as they are.

    >>> round(float(blur(torch.ones(1, 1, 9, 9), 1.0)[0, 0, 4, 4]), 5)
    1.0
    """
    if level == 0 or not are_pictures(images):
        return images
    reach = min(int(2 * level + 0.5) + 1, min(images.shape[2:]) - 1)
    steps = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    weights = torch.exp(-(steps**2) / (2 * level**2))
    weights = weights / weights.sum()
    channels = images.shape[1]
    wide = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    across = F.conv2d(wide, weights.view(1, 1, 1, -1).repeat(channels, 1, 1, 1), groups=channels)
    return F.conv2d(across, weights.view(1, 1, -1, 1).repeat(channels, 1, 1, 1), groups=channels)


def fine(images: Tensor) -> Tensor:
    """(B, D) at length one: reduced pictures without their margin, slightly smoothed."""
    return _unit(F.avg_pool2d(images[:, :, 1:-1, 1:-1], 3, 1, 1) if are_pictures(images) else images)


def coarse(images: Tensor) -> Tensor:
    """(B, D) at length one, of fewer numbers: what is searched."""
    if not are_pictures(images):
        return _unit(images)
    inner = F.avg_pool2d(images[:, :, 1:-1, 1:-1], 3, 1, 1)
    height, width = (min(COARSE, have) for have in inner.shape[2:])
    return _unit(F.adaptive_avg_pool2d(inner, (height, width)))


def shift_each_way(images: Tensor) -> list[Tensor]:
    """Reduced pictures, moved by up to a pixel each way: S of them; numbers that are no pictures once.

    >>> len(shift_each_way(torch.zeros(1, 1, 28, 28))), len(shift_each_way(torch.zeros(1, 5)))
    (9, 1)
    """
    if not are_pictures(images):
        return [images]
    return [torch.roll(images, shift, (2, 3)) for shift in SHIFTS]


def levels_of(images: Tensor) -> tuple[float, ...]:
    """The steps of blur that apply to this kind of data."""
    return LEVELS if are_pictures(shrink(images[:1])) else LEVELS[:1]


def _unit(values: Tensor) -> Tensor:
    """Rows without their mean, at length one; a picture of one colour is zero."""
    flat = values.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)


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
    keys = torch.cat([coarse(shrink(part.to(device))) for part in torch.split(training, few)])
    parts = []
    for some in pieces(len(images), QUERIES):
        queries = shrink(images[some].to(device))
        banned = None
        if groups is not None and own is not None:
            banned = _same_group(groups, own[some], device)
        rows = _candidates(queries, keys, banned)
        near = torch.cat([shrink(training[part].to(device)) for part in torch.split(rows.cpu().flatten(), few)])
        found = [_compared(queries, blur(near, step), rows) for step in steps]
        best = torch.stack([each.cosine for each in found]).argmax(0)
        place = torch.arange(len(best), device=best.device)
        ratio, cosine, row = (
            torch.stack([getattr(each, name) for each in found])[best, place].cpu().numpy()
            for name in ("ratio", "cosine", "row")
        )
        parts.append(CopyRatios(ratio, cosine, row, best.cpu().numpy()))
        if report is not None:
            report(some.stop)
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
    shifted = torch.stack([fine(each) for each in shift_each_way(queries)], 1)  # (B, S, D)
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
    shifted = [coarse(each) for each in shift_each_way(queries)]
    score = torch.full((len(queries), 0), -torch.inf, device=keys.device)
    row = torch.empty((len(queries), 0), dtype=torch.int64, device=keys.device)
    for rows in pieces(len(keys), KEYS):
        part = keys[rows]
        best = shifted[0] @ part.t()
        for each in shifted[1:]:
            best = torch.maximum(best, each @ part.t())
        if banned is not None:
            best = best.masked_fill(banned(rows), -torch.inf)
        here = torch.arange(rows.start, rows.stop, device=keys.device).expand_as(best)
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


FALSE_ALARMS = 0.005
CALIBRATED = 4_000  # pictures at most: each costs as much as a picture that is asked about
UNLIKE = 0.01  # of held-out pictures are less like their nearest
FAR = math.inf


@dataclass(frozen=True, eq=False)
class Calibration:
    """What pictures are judged by.

    Attributes:
        scores: (n,) float64, rising: ratios of pictures that are no copies; infinite where they are unlike any.
        least_cosine: likeness below which a picture is no copy.
        false_alarms: the stated rate.
        about: which pictures, in words.
    """

    scores: np.ndarray
    least_cosine: float
    false_alarms: float
    about: str

    @property
    def enough(self) -> bool:
        """Whether there are so many pictures that a near-copy can be told at the stated rate."""
        return bool(1 / (len(self.scores) + 1) <= self.false_alarms)

    @property
    def threshold(self) -> float:
        """The largest ratio that is flagged; below 0 where there are too few pictures to tell.

        >>> Calibration(np.linspace(0.1, 1, 999), 0.5, 0.01, "").threshold < 0.11
        True
        """
        if not self.enough:
            return -1.0
        count = math.floor(self.false_alarms * (len(self.scores) + 1) + 1e-9)
        # a ratio just below the count-th smallest has count - 1 below it, and itself
        return float(np.nextafter(self.scores[count - 1], -math.inf))

    def score(self, found: CopyRatios) -> np.ndarray:
        """(B,) the ratio, infinite for pictures that are unlike any."""
        return np.where(found.cosine >= self.least_cosine, found.ratio, FAR)

    def p_value(self, score: np.ndarray) -> np.ndarray:
        """(B,) the share of pictures that are no copies with a score as small, this one counted in."""
        below = np.searchsorted(self.scores, score, "right")
        return np.asarray((1 + below) / (1 + len(self.scores)))

    def to_json(self) -> dict[str, Any]:
        """Plain values; the scores by their quantiles."""
        shares = (0.001, 0.005, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
        finite = self.scores[np.isfinite(self.scores)]
        return {
            "about": self.about,
            "n": len(self.scores),
            "false_alarms": self.false_alarms,
            "threshold": self.threshold if self.enough else None,
            "least_cosine": self.least_cosine,
            "quantiles": {f"{share:g}": float(np.quantile(finite, share)) for share in shares} if len(finite) else {},
        }


def calibrate_copies(
    training: Tensor,
    heldout: Tensor | None,
    *,
    groups: np.ndarray | None = None,
    false_alarms: float = FALSE_ALARMS,
    most: int = CALIBRATED,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Calibration:
    """Set the threshold on held-out pictures (m, ...), or on the training pictures (N, ...) each against all others.

    `groups` (N,) gives training pictures of equal pixels the same number: none is judged by its duplicate.

    >>> import provnet
    >>> images = provnet.open_data("embedded", limit=60).images
    >>> calibrate_copies(images, None).about
    '60 training pictures, each against all others'
    """
    if not 0 < finite_number("the rate of false alarms", false_alarms) < 0.5:
        raise UsageError(f"the rate of false alarms must lie above 0 and below 0.5, got {false_alarms}")
    source = training if heldout is None or len(heldout) == 0 else heldout
    rows = torch.randperm(len(source), generator=keyed_generator(seed, 61))[:most].sort().values
    own, of = None, None
    if source is training:
        of = np.arange(len(training)) if groups is None else groups
        own = of[rows.numpy()]
        about = f"{len(rows):,} training pictures, each against all others"
    else:
        about = f"{len(rows):,} held-out pictures"
    with progress_bar("calibrating", len(rows), progress) as update:
        found = copy_ratios(
            source[rows], training, groups=of, own=own, device=device, report=lambda done: update(done, "")
        )
    least = float(np.quantile(found.cosine, UNLIKE))
    scores = np.sort(np.where(found.cosine >= least, found.ratio, FAR))
    return Calibration(scores, least, false_alarms, about)
