"""What the network receives: values stay what they are, other ranges get a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from provnet import ProvenanceClassifier
from provnet.base.errors import DataError
from provnet.models.network import NetworkConfig
from provnet.runs.inputs import to_input
from tests.cases import cases
from tests.estimator.made import pictures, small


@cases(
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


@pytest.mark.parametrize("form", ["int64", "uint8", "float32"])
def test_a_run_on_comparisons_is_asked_about_zeros_and_ones(form: str) -> None:
    x, y = pictures(dtype="uint8")
    model = small(epochs=1).fit(x > 127, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.explain(x > 127)
        model.explain((x > 127).astype("uint8") * 255)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.explain((x > 127).astype(form))
    assert [str(one.message).split(";")[0] for one in told] == [
        "the values lie in 0..1, this run was trained on 0..255"
    ]


def test_a_comparison_counts_as_what_it_becomes() -> None:
    x, y = pictures(dtype="uint8")
    model = small(epochs=1).fit(x.astype("float32"), y)  # of floats: True becomes 1, not 255
    with pytest.warns(UserWarning, match=r"lie in 0\.\.1, this run was trained on about"):
        model.explain(x > 127)


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


@cases(
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
