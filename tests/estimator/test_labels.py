"""Labels come back in their own type; those that cannot be are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

import provnet
from provnet.base.errors import DataError
from provnet.data.compare import compare
from tests.cases import cases
from tests.estimator.made import pictures, small


@cases("missing", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT])
@cases("kind", [list, np.array, pd.Series])
def test_missing_labels_are_no_class(missing: object, kind: Callable[..., object]) -> None:
    x, y = pictures()
    names: list[object] = [f"class {label}" for label in y]
    names[2] = names[5] = missing
    labels = kind(names, dtype=object) if kind is not list else names
    with pytest.raises(DataError, match=rf"^2 of {len(y)} labels are missing, the first at position 2;"):
        small().fit(x, labels)


@cases(
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


def test_whole_floats_are_the_classes_that_data_have_in_a_file(tmp_path: Path) -> None:
    x, y = pictures()
    labels = np.array([1.0, 10.0, 2.0])[y]
    np.savez(tmp_path / "data.npz", images=x, labels=labels)
    model = small(epochs=1).fit(x, labels)
    opened = provnet.open_data(tmp_path / "data.npz")
    assert model.run_.samples.class_names == opened.class_names == provnet.open_data(x, labels).class_names
    assert model.run_.samples.class_names == ("1", "2", "10")
    assert compare(model.run_.samples, opened.samples).verdict == "same"


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
