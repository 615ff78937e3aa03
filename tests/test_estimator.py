"""ProvenanceClassifier keeps scikit-learn's contract, for rows and for pictures."""

from __future__ import annotations

import os
import unittest
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import provnet
from provnet import ProvenanceClassifier
from provnet.errors import DataError, IntegrityError, UsageError
from provnet.inputs import to_input
from provnet.labelled import classes_of, feature_names_of
from provnet.models.config import NetworkConfig
from provnet.training.config import train_config
from provnet.training.fit import fit
from tests.counts import SOAK

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # else scikit-learn skips its array API check

OTHERS = ["single", "class-independent", "class-conditional-heads"]
CHECKED = [ProvenanceClassifier(), *([ProvenanceClassifier(network=name) for name in OTHERS] if SOAK else [])]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator: ProvenanceClassifier, check: Callable[..., Any]) -> None:
    try:
        check(estimator)
    except (unittest.SkipTest, pytest.skip.Exception) as why:
        pytest.fail(f"none may be skipped: {why}")


def pictures(n: int = 36, dtype: str = "float32", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(N, 3, 6, 7) pictures in 0..1 (or bytes) of three classes: each brightens its own third."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    values = random.uniform(0, 0.4, (n, 3, 6, 7))
    for row, label in enumerate(labels):
        values[row, :, 2 * label : 2 * label + 2] += 0.6
    return (values * 255).astype("uint8") if dtype == "uint8" else values.astype(dtype), labels


def small(**changes: Any) -> ProvenanceClassifier:
    return ProvenanceClassifier(**{"backbone": "small", "epochs": 12, "batch_size": 12, "lr": 4e-3, **changes})


@pytest.fixture(scope="module")
def fitted() -> ProvenanceClassifier:
    return small().fit(*pictures())


def same(one: Any, other: Any) -> None:
    """Two explanations name the same samples with the same weights."""
    assert one.to_records() == other.to_records()


# Copies of scikit-learn's checks for pictures (N, C, H, W)


def test_subsets_of_pictures_get_the_same_answers(fitted: ProvenanceClassifier) -> None:
    x, _ = pictures(seed=1)
    whole = fitted.predict_proba(x)
    single = np.concatenate([fitted.predict_proba(x[i : i + 1]) for i in range(len(x))])
    np.testing.assert_allclose(whole, single, atol=1e-6)
    np.testing.assert_array_equal(fitted.predict(x), np.concatenate([fitted.predict(x[i : i + 1]) for i in range(36)]))
    np.testing.assert_array_equal(fitted.explain(x).index[5:9], fitted.explain(x[5:9]).index)


def test_order_of_pictures_does_not_matter(fitted: ProvenanceClassifier) -> None:
    x, _ = pictures(seed=1)
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_allclose(fitted.predict_proba(x)[order], fitted.predict_proba(x[order]), atol=1e-6)
    np.testing.assert_array_equal(fitted.explain(x).index[order], fitted.explain(x[order]).index)


def test_fit_twice_gives_the_same(fitted: ProvenanceClassifier) -> None:
    x, y = pictures()
    before = fitted.predict_proba(x)
    again = clone(fitted)
    for _ in range(2):
        np.testing.assert_array_equal(again.fit(x, y).predict_proba(x), before)
    np.testing.assert_array_equal(again.run_.history, fitted.run_.history)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "uint8", "int64", "bool"])
def test_types_of_pictures(dtype: str) -> None:
    x, y = pictures(dtype="uint8" if np.dtype(dtype).kind == "i" else "float64" if dtype == "bool" else dtype)
    x = (x > 0.5) if dtype == "bool" else x.astype(dtype)
    model = small().fit(x, y)
    assert model.run_.config.network.scale == (255 if np.dtype(dtype).kind in "uib" else 1)
    assert model.score(x, y) > 0.9
    assert model.predict_proba(x).dtype == np.float32
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1, atol=1e-6)


def test_read_only_memory_is_left_alone(tmp_path: Path) -> None:
    x, y = pictures()
    for name, values in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", values)
    held = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = small().fit(held, np.load(tmp_path / "y.npy", mmap_mode="r"))
    np.testing.assert_array_equal(model.predict(held), small().fit(x, y).predict(x))
    np.testing.assert_array_equal(held, pictures()[0])


@pytest.mark.parametrize(("bad", "words"), [(np.nan, "contains NaN"), (np.inf, "contains infinity"), (1e39, "float32")])
def test_values_that_are_not_finite_are_refused(fitted: ProvenanceClassifier, bad: float, words: str) -> None:
    x, y = pictures(dtype="float64")
    x[3, 1, 2, 2] = bad
    for call in (lambda: small().fit(x, y), lambda: fitted.predict(x), lambda: fitted.explain(x)):
        with pytest.raises(ValueError, match=words):
            call()


def test_number_of_values(fitted: ProvenanceClassifier) -> None:
    x, y = pictures()
    assert fitted.n_features_in_ == 3 * 6 * 7
    with pytest.raises(ValueError, match="X has 63 features, but ProvenanceClassifier is expecting 126 features"):
        fitted.predict(x[:, :, :3])
    with pytest.raises(DataError, match=r"takes samples of shape \(3, 6, 7\), got \(3, 7, 6\)"):
        fitted.predict(x.transpose(0, 1, 3, 2))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples"):
        small().fit(x, y[1:])
    with pytest.raises(ValueError, match="0 sample"):
        fitted.predict(x[:0])
    with pytest.raises(ValueError, match="2D array"):
        fitted.predict(x[0, 0, 0])
    with pytest.raises(ValueError, match="dim 5"):
        fitted.predict(x[None])


def test_not_fitted() -> None:
    x, y = pictures()
    calls = [lambda m: m.predict(x), lambda m: m.explain(x), lambda m: m.evaluate((x, y)), lambda m: m.save("x")]
    for call in calls:
        with pytest.raises(NotFittedError):
            call(small())


# The forms that X may have


def test_pictures_may_lie_flat_or_have_channels_last(fitted: ProvenanceClassifier) -> None:
    x, y = pictures()
    expected = fitted.predict_proba(x)
    last = x.transpose(0, 2, 3, 1)
    for form in (
        x.reshape(len(x), -1),
        last,
        torch.from_numpy(x),
        torch.from_numpy(x).double().requires_grad_(),
        x.tolist(),
    ):
        np.testing.assert_allclose(fitted.predict_proba(form), expected, atol=1e-6)
    flat = small(image_shape=(6, 7, 3)).fit(last.reshape(len(x), -1), y)
    np.testing.assert_array_equal(flat.predict_proba(last.reshape(len(x), -1)), expected)
    np.testing.assert_array_equal(small().fit(last, y).predict_proba(last.reshape(len(x), -1)), expected)


def test_grey_pictures_of_three_dimensions() -> None:
    x, y = pictures()
    model = small().fit(x[:, 0], torch.from_numpy(y))
    assert model.run_.config.network.input_shape == (1, 6, 7)
    np.testing.assert_array_equal(model.predict(x[:, 0]), model.predict(x[:, :1]))
    assert model.score(torch.from_numpy(x[:, 0]), torch.from_numpy(y)) > 0.9


@pytest.mark.parametrize("shape", [(6, 8), (126,), "6x7", (6, 7, 0), (3.0, 42.0)])
def test_image_shape_that_cannot_be(shape: Any) -> None:
    x, y = pictures()
    with pytest.raises(UsageError, match="image_shape"):
        small(image_shape=shape).fit(x.reshape(len(x), -1), y)


def test_image_data() -> None:
    data = provnet.open_data("embedded", limit=60)
    model = ProvenanceClassifier(epochs=2, batch_size=20).fit(data)
    assert model.classes_.tolist() == list(data.class_names)
    assert model.n_features_in_ == 784
    answers = np.array(data.class_names)[data.samples.labels]
    assert model.predict(data).tolist() == model.predict(data.images.numpy()).tolist()
    assert model.score(data) == np.mean(model.predict(data) == answers) == model.score(data.images, answers)
    assert model.run_.config.data == data.spec
    with pytest.raises(UsageError, match="its own labels"):
        model.fit(data, answers)


def test_columns_of_a_data_frame(tmp_path: Path) -> None:
    x, y = load_digits(n_class=2, return_X_y=True, as_frame=True)
    model = ProvenanceClassifier(epochs=2).fit(x, y)
    assert model.feature_names_in_.tolist() == list(x.columns)
    loaded = provnet.load(model.save(tmp_path / "run"))
    assert loaded.feature_names_in_.tolist() == list(x.columns)
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(x.rename(columns={"pixel_0_0": "other"}))
    model.fit(provnet.open_data("embedded", limit=20))
    assert not hasattr(model, "feature_names_in_")


# Labels


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["cat", "dog", "an owl"]),
        np.array(["b", "a", "é"], dtype=object),
        np.array([10, -9, 2]),
        np.array([10, 9, 2], dtype="uint8"),
        np.array([1.0, 10.0, 2.0]),
        np.array([True, False, True]),
        np.array(["10", "9", "2"]),
    ],
    ids=["text", "object", "int", "uint8", "float", "bool", "digits as text"],
)
def test_labels_come_back_in_their_own_type(labels: np.ndarray, tmp_path: Path) -> None:
    x, y = pictures()
    model = small().fit(x, labels[y])
    assert model.classes_.dtype == np.unique(labels).dtype
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert model.score(x, labels[y]) > 0.9
    loaded = provnet.load(model.save(tmp_path / "run"))
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_labels_of_pandas() -> None:
    x, y = pictures()
    names = pd.Series(["ant", "bee", "cow"])[y].reset_index(drop=True)
    for labels in (names, names.astype("category"), list(names)):
        assert small().fit(x, labels).predict(x[:3]).tolist() == ["ant", "bee", "cow"]


def test_labels_that_cannot_be() -> None:
    x, y = pictures()
    with pytest.raises(ValueError, match="continuous"):
        small().fit(x, y + 0.5)
    with pytest.raises(ValueError, match="target y is None"):
        small().fit(x)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        small().fit(x, y[:, None])


# Other parts of scikit-learn


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


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"network": "clas"}, {"preset": "slow"}, {"lr": -1.0}, {"alpha": 2}, {"device": "tpu"}]
)
def test_parameters_are_checked_in_fit(wrong: dict[str, Any]) -> None:
    model = small(**wrong)
    with pytest.raises(UsageError):
        model.fit(*pictures())
    assert not hasattr(model, "run_")


# Files


@pytest.mark.parametrize("network", ["single", "class-independent", "class-conditional", "class-conditional-heads"])
def test_saved_and_loaded_gives_the_same(network: str, tmp_path: Path) -> None:
    x, y = pictures(dtype="uint8")
    model = small(network=network, random_state=4, lr=0.003).fit(x.transpose(0, 2, 3, 1), y)
    loaded = provnet.load(model.save(tmp_path / "run"))
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    same(loaded.explain(x), model.explain(x))
    flat = x.transpose(0, 2, 3, 1).reshape(len(x), -1)
    np.testing.assert_array_equal(loaded.predict_proba(flat), model.predict_proba(x))
    assert loaded.get_params() == {**model.get_params(), "image_shape": (6, 7, 3)}
    refitted = clone(loaded).fit(flat, y)
    np.testing.assert_array_equal(refitted.predict_proba(flat), model.predict_proba(x))


def test_load_a_run_that_training_wrote(tmp_path: Path) -> None:
    data = provnet.open_data("embedded", limit=40)
    fit(data, config=train_config("fast", epochs=1), out=tmp_path / "run")
    model = provnet.load(tmp_path / "run")
    assert model.classes_.tolist() == list(data.class_names)
    assert set(model.predict(data)) <= set(data.class_names)
    assert model.get_params()["epochs"] == 1
    assert model.get_params()["lr"] is None, "as the preset has it"


def test_load_with_a_backbone_given_as_object(tmp_path: Path) -> None:
    x, y = pictures()
    body = nn.Sequential(nn.Flatten(), nn.Linear(126, 16))
    model = small(backbone=body).fit(x, y)
    model.save(tmp_path / "run")
    weight = body[1].weight.detach().clone()
    loaded = provnet.load(tmp_path / "run", backbone=body)
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    assert torch.equal(body[1].weight, weight)
    with pytest.raises(UsageError, match="give it again"):
        provnet.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"labels": "int64"}, classes_of),
        ({"labels": "datetime64"}, classes_of),
        ({"labels": 7}, classes_of),
        ({"feature_names": ["a"]}, feature_names_of),
        ({"sample_shape": [6, 7]}, lambda run: to_input(run, pictures()[0])),
        ({"sample_shape": "abc"}, lambda run: to_input(run, pictures()[0])),
    ],
)
def test_options_that_contradict_the_run_are_refused(options: dict[str, Any], read: Callable[[Any], Any]) -> None:
    x, y = pictures()
    run = small(epochs=1).fit(x, np.array(["a", "b", "c"])[y]).run_
    assert run.config.data is not None
    with pytest.raises(IntegrityError, match=r"config\.json"):
        read(replace(run, config=replace(run.config, data=replace(run.config.data, options=options))))


# Explanation and evaluation


def test_exemplars_are_training_samples_with_their_hashes(fitted: ProvenanceClassifier) -> None:
    x, _ = pictures()
    found = fitted.explain(x, k=3)
    assert found.index.shape == (36, 3)
    one = next(iter(found))
    assert one.exemplars[0].sha256 == fitted.run_.samples.hex(one.exemplars[0].index)
    assert [e.predicted for e in found] == fitted.predict(x).astype(str).tolist()


def test_evaluate_on_arrays_and_on_image_data(fitted: ProvenanceClassifier) -> None:
    x, y = pictures()
    unseen = pictures(seed=2)
    result = fitted.evaluate(unseen, train=(x, y))
    assert result.class_accuracy.n == result.index_accuracy.n == 36
    assert result.class_accuracy.value == fitted.score(*unseen)
    flat = fitted.evaluate((unseen[0].reshape(36, -1), unseen[1]), train=(x.reshape(36, -1), y))
    assert flat.to_json() == result.to_json()
    data = provnet.open_data(*unseen)
    assert fitted.evaluate(data).class_accuracy == result.class_accuracy
    assert fitted.evaluate().class_accuracy.n == 0
    with pytest.raises(DataError, match="label 7 is not among the 3 classes"):
        fitted.evaluate((x, np.full(36, 7)))
    with pytest.raises(UsageError, match="not the ones this run was trained on"):
        fitted.evaluate(train=unseen)


# What the network receives


@pytest.mark.parametrize(
    ("trained", "given"),
    [
        ("uint8", lambda x: x / 255),
        ("uint8", lambda x: x.astype("int32") * 16),
        ("uint8", lambda x: x / 127.5 - 1),
        ("float32", lambda x: x * 255),
        ("float32", lambda x: (x * 255).astype("uint8")),
        ("bytes as floats", lambda x: x / 255),
    ],
)
def test_values_in_another_range_get_a_warning(trained: str, given: Callable[[np.ndarray], np.ndarray]) -> None:
    x, y = pictures(dtype="float32" if trained == "float32" else "uint8")
    x = x.astype("float32") if trained == "bytes as floats" else x
    model = small(epochs=1).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(x)
        model.predict(x.astype("float64"))
        model.predict(np.zeros_like(x))
    with pytest.warns(UserWarning, match=r"the values lie in .*\.\..*, this run was trained on .*\.\."):
        model.predict(given(x))
    with pytest.raises(DataError, match="bring them to the range trained on"):
        to_input(model.run_, given(x), strict=True)


def test_vectors_may_have_any_range() -> None:
    x, y = load_digits(n_class=2, return_X_y=True)
    model = ProvenanceClassifier(epochs=1).fit(x, y)
    assert to_input(model.run_, x * 1e6, strict=True).dtype == torch.float32


BYTES = NetworkConfig("single", "small", (3, 6, 7), classes=2, scale=255.0)
FLOATS = NetworkConfig("single", "small", (3, 6, 7), classes=2)


def test_raw_values_stay_what_they_are() -> None:
    x, _ = pictures(dtype="uint8")
    expected = torch.from_numpy(x)
    read_only = x.copy()
    read_only.flags.writeable = False
    for form in (x, x.astype("int16"), x.astype(">u4"), x[::-1][::-1], np.asfortranarray(x), read_only, x.tolist()):
        assert to_input(BYTES, form).dtype == torch.uint8
        assert torch.equal(to_input(BYTES, form), expected)
    for form in (x.astype("float64"), x.astype("float16"), x.astype(">f4")):
        assert to_input(BYTES, form).dtype == torch.float32
        assert torch.equal(to_input(BYTES, form), expected.float())
    assert torch.equal(to_input(BYTES, x > 127), expected.gt(127).to(torch.uint8) * 255)
    assert to_input(FLOATS, x > 127).dtype == torch.float32
    assert to_input(FLOATS, x > 127).max() == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.array(3.0), "Expected 2D array"),
        (np.zeros((2, 3, 6, 7), complex), "Complex data not supported"),
        (np.full((2, 3, 6, 7), None), "Python objects not supported"),
        (np.full((2, 3, 6, 7), np.nan), "Input X contains NaN"),
        (np.full((2, 3, 6, 7), -np.inf), "Input X contains infinity"),
        (np.zeros((0, 3, 6, 7)), "0 sample"),
        (np.zeros((2, 1, 3, 6, 7)), "Expected 2D array"),
        ([[1.0], [1.0, 2.0]], "do not form an array"),
        (np.zeros((2, 125)), "takes samples of shape"),
    ],
)
def test_arrays_that_cannot_be_samples(bad: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        to_input(BYTES, bad)
