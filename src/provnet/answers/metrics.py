"""Metrics on arrays, one value per query, and curves of a score that tells two kinds of samples apart.

The caller averages, splits or bootstraps. `index` and `label` hold -1 where a class has fewer than K samples.
In a curve, `truth` (N,) says which samples are of the kind that is looked for, and `score` (N,) is higher where that
seems so. Equal scores are ties: they are passed together, as one point of a curve, and count half in the AUC.

Letters: B queries, K exemplars, N samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from provnet.base.batches import is_column, is_matrix
from provnet.base.errors import NonFiniteError, UsageError, choose
from provnet.base.stats import LEVEL, Interval, clopper_pearson, t_quantile, wilson


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
        raise UsageError(f"give features of one space, got {sides[0].shape[1]} and {sides[1].shape[1]} numbers")
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
        raise UsageError(f"one judged class and one row of labels per image, got {judged.shape} and {label.shape}")
    return np.asarray((judged == first) & (first >= 0))


def _checked(features: np.ndarray, which: str) -> np.ndarray:
    values = np.asarray(features, dtype=np.float64)
    if not is_matrix(values) or len(values) < FEWEST or values.shape[1] == 0:
        raise UsageError(f"{which} features must be (n, D) with n of {FEWEST} or more, got {values.shape}")
    if not np.isfinite(values).all():
        raise NonFiniteError(f"{which} features hold NaN or infinite values; no distance can be measured")
    return values


CURVES_FEWEST = 10  # a rate that fewer samples of the other kind decide is not given


@dataclass(frozen=True, eq=False)
class Roc:
    """One point for each different score, from (0, 0) to (1, 1).

    Attributes:
        threshold: (P,) falling; the first is infinite, as nothing reaches it.
        hits, alarms: (P,) how many samples of each kind score at least that.
        positives, negatives: how many there are.
    """

    threshold: np.ndarray
    hits: np.ndarray
    alarms: np.ndarray
    positives: int
    negatives: int

    @property
    def tpr(self) -> np.ndarray:
        """(P,) share of the samples looked for that are found."""
        return np.asarray(self.hits / self.positives)

    @property
    def fpr(self) -> np.ndarray:
        """(P,) share of the others that are taken for them."""
        return np.asarray(self.alarms / self.negatives)

    @property
    def auc(self) -> float:
        """The chance that a sample looked for scores above another one; a tie counts half."""
        steps = np.diff(self.alarms) * (self.hits[1:] + self.hits[:-1])
        return float(steps.sum() / (2 * self.positives * self.negatives))

    @property
    def average_precision(self) -> float:
        """Precision at each score, weighted by how many samples are found there."""
        return float((np.diff(self.hits) * self.hits[1:] / (self.hits + self.alarms)[1:]).sum() / self.positives)


@dataclass(frozen=True)
class Operating:
    """What is found where only so many false alarms are allowed.

    Attributes:
        allowed: the largest false-positive rate.
        threshold: scores from here on count; None where there is no figure.
        tpr: the share found, exact interval for that threshold; without value where too few samples decide it.
        fpr: the false-positive rate of that threshold; with many ties it is well below the one allowed.
    """

    allowed: float
    threshold: float | None
    tpr: Interval
    fpr: Interval

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rates = {"tpr": self.tpr.to_json(), "fpr": self.fpr.to_json()}
        return {"allowed": self.allowed, "threshold": self.threshold, **rates}


def roc(truth: np.ndarray, score: np.ndarray) -> Roc:
    """The ROC curve, ties passed together.

    >>> found = roc(np.array([True, True, False]), np.array([0.9, 0.4, 0.4]))
    >>> found.tpr.tolist(), found.fpr.tolist(), found.auc
    ([0.0, 0.5, 1.0], [0.0, 0.0, 1.0], 0.75)
    """
    truth, score = paired_arrays(truth, score)
    order, ends = descending(score)
    hits = np.concatenate([[0], np.cumsum(truth[order])[ends]])
    return Roc(
        threshold=np.concatenate([[np.inf], score[order][ends]]),
        hits=hits,
        alarms=np.concatenate([[0], ends + 1]) - hits,
        positives=int(truth.sum()),
        negatives=int((~truth).sum()),
    )


def auc(truth: np.ndarray, score: np.ndarray) -> Interval:
    """Area under the ROC curve with its 95 % interval, right also close to 1.

    DeLong's variance on the logit scale. Near 1 a few samples decide, and the variance that they give is itself
    uncertain: it gets the degrees of freedom that their kurtosis leaves it. Where all misses together are less than one
    whole sample, the low end is no higher than what no miss at all would leave open.

    >>> auc(np.array([True, True, False, False]), np.array([0.9, 0.4, 0.4, 0.1])).value
    0.875
    """
    truth, score = paired_arrays(truth, score)
    value = roc(truth, score).auc
    found, others = _placements(score[truth], score[~truth]), _placements(score[~truth], score[truth])
    low, high = _logit_interval(value, found, others)
    fewest = min(len(found), len(others))
    unseen = ((1 - LEVEL) / 2) ** (1 / fewest)  # what the exact interval leaves open after no miss
    if (1 - value) * fewest < 1:
        low = min(low, unseen)
    if value * fewest < 1:
        high = max(high, 1 - unseen)
    return Interval(value, len(truth), low, high)


def average_precision(truth: np.ndarray, score: np.ndarray) -> float:
    """Precision averaged over the samples looked for, ties passed together.

    >>> average_precision(np.array([True, False, True]), np.array([3.0, 2.0, 1.0]))
    0.8333333333333333
    """
    return roc(truth, score).average_precision


def tpr_at(truth: np.ndarray, score: np.ndarray, allowed: float) -> Operating:
    """The share found at a false-positive rate; no figure where fewer than 10 of the others may be false alarms.

    The interval takes the threshold as given: how well it keeps to the rate is said by `fpr`.

    >>> tpr_at(np.arange(2000) < 1000, -np.arange(2000.0), 0.01).tpr.value
    1.0
    """
    if not 0 < allowed <= 1:
        raise UsageError(f"a false-positive rate must lie above 0 and be at most 1, got {allowed}")
    curve = roc(truth, score)
    budget = math.floor(allowed * curve.negatives + 1e-9)
    if budget < CURVES_FEWEST:
        least = math.ceil(CURVES_FEWEST / allowed - 1e-9)
        why = (
            f"{curve.negatives:,} negatives are too few for {allowed:.3g}: it would rest on {budget}, {least:,} needed"
        )
        return Operating(allowed, None, Interval(None, curve.positives, None, None, why), Interval(None, 0, None, None))
    within = curve.alarms <= budget
    place = int(np.argmax(np.where(within, curve.hits, -1)))
    tpr = clopper_pearson(int(curve.hits[place]), curve.positives)
    fpr = clopper_pearson(int(curve.alarms[place]), curve.negatives)
    reached = float(curve.threshold[place])
    return Operating(allowed, reached if math.isfinite(reached) else None, tpr, fpr)


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: how far confidence and accuracy lie apart, over bins of equal width.

    >>> calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    0.1
    """
    right, confidence = np.asarray(right, dtype=np.bool_), np.asarray(confidence, dtype=np.float64)
    if not is_column(confidence) or confidence.shape != right.shape or len(right) == 0 or bins < 1:
        raise UsageError(f"give (N,) confidences and answers and 1 bin or more, got {confidence.shape}, {right.shape}")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise NonFiniteError("confidences must lie in 0..1")
    place = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1).astype(np.int64)
    gaps = np.bincount(place, weights=confidence - right, minlength=bins)
    return float(round(np.abs(gaps).sum() / len(right), 15))


def paired_arrays(truth: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as (N,) arrays; what cannot be compared is refused.

    >>> paired_arrays([1, 0], [0.5, 2])[0].tolist()
    [True, False]
    """
    truth, score = np.asarray(truth, dtype=np.bool_), np.asarray(score, dtype=np.float64)
    if not is_column(truth) or truth.shape != score.shape:
        raise UsageError(f"truth and score must both be (N,), got {truth.shape} and {score.shape}")
    if not np.isfinite(score).all():
        raise NonFiniteError("a score is not finite: nothing can be compared with it")
    if truth.all() or not truth.any():
        raise UsageError(f"both kinds of samples are needed, got {int(truth.sum())} of {len(truth)}")
    return truth, score


def descending(score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order from high to low, and the place of the last sample of each run of equal scores.

    >>> [part.tolist() for part in descending(np.array([1.0, 3.0, 1.0]))]
    [[1, 0, 2], [0, 2]]
    """
    order = np.argsort(-score, kind="stable")
    falls = np.flatnonzero(np.diff(score[order]))
    return order, np.concatenate([falls, [len(score) - 1]])


def _placements(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """For each score the share of the others below it, ties half."""
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, own, side) for side in ("left", "right"))
    return np.asarray((below + upto) / (2 * len(others)))


def _logit_interval(value: float, found: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    sides = [side for side in (found, others) if len(side) > 1]
    variance = sum(float(side.var(ddof=1)) / len(side) for side in sides)
    if variance == 0 or len(sides) < 2:
        return (value, value) if len(sides) == 2 else (0.0, 1.0)
    of_variance = sum(float(((side - side.mean()) ** 2).var()) / len(side) ** 3 for side in sides)
    df = 1 + (2 * variance**2 / of_variance if of_variance > 0 else math.inf)
    middle = math.log(value) - math.log1p(-value)
    half = t_quantile(df) * math.sqrt(variance) / (value * (1 - value))
    low, high = (0.5 * (1 + math.tanh((middle + sign * half) / 2)) for sign in (-1, 1))
    return low, high


def with_interval(
    truth: np.ndarray, score: np.ndarray, *, measure: str = "average precision", draws: int = 2000, seed: int = 0
) -> Interval:
    """A measure of a score with its bootstrap interval; each kind of sample is drawn again by itself.

    >>> truth = np.array([True] * 5 + [False] * 5)
    >>> with_interval(truth, truth * 1.0, draws=50).value
    1.0
    """
    taken = choose("measure", measure, MEASURES)
    truth, score = paired_arrays(truth, score)
    side = _Drawn(truth, score)
    low, high = _ends(np.array([taken(side.curve(weights)) for weights in _draws(truth, draws, seed)]))
    return Interval(taken(roc(truth, score)), len(truth), low, high)


def difference(
    truth: np.ndarray, one: np.ndarray, other: np.ndarray, *, measure: str = "auc", draws: int = 2000, seed: int = 0
) -> Interval:
    """By how much a score is better than another on the same samples, with a paired bootstrap interval.

    `measure` is `auc` or `average precision`. Each kind is drawn again by itself, the same samples for both scores.

    >>> truth = np.array([True] * 5 + [False] * 5)
    >>> difference(truth, truth * 1.0, np.zeros(10), draws=50).value
    0.5
    """
    taken = choose("measure", measure, MEASURES)
    truth, one = paired_arrays(truth, one)
    _, other = paired_arrays(truth, other)
    first, second = (_Drawn(truth, score) for score in (one, other))
    drawn = [taken(first.curve(weights)) - taken(second.curve(weights)) for weights in _draws(truth, draws, seed)]
    low, high = _ends(np.array(drawn))
    return Interval(taken(roc(truth, one)) - taken(roc(truth, other)), len(truth), low, high)


def _draws(truth: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    """How often each sample was drawn, draw by draw."""
    if draws < 20:
        raise UsageError(f"draws must be 20 or more, got {draws}: their ends are the interval")
    chance = np.random.default_rng(seed)
    kinds = [np.flatnonzero(truth), np.flatnonzero(~truth)]
    for _ in range(draws):
        rows = np.concatenate([chance.choice(kind, len(kind)) for kind in kinds])
        yield np.bincount(rows, minlength=len(truth))


def _ends(found: np.ndarray) -> tuple[float, float]:
    """The middle share of the draws."""
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


class _Drawn:
    """A score sorted once, so that each draw of samples (as counts) costs no sorting."""

    def __init__(self, truth: np.ndarray, score: np.ndarray) -> None:
        self.order, self.ends = descending(score)
        self.truth = truth[self.order]

    def curve(self, weights: np.ndarray) -> Roc:
        """The curve of a draw; `threshold` holds counts, as nobody asks for it."""
        drawn = weights[self.order]
        hits = np.concatenate([[0], np.cumsum(drawn * self.truth)[self.ends]])
        every = np.concatenate([[0], np.cumsum(drawn)[self.ends]])
        kept = np.concatenate([[True], np.diff(every) > 0])
        hits, every = hits[kept], every[kept]
        return Roc(every, hits, every - hits, int(hits[-1]), int(every[-1] - hits[-1]))


MEASURES: dict[str, Callable[[Roc], float]] = {
    "auc": lambda curve: curve.auc,
    "average precision": lambda curve: curve.average_precision,
}
