"""Is the confidence calibrated on distorted copies? Of the copies that a run is 80 % sure of, 80 % should be right.

Two confidences: the class branch's, on copies of unseen pictures (is the class right?), and the index branch's largest
share, on copies of training samples (is the sample named that the copy was made of?); equal samples are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.copies import copies_of
from provnet.curves import calibration_error
from provnet.data.batches import fold
from provnet.explanation import explain
from provnet.inputs import Fitted, run_of
from provnet.modelfile import Run
from provnet.stats import LEVEL, Interval, wilson

BINS, DRAWS = 15, 500


@dataclass(frozen=True)
class Bin:
    """Answers of about one confidence: their number, mean confidence, and how many are right."""

    n: int
    confidence: float
    right: Interval


@dataclass(frozen=True)
class Calibrated:
    """How far confidence and truth lie apart.

    Attributes:
        ece: expected calibration error over 15 bins of equal width, with a bootstrap interval; 0 is perfect.
        confidence: the mean.
        right: the share that is right.
        bins: those that hold answers.
    """

    ece: Interval
    confidence: float
    right: Interval
    bins: tuple[Bin, ...]

    @property
    def leans(self) -> str:
        """In a word, which way it errs on the whole."""
        gap = self.confidence - (self.right.value or 0.0)
        return "overconfident" if gap > 0 else "underconfident"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [{"n": one.n, "confidence": one.confidence, "right": one.right.to_json()} for one in self.bins]
        about = {"confidence": self.confidence, "right": self.right.to_json(), "leans": self.leans}
        return {"ece": self.ece.to_json(), **about, "bins": rows}


def calibrated(confidence: np.ndarray, right: np.ndarray, *, seed: int = 0, draws: int = DRAWS) -> Calibrated:
    """Compare (n,) confidences in 0..1 with (n,) right or wrong.

    >>> found = calibrated(np.array([0.9] * 10), np.array([True] * 9 + [False]))
    >>> round(found.ece.value, 6), len(found.bins)
    (0.0, 1)
    """
    confidence, right = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    value = calibration_error(confidence, right, BINS)
    chance = np.random.default_rng([seed, 67])
    drawn = []
    for _ in range(draws):
        rows = chance.integers(0, len(right), len(right))
        drawn.append(calibration_error(confidence[rows], right[rows], BINS))
    # the error of a draw is larger than that of the samples themselves, as chance adds gaps: shift that away
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - (np.mean(drawn) - value)
    ece = Interval(value, len(right), max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))
    place = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1).astype(np.int64)
    bins = []
    for number in np.unique(place).tolist():
        mine = place == number
        n = int(mine.sum())
        bins.append(Bin(n, float(confidence[mine].mean()), wilson(int(right[mine].sum()), n)))
    return Calibrated(ece, float(confidence.mean()), wilson(int(right.sum()), len(right)), tuple(bins))


def class_calibration(run: Run | Fitted, images: Tensor, labels: np.ndarray, *, seed: int = 0) -> Calibrated:
    """The class branch on distorted copies of raw pictures (n, ...) with their labels (n,)."""
    run = run_of(run)
    sure, hits = [], []
    for number, copy in enumerate(copies_of(images).values()):
        found = explain(run, copy(images, fold(seed, number)), k=1)
        sure.append(found.confidence)
        hits.append(found.predicted == labels)
    return calibrated(np.concatenate(sure), np.concatenate(hits), seed=seed)


def index_calibration(run: Run | Fitted, images: Tensor, index: np.ndarray, *, seed: int = 0) -> Calibrated:
    """The index branch on distorted copies of the raw training samples `index` (n,); equal pictures count as one.

    So does their confidence: equal samples share their weight, see `equal`, and that of the picture is the sum.
    """
    run = run_of(run)
    groups, shared = run.samples.groups, _shared_by(run)
    sure, hits = [], []
    for number, copy in enumerate(copies_of(images).values()):
        found = explain(run, copy(images, fold(seed, number)), k=1)
        named = found.index[:, 0]
        sure.append(np.where(named >= 0, found.weight[:, 0] * shared[named], 0.0))
        hits.append((named >= 0) & (groups[np.maximum(named, 0)] == groups[index]))
    return calibrated(np.concatenate(sure).clip(0, 1), np.concatenate(hits), seed=seed)


def _shared_by(run: Run) -> np.ndarray:
    """(N,) how many samples that may be named share the weight of each one; a head may look within one class alone."""
    samples, head = run.samples, run.network.index_head
    numbers = samples.groups
    if head.valid(torch.zeros(1, dtype=torch.int64, device=run.network.index_map.labels.device)) is not None:
        numbers = np.unique(numbers * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    return np.asarray(np.bincount(numbers[~samples.withheld], minlength=int(numbers.max()) + 1)[numbers])
