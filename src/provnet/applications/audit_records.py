"""What a membership audit finds, as plain records; figures with n and interval, curves thinned for drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from provnet.curves import Operating, Roc, auc, roc, tpr_at
from provnet.stats import Interval

RATES = (0.01, 0.001)
BINS = 40
KEYS_ABOUT = "the same network, weights drawn anew, with a key of its own for each member"


@dataclass(frozen=True, eq=False)
class ScoreAudit:
    """What one score achieves.

    Attributes:
        auc: area under the ROC curve.
        at: allowed false-positive rate -> what is found there.
        curve: the ROC curve.
        edges: (BINS + 1,) of the histograms.
        members, nonmembers: (BINS,) counts.
    """

    auc: Interval
    at: Mapping[float, Operating]
    curve: Roc
    edges: np.ndarray
    members: np.ndarray
    nonmembers: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Plain values; the curve is thinned."""
        return {
            "auc": self.auc.to_json(),
            "tpr_at_fpr": {f"{rate:g}": found.to_json() for rate, found in self.at.items()},
            "histogram": {
                "edges": self.edges.tolist(),
                "members": self.members.tolist(),
                "nonmembers": self.nonmembers.tolist(),
            },
            "roc": [[float(x), float(y)] for x, y in thinned(self.curve)],
        }


@dataclass(frozen=True, eq=False)
class Audit:
    """All figures of an audit.

    Attributes:
        members, nonmembers: how many pictures of each were scored.
        left_out: why -> how many were left out.
        scores: name in SCORES -> what it achieves on the pictures as they are.
        lookup: `bytes` and `pixels` -> members and nonmembers whose hash is in the sample table.
        null: name -> AUC on a network that saw neither; `null_about` says what that is.
        null_keys: name -> AUC on a network with weights drawn anew that keeps a key of its own for each member: what
            storing them gives away, without any training; None for an output layer, which stores nothing.
        distorted: distortion -> name -> what it achieves on distorted copies of both.
        decides: the score that verdicts on single pictures rest on.
        heldout: (m,) rising, that score of nonmembers; `copies`: (k,) rising, of distorted members, all kinds together.
    """

    members: int
    nonmembers: int
    left_out: Mapping[str, int]
    scores: Mapping[str, ScoreAudit]
    lookup: Mapping[str, Mapping[str, Interval]]
    null: Mapping[str, Interval]
    null_about: str
    distorted: Mapping[str, Mapping[str, ScoreAudit]]
    decides: str
    heldout: np.ndarray
    copies: np.ndarray
    null_keys: Mapping[str, Interval] | None = None

    def __repr__(self) -> str:
        """One line: curves and histograms would fill a page."""
        name = self.best()
        found = f"best score {name}, AUC {self.scores[name].auc.value or 0.0:.3f}"
        return f"Audit({self.members:,} members, {self.nonmembers:,} nonmembers, {found})"

    def best(self, distortion: str | None = None) -> str:
        """The score with the largest AUC, clean or under a distortion."""
        found = self.scores if distortion is None else self.distorted[distortion]
        return max(found, key=lambda name: found[name].auc.value or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values, rates in 0..1."""
        return {
            "members": self.members,
            "nonmembers": self.nonmembers,
            "left_out": dict(self.left_out),
            "scores": {name: one.to_json() for name, one in self.scores.items()},
            "lookup": {kind: {side: rate.to_json() for side, rate in of.items()} for kind, of in self.lookup.items()},
            "null": {"about": self.null_about, "auc": {name: one.to_json() for name, one in self.null.items()}},
            "null_keys": None
            if self.null_keys is None
            else {"about": KEYS_ABOUT, "auc": {name: one.to_json() for name, one in self.null_keys.items()}},
            "distorted": {
                kind: {
                    name: {key: value for key, value in one.to_json().items() if key in ("auc", "tpr_at_fpr")}
                    for name, one in of.items()
                }
                for kind, of in self.distorted.items()
            },
        }


def audit_scores(members: np.ndarray, nonmembers: np.ndarray) -> ScoreAudit:
    """The figures of one score, given for members and for nonmembers.

    >>> audit_scores(np.array([0.9, 0.8]), np.array([0.1, 0.8])).auc.value
    0.875
    """
    truth = np.arange(len(members) + len(nonmembers)) < len(members)
    score = np.concatenate([members, nonmembers])
    low, high = float(score.min()), float(score.max())
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    return ScoreAudit(
        auc=auc(truth, score),
        at={rate: tpr_at(truth, score, rate) for rate in RATES},
        curve=roc(truth, score),
        edges=edges,
        members=np.histogram(members, edges)[0],
        nonmembers=np.histogram(nonmembers, edges)[0],
    )


def thinned(curve: Roc, most: int = 150) -> np.ndarray:
    """(P, 2) false- and true-positive rates of some points of a curve, close enough to draw it, also on log axes.

    >>> thinned(roc(np.array([True, False]), np.array([1.0, 0.0]))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    kept = np.arange(len(curve.hits))
    if len(kept) > 2 * most:
        allowed = np.concatenate([np.geomspace(1, curve.negatives, most), np.linspace(0, curve.negatives, most)])
        wanted = np.linspace(0, curve.positives, most)
        best = np.searchsorted(curve.alarms, allowed, "right") - 1  # the last point with so few false alarms
        first = np.searchsorted(curve.hits, wanted)  # the first point that finds so many
        kept = np.unique(np.concatenate([best, first, [0, len(curve.hits) - 1]]))
    return np.stack([curve.fpr[kept], curve.tpr[kept]], 1)
