"""Explanations: arrays and records that say the same, and name samples as the run's sample table does."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch

from provnet.answers.attributor import explain
from provnet.answers.explanation import Explanation
from provnet.base.errors import NonFiniteError, UsageError
from tests.cases import cases

from .digits import NETWORKS, WITHIN, trained, training, unseen

ARRAYS = ("predicted", "confidence", "index", "weight", "support", "supported", "label")


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def found(network: str) -> Explanation:
    return explain(trained(network), unseen().images, k=6)


def test_arrays(found: Explanation, network: str) -> None:
    assert len(found) == 50
    assert found.index.shape == found.weight.shape == found.label.shape == (50, 6)
    assert found.predicted.dtype == found.index.dtype == found.label.dtype == np.int64
    assert found.supported.dtype == bool
    assert ((found.confidence > 0) & (found.confidence <= 1)).all()
    assert (np.diff(found.weight, axis=1) <= 0).all()
    assert (found.weight.sum(1) <= 1 + 1e-5).all()
    assert (found.supported == (found.support >= trained(network).config.support["threshold"])).all()
    assert repr(found) == f"Explanation(50 inputs, {found.supported.sum()} supported, k=6)"


def test_labels_are_those_of_the_samples_named(found: Explanation, network: str) -> None:
    labels = training().samples.labels
    for row, named in enumerate(found.index.tolist()):
        assert found.label[row].tolist() == [int(labels[i]) if i >= 0 else -1 for i in named]
    padded = (found.index == -1).any(1)
    if network in WITHIN:  # all of the predicted class, and -1 where it has fewer than six
        sizes = np.bincount(labels)[found.predicted]
        assert ((found.label == found.predicted[:, None]) == (found.index >= 0)).all()
        assert np.array_equal(padded, sizes < 6)
        assert padded.any()
    else:
        assert not padded.any()


def test_records_name_samples_as_the_table_does(found: Explanation) -> None:
    data = training()
    for row, one in enumerate(found):
        assert one == found.one(row)
        assert one.predicted == data.class_names[found.predicted[row]]
        assert one.confidence == float(found.confidence[row])
        assert one.supported == bool(found.supported[row])
        named = found.index[row][found.index[row] >= 0].tolist()
        assert [e.index for e in one.exemplars] == named
        for exemplar, weight in zip(one.exemplars, found.weight[row].tolist(), strict=False):
            i = exemplar.index
            assert exemplar.sample_id == data.samples.sample_ids[i]
            assert exemplar.sha256 == hashlib.sha256(data.images[i].numpy().tobytes()).hexdigest()
            assert exemplar.label == data.class_names[int(data.labels[i])]
            assert exemplar.path == data.samples.paths[i]
            assert exemplar.weight == weight


def test_to_records(found: Explanation) -> None:
    records = found.to_records()
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    for row, (record, one) in enumerate(zip(records, found, strict=True)):
        assert list(record) == ["input", "predicted", "confidence", "supported", "exemplars"]
        assert record["input"] == str(row)
        assert (record["predicted"], record["confidence"]) == (one.predicted, one.confidence)
        assert record["supported"] is one.supported
        for mine, exemplar in zip(record["exemplars"], one.exemplars, strict=True):
            names = ["sample_id", "sha256", "index", "label", "weight", "path", "duplicates", "duplicate_count"]
            assert list(mine) == names
            assert mine == {name: getattr(exemplar, name) for name in names} | {"duplicates": []}
    names = [f"digit {row}.png" for row in range(50)]
    assert [record["input"] for record in found.to_records(names)] == names
    with pytest.raises(UsageError, match="49 names for 50 explanations; give one each"):
        found.to_records(names[1:])


@cases("rows", [slice(3, 9), slice(None, None, -2), slice(50, 60), np.array([7, 7, 0]), np.arange(50) % 3 == 1])
def test_some_of_the_inputs(rows: slice | np.ndarray) -> None:
    whole = explain(trained(), unseen().images, k=6)
    few = whole[rows]
    for name in ARRAYS:
        assert np.array_equal(getattr(few, name), getattr(whole, name)[rows])
    assert list(few) == [whole.one(int(row)) for row in np.arange(50)[rows]]


def test_the_batch_does_not_matter(network: str, found: Explanation) -> None:
    for size in (1, 7, 50):
        again = explain(trained(network), unseen().images.numpy(), k=6, batch_size=size)
        assert np.array_equal(again.predicted, found.predicted)
        assert (again.index == found.index).mean() > 0.99  # neighbours may change places by rounding
        for name in ("confidence", "weight", "support"):
            np.testing.assert_allclose(getattr(again, name), getattr(found, name), rtol=1e-3, atol=1e-4)


def test_classes_given(network: str, found: Explanation) -> None:
    given = (torch.from_numpy(found.predicted) + 3) % 10
    if network not in WITHIN:
        with pytest.raises(UsageError, match="class-conditional"):
            explain(trained(network), unseen().images, k=6, classes=given)
        return
    other = explain(trained(network), unseen().images, k=6, classes=given, batch_size=16)
    assert np.array_equal(other.predicted, found.predicted)  # what is predicted does not change
    np.testing.assert_allclose(other.confidence, found.confidence, rtol=1e-3)
    assert ((other.label == given.numpy()[:, None]) == (other.index >= 0)).all()
    same = explain(trained(network), unseen().images, k=6, classes=torch.from_numpy(found.predicted))
    assert np.array_equal(same.index, found.index)


def test_more_exemplars_than_samples(network: str) -> None:
    n = len(training())
    found = explain(trained(network), unseen().images[:5], k=10_000)
    for named, weight, predicted in zip(found.index, found.weight, found.predicted, strict=True):
        wanted = np.flatnonzero(training().samples.labels == predicted) if network in WITHIN else np.arange(n)
        assert sorted(named[named >= 0]) == wanted.tolist()
        assert weight.sum() == pytest.approx(1, abs=1e-5)


def test_what_cannot_be_explained_is_refused(network: str) -> None:
    run, images = trained(network), unseen().images
    with pytest.raises(UsageError, match="no inputs were given"):
        explain(run, images[:0])
    with pytest.raises(UsageError, match="k must be 1 or more, got 0"):
        explain(run, images, k=0)
    with pytest.raises(UsageError, match=r"takes samples of shape \(1, 28, 28\), got \(28, 28\)"):
        explain(run, images[0])
    for value in (float("nan"), float("inf")):
        broken = images.float()
        broken[40, 0, 3, 3] = value
        with pytest.raises(NonFiniteError, match="no sample can be named"):
            explain(run, broken)
