"""A classifier as a run: saved and loaded, explained, evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import provnet
from provnet import ProvenanceClassifier
from provnet.api.estimator import classes_of, feature_names_of
from provnet.base.errors import DataError, IntegrityError, UsageError
from provnet.runs.inputs import to_input
from provnet.training.config import train_config
from tests.cases import cases
from tests.estimator.made import pictures, same, small
from tests.fitting import fit


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


@cases(
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


def test_joint_weights_are_those_of_the_function() -> None:
    x, y = pictures(dtype="uint8")
    model = small(network="class-independent").fit(x, y)
    joint = model.explain(x, k=3, weights="joint")
    same(joint, provnet.explain(model.run_, to_input(model.run_, x), k=3, weights="joint"))
    assert not np.allclose(joint.weight, model.explain(x, k=3).weight)
    with pytest.raises(UsageError, match='unknown weights "heavy"; allowed: influence, joint, plain'):
        model.explain(x, weights="heavy")


@cases(
    ("settings", "said"),
    [
        ({"lr": "x"}, "lr must be a finite number above 0, got 'x'"),
        ({"alpha": None}, "alpha must be a number, got None; leave it out for the default"),
        ({"alpha": "0.5"}, "alpha must be a number, got '0.5'"),
        ({"epochs": 2.5}, "epochs must be a whole number from 1 to 100000, got 2.5"),
        ({"backbone": nn.Conv2d(3, 4, 3)}, r"must give \(B, D\) features, this one gives \(B, 4, 4, 5\); end it with"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        small(**settings).fit(*pictures(dtype="uint8"))


def test_label_mixing_of_any_type_of_number() -> None:
    x, y = pictures(dtype="uint8")
    alpha = small(alpha=np.float32(0.5), epochs=1).fit(x, y).run_.config.network.alpha
    assert (alpha, type(alpha)) == (0.5, float)


PAIRS = TensorDataset(torch.zeros(4, 3), torch.zeros(4))


@pytest.mark.parametrize("given", ["digits", Path("pictures"), PAIRS, DataLoader(PAIRS)])
def test_what_must_be_opened_first_is_refused_with_the_way(given: Any) -> None:
    with pytest.raises(UsageError, match=r"open it first: fit\(open_data\(...\)\)"):
        provnet.ProvenanceClassifier().fit(given)


@pytest.mark.parametrize("files", [["a.png", "b.png"], ["cat/1.png"], ["notes.txt", "manifest.json"], ["report.html"]])
def test_a_folder_of_something_else_is_not_saved_into(files: list[str], tmp_path: Path) -> None:
    model = small(epochs=1).fit(*pictures())
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"that provnet did not write; choose another folder, new or empty"):
        model.save(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(files)
    assert all((tmp_path / name).read_text() == "mine" for name in files)


def test_saved_again_in_place_of_an_older_run_and_beside_notes(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    small(epochs=1, random_state=1).fit(*pictures()).save(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    model = small(epochs=1, random_state=2).fit(*pictures())
    loaded = provnet.load(model.save(tmp_path / "run"))
    np.testing.assert_array_equal(loaded.predict_proba(pictures()[0]), model.predict_proba(pictures()[0]))
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
