"""Copies of scikit-learn's checks for pictures (N, C, H, W), and the forms that X may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import provnet
from provnet import ProvenanceClassifier
from provnet.base.errors import DataError, UsageError
from tests.cases import cases
from tests.estimator.made import pictures, small


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


@cases("dtype", ["float16", "float32", "float64", ">f4", "uint8", "int64", "bool"])
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


@cases("shape", [(6, 8), (126,), "6x7", (6, 7, 0), (3.0, 42.0)])
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
