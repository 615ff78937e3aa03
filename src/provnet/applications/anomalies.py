"""How odd and how typical each sample is among the training samples, and what the index branch's entropy says of it.

Odd is a sample that lies far from the other samples of its given class (Mahalanobis distance over the backbone's
features, measured without the sample itself), far even from its 30 nearest neighbours (so a handful of equal oddities
do not vouch for each other), and whose class was hard to learn. The paper ranks by the entropy of the index branch and
says both that odd samples have a low one and that they activate many neurons. On planted oddities neither holds
throughout (docs/debugging.md): a sample like no other takes the whole weight for itself, but several oddities of a kind
share it. So it is reported, not added.

Letters: N samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provnet.applications.mislabels import course_level
from provnet.applications.neighbours import Neighbours
from provnet.applications.signals import Signals

WEIGHTS = {"distance": 1.0, "isolation": 0.3, "course": 1.0}
HALF = 3.0  # robust standard deviations above the median where the score is one half: 1 of 1,000 ordinary digits
STEEP = 3.0
UNTYPICAL = 20.0  # robust standard deviations for a label that is certainly wrong
TINY = 1e-4  # of a cosine: samples with equals are at no distance at all


@dataclass(frozen=True, eq=False)
class Anomalies:
    """One row a sample.

    Attributes:
        score: (N,) 0..1, one half at 3 robust standard deviations above the median sample.
        typicality: (N,) 0..1, the share of the samples of the same label that are less typical; one half where there is
            no other of the label.
        parts: name -> (N,) in robust standard deviations: `distance` from the class, `isolation`, `course`; 0 where not
            measured, which is the distance of the only sample of its label, and a course that was not kept.
    """

    score: np.ndarray
    typicality: np.ndarray
    parts: dict[str, np.ndarray]


def anomalies(labels: np.ndarray, signals: Signals, near: Neighbours, mislabel: np.ndarray) -> Anomalies:
    """Score samples (N,) by distance, isolation and course; one whose label is probably wrong is typical of nothing.

    What was not measured has no weight.
    """
    learned, level = course_level(signals.course, len(labels))
    known = {
        "distance": np.bincount(labels)[labels] > 1,  # the only sample of its label has nothing to be far from
        "isolation": np.ones(len(labels), dtype=np.bool_),
        "course": learned,
    }
    values = {
        "distance": np.log(np.maximum(-signals.support, 1e-6)),
        "isolation": np.log(TINY + _isolation(near)),
        "course": level,
    }
    parts = {name: np.where(known[name], robust(value, known[name]), 0.0) for name, value in values.items()}
    weight = {name: np.where(known[name], value, 0.0) for name, value in WEIGHTS.items()}
    total = sum(weight.values())
    combined = robust(np.asarray(sum(weight[name] * part for name, part in parts.items()) / total))
    score = 1 / (1 + np.exp(-np.clip(STEEP * (combined - HALF), -40, 40)))
    oddness = parts["distance"] + parts["isolation"] + UNTYPICAL * mislabel
    return Anomalies(score, _typicality(labels, oddness), parts)


def robust(values: np.ndarray, use: np.ndarray | None = None) -> np.ndarray:
    """Values in robust standard deviations from their median: a few far ones change neither.

    >>> robust(np.array([1.0, 2.0, 3.0, 1000.0])).round(2).tolist()
    [-1.01, -0.34, 0.34, 672.8]
    """
    seen = values if use is None else values[use]
    if len(seen) == 0:
        return np.zeros(len(values))
    middle = float(np.median(seen))
    spread = 1.4826 * float(np.median(np.abs(seen - middle)))
    if spread < 1e-9:
        spread = float(np.std(seen)) or 1.0
    return np.asarray((values - middle) / spread)


def _isolation(near: Neighbours) -> np.ndarray:
    """(N,) one minus the cosine with the last of the neighbours that there are."""
    last = np.maximum((near.row >= 0).sum(1) - 1, 0)
    return np.asarray(np.maximum(1 - near.cosine[np.arange(len(last)), last].astype(np.float64), 0.0))


def _typicality(labels: np.ndarray, oddness: np.ndarray) -> np.ndarray:
    found = np.full(len(labels), 0.5)
    for each in np.unique(labels):
        mine = np.flatnonzero(labels == each)
        if len(mine) > 1:
            found[mine[np.argsort(-oddness[mine], kind="stable")]] = np.arange(len(mine)) / (len(mine) - 1)
    return found
