"""Figures on generated images: closed forms, known answers, honest intervals, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from provnet.answers.metrics import (
    _distance,
    agreement_by_class,
    class_agreement,
    copy_rate,
    frechet,
)
from provnet.base.errors import NonFiniteError, UsageError


def draw(seed: int, n: int, d: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_commuting_gaussians_have_the_closed_form() -> None:
    turn, _ = np.linalg.qr(draw(0, 5, 5))
    one, other = np.array([4.0, 1.0, 9.0, 0.25, 0.0]), np.array([1.0, 1.0, 16.0, 4.0, 2.0])
    means = draw(1, 2, 5)
    wanted = ((means[0] - means[1]) ** 2).sum() + ((np.sqrt(one) - np.sqrt(other)) ** 2).sum()
    found = _distance((means[0], turn * one @ turn.T), (means[1], turn * other @ turn.T))
    assert found == pytest.approx(wanted, rel=1e-12)


def test_other_gaussians_agree_with_the_root_of_a_product() -> None:
    a, b = draw(2, 9, 4), draw(3, 9, 4)
    one, other = a.T @ a, b.T @ b
    values = np.linalg.eigvals(one @ other)  # not symmetric: another way to the same trace
    wanted = np.trace(one) + np.trace(other) - 2 * np.sqrt(values.real).sum()
    assert _distance((np.zeros(4), one), (np.zeros(4), other)) == pytest.approx(wanted, rel=1e-9)


def test_fewer_images_than_features_and_large_offsets_keep_their_digits() -> None:
    few = draw(4, 5, 20)
    assert frechet(few, few, space="x").distance.value == pytest.approx(0.0, abs=1e-12)
    far = few + 1e6
    assert frechet(far, far[::-1] + np.eye(20)[0] * 2, space="x").distance.value == pytest.approx(4.0, rel=1e-8)


def test_one_feature_has_the_closed_form() -> None:
    a, b = draw(5, 60, 1), 2 * draw(6, 50, 1) + 1
    wanted = (a.mean() - b.mean()) ** 2 + (a.std(ddof=1) - b.std(ddof=1)) ** 2
    assert frechet(a, b, space="x").distance.value == pytest.approx(wanted, rel=1e-10)


def test_the_interval_holds_and_the_correction_takes_the_bias_of_few_images_away() -> None:
    found = [frechet(draw(100 + seed, 200), draw(300 + seed, 200) + 0.5, space="x") for seed in range(60)]
    plain, corrected = (
        np.array([f(one) for one in found]) for f in (lambda o: o.distance.value, lambda o: o.corrected)
    )
    held = sum((one.distance.low or 0) <= plain.mean() <= (one.distance.high or 0) for one in found)
    true = 6 * 0.25
    assert held >= 51  # 95 % of 60 are 57; fewer than 51 would happen once in a thousand tries
    assert abs(np.mean(corrected) - true) < abs(np.mean(plain) - true)
    assert abs(np.mean(corrected) - true) < 4 * np.std(corrected) / math.sqrt(60)


def test_equal_sets_have_no_distance_left_after_the_correction() -> None:
    found = frechet(draw(7, 400), draw(8, 400), space="x")
    assert found.distance.value is not None and found.distance.value > 0
    assert found.corrected < found.distance.value
    assert found.to_json()["counts"] == [400, 400]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (np.zeros((1, 3)), np.zeros((5, 3)), "n of 2 or more"),
        (np.zeros((5, 3)), np.zeros((5, 4)), "one space"),
        (np.zeros((5, 0)), np.zeros((5, 0)), r"\(n, D\)"),
    ],
)
def test_features_that_cannot_be_compared_are_refused(one: np.ndarray, other: np.ndarray, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        frechet(one, other, space="x")


def test_what_is_not_finite_or_has_no_name_is_refused() -> None:
    bad = draw(9, 5)
    bad[2, 1] = np.nan
    with pytest.raises(NonFiniteError, match="NaN"):
        frechet(draw(10, 5), bad, space="x")
    with pytest.raises(UsageError, match="name the feature space"):
        frechet(draw(9, 5), draw(10, 5), space="")


def test_agreement_counts_missing_exemplars_against_it_and_may_leave_abstentions_out() -> None:
    judged, label = np.array([1, 2, -1, 0]), np.array([[1, 5], [0, 2], [-1, -1], [0, 0]])
    assert class_agreement(judged, label).value == 0.5
    assert class_agreement(judged, label, np.array([True, False, False, True])).value == 1.0
    assert class_agreement(judged, label, np.zeros(4, dtype=bool)).value is None
    by = agreement_by_class(judged, label, ["a", "b", "c", "d"])
    assert [by[name].n for name in "abcd"] == [1, 1, 1, 0]
    assert by["c"].value == 0.0
    with pytest.raises(UsageError, match="one judged class"):
        class_agreement(judged[:2], label)
    with pytest.raises(UsageError, match="supported"):
        class_agreement(judged, label, np.array([True]))


def test_copy_rate_is_exact_near_nothing() -> None:
    assert copy_rate(np.zeros(1000, dtype=bool)).high == pytest.approx(0.003682, abs=1e-5)
    assert copy_rate(np.array([True, False])).value == 0.5
