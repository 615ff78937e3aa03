"""The mislabel score on made-up signals: what is known there is what must come out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from provnet.answers.metrics import auc
from provnet.tools.debug.signals import Neighbours, course_level, log_odds_from, mislabels, nearest_others, votes
from tests.cases import cases

N, C = 600, 5


def made(
    flipped: float, memorised: bool, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Neighbours, np.ndarray]:
    """Labels, truth, logits, neighbours, course of a network on well separated classes."""
    chance = np.random.default_rng(seed)
    truth = np.arange(N) % C
    labels = truth.copy()
    rows = chance.choice(N, round(flipped * N), replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, C, len(rows))) % C
    centres = np.eye(C)[truth] * 4 + chance.normal(size=(N, C))
    near = nearest_others(F.normalize(torch.from_numpy(centres).float(), dim=1), 20)
    wrong = labels != truth
    course = np.abs(chance.normal(0.3, 0.2, (10, N)))
    course[:, wrong] += np.linspace(3, 0, 10)[:, None]  # fitted at the end
    logits = np.eye(C)[labels if memorised else truth] * 8 + chance.normal(size=(N, C))
    return labels, truth, logits, near, course.astype(np.float32)


@pytest.mark.parametrize("memorised", [False, True])
def test_wrong_labels_are_found_also_when_memorised(memorised: bool) -> None:
    labels, truth, logits, near, course = made(0.1, memorised)
    result = mislabels(labels, logits, near, course)
    wrong = labels != truth
    assert auc(wrong, result.odds).value > 0.99  # type: ignore[operator]
    assert (result.fitted > 0.9) == memorised
    assert abs(result.score.sum() - wrong.sum()) < 0.4 * wrong.sum()


def test_where_labels_are_predicted_only_once_memorised_the_number_of_wrong_ones_cannot_be_told() -> None:
    labels, _, logits, _, _ = made(0.1, memorised=True)
    chance = torch.Generator().manual_seed(0)
    near = nearest_others(F.normalize(torch.randn(N, 8, generator=chance), dim=1), 20)
    course = np.linspace(1.6, 0, 10)[:, None] * np.random.default_rng(0).uniform(0.8, 1.2, N)  # all learned late
    result = mislabels(labels, logits, near, course.astype(np.float32))
    assert result.power < 0.1 and "so wrong labels do not stand out from right ones" in result.cannot_tell
    assert "the signal 'neighbours' is off: it agrees with no other signal" in result.cannot_tell
    assert mislabels(labels, logits, near, None).cannot_tell
    assert mislabels(np.zeros(N, np.int64), logits[:, :1], near, None).cannot_tell  # one class


@pytest.mark.parametrize("memorised", [False, True])
def test_where_right_labels_are_predicted_early_it_can_be_told(memorised: bool) -> None:
    labels, _, logits, near, course = made(0.1, memorised)
    assert mislabels(labels, logits, near, course).cannot_tell == ""


def test_a_memorised_margin_says_nothing() -> None:
    labels, _, logits, near, course = made(0.1, memorised=True)
    assert np.abs(mislabels(labels, logits, near, course).contributions["margin"]).max() < 0.1


def test_clean_labels_are_left_alone() -> None:
    labels, _, logits, near, course = made(0.0, memorised=False)
    result = mislabels(labels, logits, near, course)
    assert result.score.sum() < 0.02 * N
    assert (result.score >= 0.5).sum() <= 2


def between(flipped: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Neighbours, np.ndarray]:
    """As `made`, all fitted at the end, but a fifth of the samples lies between two classes and is hard to learn."""
    chance = np.random.default_rng(seed)
    truth = np.arange(N) % C
    other = (truth + chance.integers(1, C, N)) % C
    part = np.where(chance.random(N) < 0.2, chance.uniform(0.3, 0.7, N), 0.0)
    centres = 4 * (np.eye(C)[truth] * (1 - part)[:, None] + np.eye(C)[other] * part[:, None])
    near = nearest_others(F.normalize(torch.from_numpy(centres + chance.normal(0, 0.3, (N, C))).float(), dim=1), 20)
    labels = truth.copy()
    rows = chance.choice(np.flatnonzero(part == 0), flipped, replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, C, flipped)) % C
    hard = np.where(labels != truth, 1.5, 2 * part) * np.exp(chance.normal(0, 0.3, N))
    course = np.linspace(2, 0, 20)[:, None] * (0.05 * np.exp(chance.normal(0, 0.5, N)) + hard)
    return labels, truth, np.eye(C)[labels] * 8 + chance.normal(size=(N, C)), near, course.astype(np.float32)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_right_labels_that_weak_features_outvote_only_a_part_is_flagged(seed: int) -> None:
    labels, _, logits, near, course = between(0, seed)
    outvoted = votes(near, labels, np.ones(N), C).argmax(1) != labels
    assert outvoted.mean() > 0.05
    result = mislabels(labels, logits, near, course)
    assert (result.score >= 0.5).sum() < 0.6 * outvoted.sum()  # counting any lead flags more than are outvoted
    assert result.score.sum() < 0.8 * outvoted.sum()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_labels_are_found_beside_hard_pictures(seed: int) -> None:
    labels, truth, logits, near, course = between(40, seed)
    result = mislabels(labels, logits, near, course)
    wrong, flagged = labels != truth, result.score >= 0.5
    assert auc(wrong, result.odds).value > 0.97  # type: ignore[operator]
    assert flagged[wrong].mean() > 0.9


@cases("seed", [0, 1, 2, 3, 4, 5])
def test_votes_at_random_flag_no_label(seed: int) -> None:
    labels, _, logits, _, course = between(0, seed)
    chance = torch.Generator().manual_seed(seed)
    near = nearest_others(F.normalize(torch.randn(N, 8, generator=chance), dim=1), 20)
    assert (votes(near, labels, np.ones(N), C).argmax(1) != labels).mean() > 0.7
    result = mislabels(labels, logits, near, course)
    assert not (result.score >= 0.5).any()
    assert np.isfinite(result.odds).all()


def test_one_class_or_one_sample_cannot_be_wrong() -> None:
    nobody = Neighbours(np.full((1, 1), -1), np.zeros((1, 1)))
    assert mislabels(np.zeros(1, np.int64), np.zeros((1, 3)), nobody, None).score.tolist() == [0.0]
    pair = Neighbours(np.array([[1], [0]]), np.ones((2, 1)))
    assert mislabels(np.zeros(2, np.int64), np.zeros((2, 1)), pair, None).score.tolist() == [0.0, 0.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60), st.integers(0, 2**16))
def test_more_of_a_signal_never_speaks_for_less(n: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    signal, target = chance.normal(size=n), chance.random(n) < 0.3
    odds = log_odds_from(signal, target)
    assert np.isfinite(odds).all()
    assert (np.diff(odds[np.argsort(signal, kind="stable")]) >= -1e-9).all()


def test_a_signal_against_its_meaning_is_silent() -> None:
    signal = np.arange(100.0)
    assert np.ptp(log_odds_from(signal, signal < 30)) == 0


def test_course_leaves_out_the_first_epoch_and_untrained_samples() -> None:
    course = np.array([[50.0, 0.0, np.nan], [1.0, 1.0, np.nan], [1.0, 1.0, np.nan], [1.0, 1.0, np.nan]])
    known, level = course_level(course, 3)
    assert known.tolist() == [True, True, False]
    assert level[0] == level[1]
    assert np.isfinite(level).all()


def test_neighbours_leave_the_sample_itself_out() -> None:
    features = F.normalize(torch.randn(50, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    found = nearest_others(features, 7)
    cosine = features @ features.t()
    cosine.fill_diagonal_(-2)
    assert np.array_equal(found.row, cosine.topk(7, 1).indices.numpy())
    assert not (found.row == np.arange(50)[:, None]).any()


def test_neighbours_of_many_equal_samples() -> None:
    found = nearest_others(torch.ones(40, 1), 5)
    assert found.row.shape == (40, 5)
    assert not (found.row == np.arange(40)[:, None]).any()
    assert nearest_others(torch.ones(1, 3), 5).row.tolist() == [[-1]]


def test_distrusted_neighbours_have_no_vote() -> None:
    near = Neighbours(np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2)))
    said = votes(near, np.array([0, 1, 1]), np.array([1.0, 0.0, 1.0]), 2)
    assert said.tolist() == [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
