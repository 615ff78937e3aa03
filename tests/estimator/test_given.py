"""What people try first: positions as labels, one picture, a classifier where a run is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from torch.utils.data import TensorDataset

import provnet
from provnet import ImageData, ProvenanceClassifier
from provnet.base.errors import DataError, UsageError
from tests.estimator.made import pictures, same, small

NAMES = np.array(["owl", "cat", "bee"])


@pytest.fixture(scope="module")
def data() -> ImageData:
    x, y = pictures(dtype="uint8")
    return provnet.open_data(x, NAMES[y])


@pytest.fixture(scope="module")
def named(data: ImageData) -> ProvenanceClassifier:
    return small().fit(data)


@pytest.mark.parametrize("form", [lambda y: y, lambda y: y.numpy(), lambda y: y.tolist(), lambda y: y.float()])
def test_positions_where_names_are_wanted(
    form: Callable[[torch.Tensor], Any], data: ImageData, named: ProvenanceClassifier
) -> None:
    words = r"numbers, the classes of this run are names \('bee', 'cat', 'owl'\).*score\(data\)"
    for call in (lambda y: named.score(data.images, y), lambda y: named.evaluate((data.images, y))):
        with pytest.raises(UsageError, match=words):
            call(form(data.labels))


def test_the_ways_out_of_positions_are_ways(data: ImageData, named: ProvenanceClassifier) -> None:
    names = np.array(data.class_names)[data.labels]
    assert (named.predict(data.images) == names).mean() == named.score(data) == named.score(data.images, names) > 0.9
    assert named.evaluate((data.images, names)).to_json() == named.evaluate(data).to_json()


@pytest.mark.parametrize("given", [lambda d: d.images, lambda d: "digits", lambda d: (d.images, d.labels, 3)])
def test_evaluate_takes_data_or_a_pair(
    given: Callable[[ImageData], Any], data: ImageData, named: ProvenanceClassifier
) -> None:
    with pytest.raises(UsageError, match=r"a Dataset or a pair \(X, y\), got (Tensor|str|tuple): evaluate\(data\)"):
        named.evaluate(given(data), data.labels)


@pytest.mark.parametrize("form", ["channels first", "channels last", "list", "PIL"])
def test_one_picture(form: str, data: ImageData, named: ProvenanceClassifier) -> None:
    first = data.images[0]
    last = first.permute(1, 2, 0).numpy()
    forms = {"channels first": first, "channels last": last, "list": first.tolist(), "PIL": Image.fromarray(last)}
    same(named.explain(forms[form]), named.explain(data.images[:1]))
    assert named.predict(forms[form]).tolist() == named.predict(data.images[:1]).tolist()


def test_one_grey_picture() -> None:
    x, y = pictures(dtype="uint8")
    model = small(epochs=1).fit(x[:, 0], y)
    for one in (x[0, 0], x[0, :1], Image.fromarray(x[0, 0])):
        same(model.explain(one), model.explain(x[:1, 0]))


@pytest.mark.parametrize("given", [np.zeros((6, 7), np.uint8), np.zeros((4, 6, 7)), Image.new("RGB", (6, 7))])
def test_a_picture_of_another_shape(given: Any, named: ProvenanceClassifier) -> None:
    with pytest.raises(DataError, match=r"pictures of shape \(3, 6, 7\), one or many, \(N, ...\); got an array"):
        named.explain(given)


@pytest.mark.parametrize("given", ["a.png", Path("a.png"), TensorDataset(torch.zeros(4, 3))])
def test_what_must_be_opened_first(given: Any, named: ProvenanceClassifier) -> None:
    with pytest.raises(UsageError, match=r"open it first: provnet\.open_data\(...\) or PIL\.Image\.open"):
        named.explain(given)


@pytest.mark.parametrize("shape", [(8, 8), (7, 6, 3), (3, 7, 6), (126, 1)])
def test_an_image_shape_that_the_data_do_not_have(shape: tuple[int, ...], data: ImageData) -> None:
    for given in ((data,), (data.images.numpy(), data.samples.labels)):
        with pytest.raises(UsageError, match=r"image_shape is .* but the samples given have the shape \(3, 6, 7\)"):
            small(image_shape=shape).fit(*given)


@pytest.mark.parametrize("shape", [(3, 6, 7), [6, 7, 3]])
def test_an_image_shape_that_the_data_have(shape: Any, data: ImageData) -> None:
    assert small(image_shape=shape, epochs=1).fit(data).n_features_in_ == 126
    grey = provnet.open_data(data.images[:, 0], data.labels)
    assert small(image_shape=(6, 7), epochs=1).fit(grey).n_features_in_ == 42


def test_a_classifier_is_explained_and_evaluated_as_its_run(
    data: ImageData, named: ProvenanceClassifier, tmp_path: Path
) -> None:
    loaded = provnet.load(named.save(tmp_path / "run"))
    same(provnet.explain(loaded, data), provnet.explain(named.run_, data.images))
    assert provnet.evaluate(loaded, data).to_json() == provnet.evaluate(named.run_, data).to_json()


@pytest.mark.parametrize("given", [ProvenanceClassifier(), "runs/digits", None])
def test_what_is_no_run(given: Any, data: ImageData) -> None:
    for call in (provnet.explain, provnet.evaluate):
        with pytest.raises(UsageError, match=r"expected a run or a fitted classifier, got \w+; (fit it|provnet)"):
            call(given, data)


def test_names_of_a_run_are_no_attributes(named: ProvenanceClassifier) -> None:
    for name in ("config", "samples", "history", "folder", "other"):
        assert not hasattr(named, name)
    with pytest.raises(AttributeError, match=r"no \.samples, its run has: use model\.run_"):
        _ = named.samples
    with pytest.raises(AttributeError, match="'ProvenanceClassifier' object has no attribute 'other'"):
        _ = named.other
    assert clone(named).get_params() == named.get_params()
