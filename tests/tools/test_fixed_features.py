"""Runs with a frozen backbone: wrong labels, foreign and bad samples are told apart, and support is calibrated."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet.answers.evaluation import evaluate
from provnet.answers.metrics import auc, average_precision
from provnet.data.dataset import ImageData
from provnet.runs.run import Run, read_run, write_run
from provnet.tools.debug.assess import assess, foreign_probability
from provnet.tools.debug.compute import BAD, CONFLICT, DROP, FOREIGN, WRONG, Debugging, bad_pictures, certain, debug
from provnet.training.calibration import RIGHT
from provnet.training.config import train_config
from tests.fitting import fit

CLASSES, EACH, WIDTH = 5, 60, 16
WRONG_ONES, STRANGERS = 24, 8


def made(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N, F) vectors of five classes and eight of none, labels as given, and the right ones (-1 for none)."""
    chance = np.random.default_rng(seed)
    right = np.repeat(np.arange(CLASSES), EACH)
    x = chance.normal(size=(len(right), WIDTH)) + 5 * np.eye(CLASSES, WIDTH)[right]
    given = right.copy()
    rows = chance.permutation(len(right))[:WRONG_ONES]
    given[rows] = (given[rows] + chance.integers(1, CLASSES, WRONG_ONES)) % CLASSES
    strange = chance.normal(size=(STRANGERS, WIDTH)) + 14 * np.eye(WIDTH)[WIDTH - 1]
    labels = np.append(given, chance.integers(0, CLASSES, STRANGERS))
    truth = np.append(right, np.full(STRANGERS, -1))
    return np.concatenate([x, strange]).astype(np.float32), labels, truth


def frozen() -> nn.Module:
    """A backbone that learns nothing."""
    torch.manual_seed(0)
    body = nn.Linear(WIDTH, WIDTH)
    nn.init.eye_(body.weight)
    return body.requires_grad_(False)


@cache
def frozen_run() -> tuple[Run, ImageData]:
    """Trained behind it."""
    x, labels, _ = made()
    data = provnet.open_data(x, labels)
    config = train_config("fast", epochs=3, batch_size=32, backbone=frozen(), network="class-independent")
    return fit(data, config=config), data


@cache
def found() -> Debugging:
    """What debugging says of it."""
    return debug(*frozen_run())


def test_features_that_are_not_trained_are_known_as_such() -> None:
    assert frozen_run()[0].network.fixed_features
    data = provnet.open_data("embedded", limit=40)
    assert not fit(data, config=train_config("fast", epochs=1)).network.fixed_features


def test_wrong_labels_and_foreign_samples_are_told_apart() -> None:
    _, labels, truth = made()
    wrong, strange = (truth >= 0) & (truth != labels), truth < 0
    result = found()
    assert average_precision(wrong, result.mislabels.odds) > 0.85
    assert auc(strange, result.anomalies.score).value > 0.98  # type: ignore[operator]
    kinds = result.kinds()
    assert (kinds[wrong] == WRONG).mean() > 0.8
    assert (kinds[strange] == FOREIGN).any()
    assert not (kinds[truth >= 0] == FOREIGN).any()
    assert np.isin(kinds[~wrong & ~strange], [WRONG, FOREIGN]).mean() < 0.05


def test_the_number_has_an_interval_that_holds_the_truth() -> None:
    result = found()
    low, high = result.expected_interval or (0.0, 0.0)
    assert low <= WRONG_ONES <= high
    assert low < (result.expected or 0) < high


def test_noise_has_no_labels_to_be_wrong() -> None:
    chance = torch.Generator().manual_seed(0)
    labels = np.arange(200) % 4
    said = assess(torch.randn(200, 12, generator=chance), labels, 4, draws=3)
    assert "are predicted beyond chance" in said.doubt


def test_only_certain_suggestions_are_corrections_and_they_are_right() -> None:
    _, labels, truth = made()
    result = found()
    changed = np.flatnonzero(result.advised(certainty=0.9) != labels)
    assert 5 < len(changed) <= len(np.flatnonzero(result.advised() != labels))
    assert (result.advised(certainty=0.9)[changed] == truth[changed]).mean() >= 0.9
    assert (result.anomalies.score[changed] < 0.5).all()


def test_a_probability_that_is_high_alone_is_not_certain_on_the_average() -> None:
    assert len(certain(np.full(50, 0.91), np.zeros(50), 0.9)) == 0
    assert len(certain(np.full(50, 0.99), np.zeros(50), 0.9)) == 50


def test_contributions_rank_and_the_score_leaves_out_what_is_of_no_class() -> None:
    result = found()
    said = result.assessment
    assert said is not None
    odds = result.mislabels.base + sum(
        part for name, part in result.mislabels.contributions.items() if name in said.parts
    )
    assert np.allclose(1 / (1 + np.exp(-odds)) * (1 - said.foreign), result.mislabels.score, atol=1e-6)


def test_one_sample_under_two_labels_is_never_kept_under_both() -> None:
    x, labels, _ = made()
    data = provnet.open_data(np.concatenate([x, x[:1]]), np.append(labels, (labels[0] + 1) % CLASSES))
    config = train_config("fast", epochs=2, batch_size=32, backbone=frozen(), network="class-independent")
    result = debug(fit(data, config=config), data)
    pair = [0, len(x)]
    assert result.ranking()[0] in pair
    assert (result.kinds()[pair] == CONFLICT).all()
    advised = result.advised()[pair]
    assert (advised == DROP).all() or advised[0] == advised[1]


def test_where_all_are_known_none_is_foreign() -> None:
    chance = np.random.default_rng(0)
    assert foreign_probability(chance.normal(size=1000), np.ones(1000, dtype=np.bool_), 10).max() < 0.5


def test_blank_and_blurred_pictures_are_bad_ones() -> None:
    data = provnet.open_data("embedded", limit=100)
    pictures = data.images.clone()
    assert not bad_pictures(pictures).any()
    pictures[3], pictures[4] = 0, 200
    assert np.flatnonzero(bad_pictures(pictures)).tolist() == [3, 4]
    some = provnet.open_data(pictures.numpy(), data.samples.labels)
    result = debug(fit(some, config=train_config("fast", epochs=1)), some)
    assert result.kinds()[[3, 4]].tolist() == [BAD, BAD] and (result.anomalies.score[[3, 4]] > 0.9).all()


def test_support_is_how_often_answers_are_right(tmp_path: Path) -> None:
    run, _ = frozen_run()
    assert run.config.threshold == RIGHT and "how often" in run.config.support["statistic"]
    x, _, truth = made(seed=1)
    known = truth >= 0
    said = provnet.explain(run, x, k=1)
    assert ((said.support >= 0) & (said.support <= 1)).all()
    right = said.predicted[known] == truth[known]
    assert abs(float(said.support[known].mean()) - float(right.mean())) < 0.1
    assert auc(known, said.support).value > 0.95  # type: ignore[operator]
    test = provnet.open_data(x[known], truth[known])
    figures = evaluate(run, test)
    above, below = figures.extra["accuracy_if_supported"], figures.extra["accuracy_if_not"]
    assert above.n + below.n == known.sum() and (above.value or 0) >= 0.9
    assert figures.risk_coverage[-1] == pytest.approx((1.0, 1 - float(right.mean())), abs=1e-5)
    write_run(run, tmp_path / "run")
    again = read_run(tmp_path / "run", backbone=frozen())
    assert np.allclose(provnet.explain(again, x, k=1).support, said.support)
