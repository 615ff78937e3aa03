"""ROC, AUC, precision, calibration and comparisons: against scikit-learn, with ties, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from provnet.answers.metrics import auc, average_precision, calibration_error, difference, roc, tpr_at, with_interval
from provnet.base.errors import NonFiniteError, UsageError
from tests.counts import count, grows
from tests.models.made import LAWS


def some(seed: int, n: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Both kinds, scores on so many levels: few levels are many ties."""
    chance = np.random.default_rng(seed)
    truth = np.concatenate([[True, False], chance.random(n) < 0.4])
    return truth, chance.integers(0, levels, n + 2) / levels + 0.3 * truth


@LAWS
@given(st.integers(0, 10_000), st.integers(1, 300), st.sampled_from([1, 2, 5, 40, 10**9]))
def test_auc_and_precision_are_scikit_learns_with_ties(seed: int, n: int, levels: int) -> None:
    truth, score = some(seed, n, levels)
    assert auc(truth, score).value == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert average_precision(truth, score) == pytest.approx(average_precision_score(truth, score), abs=1e-12)


@LAWS
@given(st.integers(0, 10_000), st.integers(1, 300), st.sampled_from([2, 5, 10**9]))
def test_the_curve_is_scikit_learns(seed: int, n: int, levels: int) -> None:
    truth, score = some(seed, n, levels)
    fpr, tpr, threshold = roc_curve(truth, score, drop_intermediate=False)
    found = roc(truth, score)
    assert found.fpr == pytest.approx(fpr)
    assert found.tpr == pytest.approx(tpr)
    assert found.threshold[1:] == pytest.approx(threshold[1:])


@LAWS
@given(arrays.arrays(np.int64, st.integers(2, 30), elements=st.integers(-3, 3)), st.integers(1, 29))
def test_auc_counts_pairs(score: np.ndarray, positives: int) -> None:
    truth = np.arange(len(score)) < min(positives, len(score) - 1)
    above = score[truth][:, None] - score[~truth][None, :]
    found = auc(truth, score.astype(float))
    assert found.value == pytest.approx(np.where(above == 0, 0.5, above > 0).mean())
    turned = auc(truth, -score.astype(float))
    assert turned.value == pytest.approx(1 - found.value)  # type: ignore[operator]
    assert turned.low == pytest.approx(1 - found.high, abs=1e-9)  # type: ignore[operator]
    assert 0 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]


# shift of those looked for, spread of the others, samples of each kind, rounded: from no use to all but perfect
CASES = [
    (0.0, 1.0, 100, 100, False),
    (1.5, 1.0, 60, 200, False),
    (2.9, 1.0, 200, 200, False),
    (3.3, 1.0, 1000, 1000, False),
    (6.5, 3.0, 400, 400, False),
    (8.15, 3.0, 1000, 1000, False),
    (1.0, 1.0, 100, 100, True),
    (3.4, 1.0, 1000, 1000, True),
]


def true_auc(shift: float, spread: float, rounded: bool) -> float:
    """The chance that one of N(shift, 1) lies above one of N(0, spread), rounded or not."""
    if not rounded:
        return float(norm.cdf(shift / np.hypot(1, spread)))
    levels = np.arange(-60, 61)
    own, others = (np.diff(norm.cdf(np.append(levels, 61) - 0.5, *law)) for law in ((shift, 1), (0, spread)))
    return float((own * (np.cumsum(others) - others / 2)).sum())


def coverage(case: tuple[float, float, int, int, bool], draws: int) -> float:
    """The share of intervals that hold the true AUC."""
    shift, spread, m, n, rounded = case
    true, truth, chance = true_auc(shift, spread, rounded), np.arange(m + n) < m, np.random.default_rng(1)
    inside = 0
    for _ in range(draws):
        score = np.concatenate([chance.normal(shift, 1, m), chance.normal(0, spread, n)])
        found = auc(truth, np.round(score) if rounded else score)
        inside += found.low <= true <= found.high  # type: ignore[operator]
    return inside / draws


@grows
@pytest.mark.parametrize("case", CASES, ids=str)
def test_auc_intervals_hold_the_truth_93_to_97_times_in_100(case: tuple[float, float, int, int, bool]) -> None:
    draws = count(200, 5000)
    slack = 3.3 * np.sqrt(0.05 * 0.95 / draws) if draws < 5000 else 0.0  # the luck of few draws
    assert 0.93 - slack <= coverage(case, draws) <= 0.97 + slack, f"true AUC {true_auc(case[0], case[1], case[4]):.4f}"


@grows
@pytest.mark.parametrize(("shift", "spread"), [(4.0, 1.0), (5.5, 1.0), (9.0, 3.0), (11.0, 3.0), (40.0, 1.0)])
def test_where_few_samples_decide_the_interval_is_cautious(shift: float, spread: float) -> None:
    draws = count(150, 3000)
    assert coverage((shift, spread, 200, 200, False), draws) >= 0.93 - (3.3 * np.sqrt(0.05 * 0.95 / draws))


def test_a_perfect_score_is_not_certain() -> None:
    found = auc(np.arange(200) < 100, -np.arange(200.0))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 100))
    assert auc(np.array([True, False]), np.array([1.0, 0.0])).low == pytest.approx(0.0, abs=0.03)


def test_tpr_at_counts_false_alarms() -> None:
    truth = np.arange(3000) < 1000
    score = np.concatenate([np.arange(1000) / 1000, np.arange(2000) / 2000 - 0.6])  # others reach up to .3995
    found = tpr_at(truth, score, 0.01)
    assert found.fpr.value is not None
    assert (score[~truth] >= found.threshold).sum() == found.fpr.value * 2000 <= 20
    assert (score[truth] >= found.threshold).mean() == found.tpr.value
    assert found.tpr.low < found.tpr.value < found.tpr.high  # type: ignore[operator]
    assert set(found.to_json()) == {"allowed", "threshold", "tpr", "fpr"}


@pytest.mark.parametrize(
    ("negatives", "allowed", "given"),
    [(999, 0.01, False), (1000, 0.01, True), (9_999, 0.001, False), (10_000, 0.001, True)],
)
def test_no_figure_rests_on_fewer_than_10_others(negatives: int, allowed: float, given: bool) -> None:
    truth = np.arange(negatives + 50) < 50
    found = tpr_at(truth, np.random.default_rng(0).random(len(truth)), allowed)
    assert (found.tpr.value is not None) == given
    assert ("too few" in found.tpr.why) != given
    assert found.tpr.n == 50


def test_ties_beyond_the_rate_leave_nothing() -> None:
    truth = np.arange(2000) < 1000
    found = tpr_at(truth, np.ones(2000), 0.01)
    assert (found.tpr.value, found.fpr.value, found.threshold) == (0.0, 0.0, None)


@LAWS
@given(st.integers(0, 10_000), st.integers(1, 400), st.integers(1, 20))
def test_calibration_error_by_hand(seed: int, n: int, bins: int) -> None:
    chance = np.random.default_rng(seed)
    confidence, right = chance.random(n), chance.random(n) < 0.5
    total = 0.0
    for number in range(bins):
        inside = (confidence > number / bins) & (confidence <= (number + 1) / bins)
        if inside.any():
            total += inside.sum() / n * abs(confidence[inside].mean() - right[inside].mean())
    assert calibration_error(confidence, right, bins) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("measure", ["auc", "average precision"])
def test_the_paired_difference_is_that_of_drawn_samples(measure: str) -> None:
    truth, one = some(3, 120, 6)
    _, other = some(4, 120, 6)
    value = {"auc": roc_auc_score, "average precision": average_precision_score}[measure]
    found = difference(truth, one, other, measure=measure, draws=100, seed=5)
    assert found.value == pytest.approx(value(truth, one) - value(truth, other))
    chance = np.random.default_rng(5)
    drawn = []
    for _ in range(100):
        rows = np.concatenate([chance.choice(np.flatnonzero(kind), kind.sum()) for kind in (truth, ~truth)])
        drawn.append(value(truth[rows], one[rows]) - value(truth[rows], other[rows]))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_the_interval_of_one_score_is_that_of_drawn_samples() -> None:
    truth, one = some(3, 120, 6)
    found = with_interval(truth, one, draws=100, seed=5)
    assert found.value == pytest.approx(average_precision_score(truth, one))
    chance, drawn = np.random.default_rng(5), []
    for _ in range(100):
        rows = np.concatenate([chance.choice(np.flatnonzero(kind), kind.sum()) for kind in (truth, ~truth)])
        drawn.append(average_precision_score(truth[rows], one[rows]))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_a_score_does_not_differ_from_itself() -> None:
    truth, one = some(1, 50, 5)
    same = difference(truth, one, 3 * one, draws=50)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


@grows
def test_paired_intervals_hold_the_truth() -> None:
    draws, chance, truth = count(40, 1000), np.random.default_rng(7), np.arange(200) < 100
    inside = 0
    for number in range(draws):
        common = chance.normal(0, 1, 200)
        one, other = (truth * 1.0 + common + chance.normal(0, 0.7, 200) for _ in range(2))
        found = difference(truth, one, other, draws=200, seed=number)
        inside += found.low <= 0 <= found.high  # type: ignore[operator]
    assert inside / draws >= 0.93 - 3.3 * np.sqrt(0.05 * 0.95 / draws)


def test_what_cannot_be_compared_is_refused() -> None:
    truth = np.array([True, False])
    with pytest.raises(UsageError, match="both kinds"):
        auc(np.array([True, True]), np.array([1.0, 2.0]))
    with pytest.raises(NonFiniteError, match="not finite"):
        roc(truth, np.array([1.0, np.nan]))
    with pytest.raises(UsageError, match=r"both be \(N,\)"):
        roc(truth, np.zeros(3))
    with pytest.raises(UsageError, match="false-positive rate"):
        tpr_at(truth, np.zeros(2), 0.0)
    with pytest.raises(UsageError, match="1 bin or more"):
        calibration_error(np.zeros(2), np.zeros(3))
    with pytest.raises(NonFiniteError, match=r"0\.\.1"):
        calibration_error(np.array([np.nan]), np.zeros(1))
    with pytest.raises(UsageError, match="draws"):
        difference(truth, np.zeros(2), np.zeros(2), draws=3)
