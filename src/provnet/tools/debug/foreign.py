"""Which samples are of no class: far from all whose labels the other samples confirm.

Foreign pictures of one kind lie close to each other, so the distance to the nearest of all samples does not tell them;
but labels drawn for them confirm nothing, so the distance to confirmed samples does.

Letters: N samples, C classes, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.answers.out_of_fold import gaussian_scores
from provnet.heads.retrieval import top_k

SHRINK = 0.8  # of the spread by which samples are told from foreign ones
FOLDS = 5
NEAREST = 10  # confirmed samples
CONFIRMED = 0.6  # share of the samples that may be confirmed: those that are most surely what they are labelled
GAUSS = float(np.sqrt(2 * np.pi))
PIECE = 4096


@dataclass(frozen=True, eq=False)
class Oddness:
    """(N,) how far samples lie from the confirmed ones: from the nearest class, and from the tenth sample; and both
    added up in robust standard deviations.
    """

    class_distance: np.ndarray
    alone: np.ndarray
    far: np.ndarray


def oddness(z: Tensor, labels: Tensor, classes: int, confirmed: Tensor, seed: int = 0) -> Oddness:
    """How far samples (N, D) of length one lie from those that are `confirmed` (N,), each measured without itself."""
    near = -2 * gaussian_scores(
        z, labels, classes, confirmed.double() + 1e-9, folds=FOLDS, seed=seed, shrink=SHRINK
    ).amax(1)
    rows = confirmed.nonzero()[:, 0]
    k = min(NEAREST, max(len(rows) - 1, 1))
    cosine = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    if len(rows):
        parts = [top_k(each, z[rows], min(k + 1, len(rows))).score for each in torch.split(z, PIECE)]
        found = torch.cat(parts).double()
        last = found.shape[1] - 1
        cosine = torch.where(confirmed, found[:, last], found[:, min(k - 1, last)])  # the first is the sample itself
    class_distance = near.clamp_min(1e-9).log().cpu().numpy()
    alone = (1 - cosine).clamp_min(1e-6).log().cpu().numpy()
    return Oddness(class_distance, alone, _robust(class_distance) + _robust(alone))


def _robust(values: np.ndarray) -> np.ndarray:
    middle = float(np.median(values))
    return np.asarray((values - middle) / max(1.4826 * float(np.median(np.abs(values - middle))), 1e-9))


def foreign_probability(far: np.ndarray, agrees: np.ndarray, classes: int, *, steps: int = 100) -> np.ndarray:
    """(N,) probability that a sample is of no class, from oddness (N,) and whether its label is the one predicted.

    Two groups: known samples, whose oddness has a light tail on one side and a heavier one on the other, and foreign
    ones, farther out, whose labels agree by chance alone. Both are found by expectation and maximisation.

    >>> chance = np.random.default_rng(0)
    >>> far = np.append(chance.normal(size=480), chance.normal(9, 1, 20))
    >>> found = foreign_probability(far, np.append(np.ones(480, bool), chance.random(20) < 0.1), 10)
    >>> bool(found[480:].min() > 0.9), bool((found[:480] < 0.5).all())
    (True, True)
    """
    middle = float(np.median(far))
    low, high = far[far <= middle], far[(far > middle) & (far < np.quantile(far, 0.9))]
    left = float(np.sqrt(np.mean((low - middle) ** 2))) + 1e-9
    right = max(1.25 * left, 1.25 * float(np.sqrt(np.mean((high - middle) ** 2))) if len(high) else left)
    agreeing = float(np.clip(agrees[far <= np.quantile(far, 0.8)].mean(), 0.02, 0.98))
    as_known = np.where(agrees, agreeing, 1 - agreeing) * _known(far, middle, left, right)
    by_chance = np.where(agrees, 1 / classes, 1 - 1 / classes)
    centre, spread, share = middle + 4.5 * right, 1.5 * right, 0.02
    p = np.zeros(len(far))
    for _ in range(steps):
        away = np.exp(-0.5 * ((far - centre) / spread) ** 2)
        away = np.where(far > centre, np.maximum(away, np.exp(-0.5)), away) / (spread * GAUSS)
        strange = share * away * by_chance
        p = strange / ((1 - share) * as_known + strange + 1e-300)
        weight = float(p.sum()) + 1e-9
        share = float(np.clip((p.sum() + 0.5) / (len(far) + 50), 1e-5, 0.3))
        centre = max(float(p @ far + 3 * (middle + 4.5 * right)) / (weight + 3), middle + 3 * right)
        variance = float(p @ (far - centre) ** 2 + 3 * (1.5 * right) ** 2) / (weight + 3)
        spread = float(np.clip(np.sqrt(variance), 0.5 * right, 4 * right))
    return np.asarray(p)


def _known(far: np.ndarray, middle: float, left: float, right: float) -> np.ndarray:
    """Density of the oddness of known samples: Gauss on either side, with an exponential tail from 2.5 spreads on."""
    u = np.abs(far - middle) / np.where(far < middle, left, right)
    tail = np.exp(-0.5 * 2.5**2 - 2.0 * (u - 2.5))
    return np.asarray(2 / (left + right) * np.where(u < 2.5, np.exp(-0.5 * u**2), tail) / GAUSS)
