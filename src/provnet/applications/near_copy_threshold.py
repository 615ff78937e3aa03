"""When a picture counts as a near-copy: a threshold on the copy ratio, set on pictures that are no copies.

Held-out real pictures of the same kind show how near fresh pictures come to a training picture by chance. The p-value
of a picture is the share of them, itself counted in, whose ratio is as small; at or below the stated rate of false
alarms it is a near-copy. Where there are no held-out pictures, training pictures are each compared with all others.
A picture that is less like its nearest than 99 in 100 held-out pictures are like theirs is no copy, whatever its ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.near_copies import CopyRatios, copy_ratios
from provnet.data.batches import keyed_generator
from provnet.errors import UsageError
from provnet.inputs import real
from provnet.training.progress import progress_bar

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
    if not 0 < real("the rate of false alarms", false_alarms) < 0.5:
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
