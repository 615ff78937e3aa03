"""ProvenanceClassifier under scikit-learn: its own checks, search, pipelines, clones, parameters."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from provnet import ProvenanceClassifier
from provnet.base.errors import UsageError
from tests.cases import cases
from tests.counts import SOAK
from tests.estimator.made import pictures, small

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # else scikit-learn skips its array API check

OTHERS = ["single", "class-independent", "class-conditional-heads"]

CHECKED = [ProvenanceClassifier(), *([ProvenanceClassifier(network=name) for name in OTHERS] if SOAK else [])]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator: ProvenanceClassifier, check: Callable[..., Any]) -> None:
    try:
        check(estimator)
    except (unittest.SkipTest, pytest.skip.Exception) as why:
        pytest.fail(f"none may be skipped: {why}")


def test_clone_copies_parameters_and_a_backbone_given_as_object() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(126, 16), nn.BatchNorm1d(16))
    before = {name: value.clone() for name, value in body.state_dict().items()}
    x, y = pictures()
    model = small(backbone=body).fit(x, y)
    assert model.score(x, y) > 0.9
    for name, value in body.state_dict().items():
        assert torch.equal(value, before[name]), "the module given must not be trained itself"
    copied = clone(model)
    assert copied.backbone is not body
    assert not hasattr(copied, "run_")
    np.testing.assert_array_equal(copied.fit(x, y).predict_proba(x), model.predict_proba(x))


def test_grid_search_over_pictures() -> None:
    x, y = pictures()
    search = GridSearchCV(small(), {"lr": np.array([1e-9, 4e-3])}, cv=2).fit(x, y)
    assert search.best_params_ == {"lr": 4e-3}
    assert search.best_estimator_.score(x, y) > 0.9


def test_pipeline_with_scaling(tmp_path: Path) -> None:
    x, y = load_digits(n_class=3, return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), ProvenanceClassifier(epochs=5, batch_size=64, image_shape=(8, 8)))
    assert pipeline.fit(x[:200], y[:200]).score(x[200:300], y[200:300]) > 0.9
    model = pipeline[-1]
    assert model.run_.config.network.input_shape == (1, 8, 8)


def test_few_samples_and_steps_predict_as_they_trained() -> None:
    x, y = load_iris(return_X_y=True)
    model = ProvenanceClassifier()
    assert cross_val_score(model, x, y, cv=StratifiedKFold(3, shuffle=True, random_state=0)).mean() > 0.85
    assert ProvenanceClassifier(epochs=5).fit(x, y).score(x, y) > 0.6


def test_random_state() -> None:
    x, y = pictures()
    one, other = (small(random_state=seed).fit(x, y).predict_proba(x) for seed in (0, 1))
    assert not np.array_equal(one, other)
    state = np.random.RandomState(5)
    first, second = (small(random_state=state).fit(x, y).predict_proba(x) for _ in range(2))
    assert not np.array_equal(first, second), "a RandomState moves on"
    again = small(random_state=np.random.RandomState(5)).fit(x, y).predict_proba(x)
    np.testing.assert_array_equal(again, first)
    np.random.seed(3)
    loose = small(random_state=None).fit(x, y).predict_proba(x)
    np.random.seed(3)
    np.testing.assert_array_equal(small(random_state=None).fit(x, y).predict_proba(x), loose)


@cases("wrong", [{"epochs": 0}, {"network": "clas"}, {"preset": "slow"}, {"lr": -1.0}, {"alpha": 2}, {"device": "tpu"}])
def test_parameters_are_checked_in_fit(wrong: dict[str, Any]) -> None:
    model = small(**wrong)
    with pytest.raises(UsageError):
        model.fit(*pictures())
    assert not hasattr(model, "run_")
