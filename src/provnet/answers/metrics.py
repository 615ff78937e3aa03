"""Metrics on arrays, one value per query; the caller averages, splits or bootstraps.

Letters: B queries, K exemplars. `index` and `label` hold -1 where a class has fewer than K samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from provnet.base.batches import is_column, is_matrix
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.stats import Interval, clopper_pearson, t_quantile, wilson


def index_hit(index: np.ndarray, own: np.ndarray, k: int = 1) -> np.ndarray:
    """Whether a training sample's own index is among its first k exemplars: (B, K), (B,) -> (B,) bool.

    High says that the head memorised; it says little about explanation by itself (untrained features reach it too),
    so read it beside the perturbed figure.

    >>> index_hit(np.array([[4, 2]]), np.array([2]), k=2).tolist()
    [True]
    """
    return np.asarray((index[:, :k] == own[:, None]).any(1))


def group_hit(index: np.ndarray, own: np.ndarray, groups: np.ndarray, k: int = 1) -> np.ndarray:
    """Like `index_hit`, but any exact duplicate of the sample counts: equal pictures cannot be told apart.

    >>> group_hit(np.array([[1]]), np.array([0]), groups=np.array([7, 7])).tolist()
    [True]
    """
    found = index[:, :k]
    same = groups[np.maximum(found, 0)] == groups[own][:, None]
    return np.asarray((same & (found >= 0)).any(1))


def any_at_k(label: np.ndarray, truth: np.ndarray, k: int) -> np.ndarray:
    """Whether any of the first k exemplars has the query's true label (what table 2's "top-5" fits).

    >>> any_at_k(np.array([[1, 2, 3]]), np.array([3]), k=2).tolist()
    [False]
    """
    return np.asarray((label[:, :k] == truth[:, None]).any(1))


def majority_at_k(label: np.ndarray, truth: np.ndarray, k: int) -> np.ndarray:
    """Whether the most frequent label of the first k exemplars is the true one; a tie goes to the better-ranked label.

    >>> majority_at_k(np.array([[1, 2, 2]]), np.array([2]), k=3).tolist()
    [True]
    """
    first = label[:, :k]
    votes = (first[:, :, None] == first[:, None, :]).sum(2)
    votes = np.where(first >= 0, votes, 0)
    winner = first[np.arange(len(first)), votes.argmax(1)]  # argmax takes the first, i.e. the better-ranked
    return np.asarray(winner == truth)


PARTS = 20  # groups of images that are left out in turn
FEWEST = 2


@dataclass(frozen=True)
class Frechet:
    """A Fréchet distance (squared, as is usual) between two sets of features.

    Attributes:
        distance: of the sets as they are; the interval says where other draws of as many images would lie.
        corrected: what would be expected of endless sets: without the part that is due to few images; never below 0.
        space: the name of the feature space.
        counts: images of the two sets.
    """

    distance: Interval
    corrected: float
    space: str
    counts: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "distance": self.distance.to_json(),
            "corrected": self.corrected,
            "space": self.space,
            "counts": list(self.counts),
        }


def frechet(one: np.ndarray, other: np.ndarray, *, space: str, parts: int = PARTS) -> Frechet:
    """The distance between features (n, D) and (m, D) with a 95 % interval, by leaving out each of `parts` groups.

    `space` names the features, since distances in two spaces cannot be compared. Images are taken to be in no order.

    >>> draw = np.random.default_rng(0)
    >>> found = frechet(draw.normal(size=(400, 3)), draw.normal(size=(400, 3)) + 2, space="plain numbers")
    >>> found.distance.low < 12 < found.distance.high
    True
    """
    sides = [_checked(one, "the first"), _checked(other, "the second")]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise UsageError(f"features of one space are needed, got {sides[0].shape[1]} and {sides[1].shape[1]} numbers")
    if not space:
        raise UsageError("name the feature space: distances in two spaces cannot be compared")
    middle = sides[0].mean(0)  # close to both: sums of squares keep their digits
    moments = [_Moments(side - middle, parts) for side in sides]
    whole = _distance(moments[0].of_all(), moments[1].of_all())
    variance, bias = 0.0, 0.0
    for place, mine in enumerate(moments):
        fixed = moments[1 - place].of_all()
        left_out = np.array([_distance(mine.without(part), fixed) for part in range(mine.parts)])
        scale = (mine.parts - 1) / mine.parts
        variance += scale * float(((left_out - left_out.mean()) ** 2).sum())
        bias += (mine.parts - 1) * float(left_out.mean() - whole)
    half = t_quantile(min(mine.parts for mine in moments) - 1) * math.sqrt(variance)
    counts = (len(sides[0]), len(sides[1]))
    return Frechet(
        Interval(whole, min(counts), max(0.0, whole - half), whole + half), max(0.0, whole - bias), space, counts
    )


def class_agreement(judged: np.ndarray, label: np.ndarray, supported: np.ndarray | None = None) -> Interval:
    """How often the class (B,) that an independent classifier sees is that of the first exemplar (B, K) or (B,).

    The classifier must have been trained apart, else it repeats the network's own opinion. An image without an exemplar
    (-1) does not agree. With `supported` (B,) only those images count for which the network did not abstain.

    >>> str(class_agreement(np.array([3, 3, 5]), np.array([[3, 1], [2, 3], [5, 5]])))
    '66.67% (20.77% to 93.85%, n = 3)'
    """
    agrees = _agrees(judged, label)
    if supported is not None:
        if np.shape(supported) != np.shape(judged):
            raise UsageError(f"supported must be one for each of {len(judged)} images, got {np.shape(supported)}")
        agrees = agrees[np.asarray(supported, dtype=np.bool_)]
    return wilson(int(agrees.sum()), len(agrees))


def agreement_by_class(judged: np.ndarray, label: np.ndarray, class_names: Sequence[str]) -> dict[str, Interval]:
    """`class_agreement` for each judged class; n is 0 for a class that was never seen.

    >>> agreement_by_class(np.array([0, 0]), np.array([0, 1]), ["cat", "dog"])["cat"].value
    0.5
    """
    agrees = _agrees(judged, label)
    rows = [agrees[np.asarray(judged) == place] for place in range(len(class_names))]
    return {name: wilson(int(own.sum()), len(own)) for name, own in zip(class_names, rows, strict=True)}


def copy_rate(flagged: np.ndarray) -> Interval:
    """The share of images (B,) flagged as near-copies, with an exact interval, as it is often near 0.

    >>> str(copy_rate(np.array([False] * 100)))
    '0.00% (0.00% to 3.62%, n = 100)'
    """
    return clopper_pearson(int(np.asarray(flagged, dtype=np.bool_).sum()), len(flagged))


class _Moments:
    """Sums by group, so that means and covariances without one group cost no second pass over the images."""

    def __init__(self, values: np.ndarray, parts: int) -> None:
        self.parts = min(parts, len(values))
        if self.parts < FEWEST:
            raise UsageError(f"parts must be {FEWEST} or more, got {parts}")
        groups = [values[start :: self.parts] for start in range(self.parts)]
        self.counts = np.array([len(group) for group in groups])
        self.sums = np.stack([group.sum(0) for group in groups])
        self.squares = np.stack([group.T @ group for group in groups])

    def of_all(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance."""
        return _mean_and_covariance(int(self.counts.sum()), self.sums.sum(0), self.squares.sum(0))

    def without(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance without one group."""
        count = int(self.counts.sum() - self.counts[part])
        return _mean_and_covariance(count, self.sums.sum(0) - self.sums[part], self.squares.sum(0) - self.squares[part])


def _mean_and_covariance(count: int, total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = total / count
    return mean, (squares - count * np.outer(mean, mean)) / max(count - 1, 1)


def _distance(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    """|difference of means|² + tr(A) + tr(B) - 2 tr((A B)^½)."""
    roots = [_root(covariance) for _, covariance in (one, other)]
    # the trace of the root of A B is the sum of the singular values of root(A) root(B): nothing is squared and rooted
    # again, which would turn rounding errors of 1e-16 into 1e-8
    common = float(np.linalg.svd(roots[0] @ roots[1], compute_uv=False).sum())
    apart = float(((one[0] - other[0]) ** 2).sum())
    return max(0.0, apart + float(np.trace(one[1]) + np.trace(other[1])) - 2 * common)


def _root(covariance: np.ndarray) -> np.ndarray:
    """The symmetric root; what cannot be told from 0 by its digits counts as 0, as its root would be a hundred million
    times larger, and another on every kind of processor.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    rounding = values[-1] * len(values) * np.finfo(np.float64).eps
    return np.asarray((vectors * np.sqrt(np.where(values > rounding, values, 0.0))) @ vectors.T)


def _agrees(judged: np.ndarray, label: np.ndarray) -> np.ndarray:
    judged, label = np.asarray(judged), np.asarray(label)
    first = label[:, 0] if is_matrix(label) else label
    if not is_column(judged) or first.shape != judged.shape:
        raise UsageError(f"one judged class and one row of labels an image, got {judged.shape} and {label.shape}")
    return np.asarray((judged == first) & (first >= 0))


def _checked(features: np.ndarray, which: str) -> np.ndarray:
    values = np.asarray(features, dtype=np.float64)
    if not is_matrix(values) or len(values) < FEWEST or values.shape[1] == 0:
        raise UsageError(f"{which} features must be (n, D) with n of {FEWEST} or more, got {values.shape}")
    if not np.isfinite(values).all():
        raise NonFiniteError(f"{which} features hold NaN or infinite values; no distance can be told")
    return values
