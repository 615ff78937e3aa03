"""Arrays as people give them to explain, credit and attribute_generated: what can be read is read, the rest refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import provnet
from provnet.answers.attributor import explain
from provnet.answers.explanation import Explained
from provnet.base.errors import DataError, UsageError
from provnet.models.network import NetworkConfig
from provnet.runs.inputs import range_problem, raw_tensor
from provnet.runs.run import Run
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.credit.compute import credit
from provnet.tools.membership.member import memberships
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from .digits import trained, training, unseen

WHO = ["ann", "bob"] * 500


def asked(run: Run, images: Any) -> list[Any]:
    """What two functions say of some images."""
    found = credit(run, images, WHO[: len(run.samples)], draws=20)
    return [explain(run, images).to_records(), found.to_json()]


def read_only(images: np.ndarray) -> np.ndarray:
    images.flags.writeable = False
    return images


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "read backwards": lambda x: x[::-1].copy()[::-1],
    "other byte order": lambda x: x.astype(">f4"),
    "read-only": read_only,
    "every second": lambda x: np.repeat(x, 2, axis=0)[::2],
    "wide floats": lambda x: x.astype(np.longdouble),
    "wide bytes": lambda x: x.astype(np.uint16),
    "wide bytes of torch": lambda x: torch.from_numpy(x).to(torch.uint16),
    "list": lambda x: x.tolist(),
}


@cases("form", FORMS)
def test_any_array_of_the_same_numbers_is_explained_alike(form: str) -> None:
    images = unseen().images[:4].numpy()
    assert asked(trained(), FORMS[form](images.copy())) == asked(trained(), images)


def test_generated_images_may_be_any_array() -> None:
    images = training().images[:3].numpy()
    found = attribute_generated(read_only(images[::-1].copy()[::-1]), trained(), data=training())
    assert found.exact.all()
    assert found.copy_index.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="must be whole or real numbers"):
        attribute_generated(images + 1j, trained(), data=training())


@cases(
    "bad",
    [lambda x: x + 1j, lambda x: torch.from_numpy(x).to(torch.complex64), lambda x: x.astype(str), lambda x: [x, None]],
)
@cases("function", [explain, lambda run, x: credit(run, x, WHO[: len(run.samples)])])
def test_what_is_no_number_is_refused(bad: Callable[[Any], Any], function: Callable[[Run, Any], Any]) -> None:
    with pytest.raises(DataError, match=r"must be whole or real numbers, got|do not form an array"):
        function(trained(), bad(unseen().images[:2].numpy()))


def test_data_stand_for_their_pictures() -> None:
    run, data, names = trained(), unseen(), WHO[: len(trained().samples)]
    assert asked(run, data) == asked(run, data.images)
    assert np.array_equal(credit(run, data, names).by_query, credit(run, data.images, names).by_query)
    assert memberships(run, training())[3] == memberships(run, training().images)[3]
    assert attribute_generated(training(), run, data=training()).exact.all()


@pytest.mark.parametrize("who", [{"a": "ann"}, pd.Series(["ann", "bob"]), "ann"], ids=["dict", "Series", "text"])
def test_contributors_are_a_list(who: Any) -> None:
    with pytest.raises(UsageError, match=r"one for each sample or None; got (dict|Series|'ann')$"):
        credit(trained(), unseen(), who)


@pytest.mark.parametrize("function", [explain, lambda run, x: credit(run, x, WHO[: len(run.samples)])])
def test_a_dataset_is_opened_first(function: Callable[[Run, Any], Any]) -> None:
    pairs = TensorDataset(unseen().images[:2], unseen().labels[:2])
    for given, way in ((pairs, "..."), (DataLoader(pairs), "loader.dataset")):
        words = f"got {type(given).__name__}; open it first: provnet.open_data({way})"
        with pytest.raises(UsageError, match=re.escape(words)):
            function(trained(), given)


def test_a_single_number_has_the_wrong_shape() -> None:
    with pytest.raises(UsageError, match="takes samples of shape"):
        explain(trained(), np.array(3.0))
    assert raw_tensor(torch.tensor(3)).tolist() == [3]


@cases("name", ["k", "batch_size"])
@cases(
    ("value", "words"),
    [
        (-1, "must be .* or more, got -1"),
        (2.5, "whole number of .* or more, got 2.5"),
        ("3", "whole number"),
        ([3], ""),
    ],
)
def test_numbers_that_must_be_whole(name: str, value: Any, words: str) -> None:
    run, images = trained(), unseen().images[:2]
    with pytest.raises(UsageError, match=f"{name} .*{words}"):
        explain(run, images, **{name: value})
    with pytest.raises(UsageError, match=f"{name} .*{words}"):
        credit(run, images, WHO[: len(run.samples)], **{name: value})


def test_no_number_of_exemplars_is_refused_and_no_batch_size_is_chosen() -> None:
    run, images = trained(), unseen().images[:2]
    with pytest.raises(UsageError, match="k must be a whole number of 1 or more, got None"):
        explain(run, images, k=None)  # type: ignore[arg-type]
    assert np.array_equal(explain(run, images, batch_size=None).weight, explain(run, images, batch_size=256).weight)


def test_a_batch_of_none_is_refused_and_numbers_of_numpy_are_taken() -> None:
    run, images = trained(), unseen().images[:2]
    with pytest.raises(UsageError, match="batch_size must be 1 or more, got 0"):
        explain(run, images, batch_size=0)
    assert explain(run, images, k=np.int64(2), batch_size=np.uint8(1)).index.shape == (2, 2)  # type: ignore[arg-type]


@cases("form", [np.asarray, lambda y: y.astype(">i8"), lambda y: y[::-1].copy()[::-1], read_only, list])
def test_classes_as_an_array(form: Callable[[np.ndarray], Any]) -> None:
    run, images = trained("class-conditional"), unseen().images[:4]
    classes = np.array([3, 1, 4, 1])
    expected = explain(run, images, classes=torch.from_numpy(classes)).to_records()
    assert explain(run, images, classes=form(classes.copy())).to_records() == expected
    with pytest.raises(UsageError, match=r"classes must be int64, one for each of 4 inputs; got torch\.float64"):
        explain(run, images, classes=classes / 1)


def test_one_explanation_by_its_number() -> None:
    found = explain(trained(), unseen().images[:5])
    for row in range(5):
        assert found[row] == found[row - 5] == found[np.int64(row)] == found.one(row)
        assert isinstance(found[row], Explained)
    for beyond in (5, -6, np.int64(99)):
        with pytest.raises(IndexError, match="there are 5 explanations, numbered from 0; got"):
            found[beyond]


OTHER_RANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a comparison": lambda x: x > 127,
    "a comparison of numpy": lambda x: x.numpy() > 127,
    "floats up to 1": lambda x: x.float() / 255,
    "zeros and ones": lambda x: (x > 127).long(),
    "zeros and ones as bytes": lambda x: (x > 127).to(torch.uint8),
    "normalised": lambda x: (x.float() / 255 - 0.13) / 0.31,
    "16 bits": lambda x: x.int() * 257,
}


@cases("name", OTHER_RANGES)
def test_another_range_gets_one_warning(name: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        explain(trained(), OTHER_RANGES[name](unseen().images), batch_size=8)
    assert len(told) == 1
    assert told[0].category is UserWarning
    assert "this run was trained on 0..255; bring them to the range trained on" in str(told[0].message)
    assert told[0].filename == __file__


def test_pictures_of_the_range_trained_on_get_none() -> None:  # warnings are errors here
    images = unseen().images
    for given in (
        images,
        images.float(),
        images.int(),
        images // 100,
        images.clamp(max=2),
        images * 0,
        (images[:1] > 127).to(torch.uint8),
    ):
        explain(trained(), given)


def test_a_run_on_zeros_and_ones_is_asked_about_them() -> None:  # warnings are errors here
    images = (np.random.default_rng(0).random((12, 8, 8)) < 0.6).astype(np.uint8)
    run = fit(provnet.open_data(images, np.arange(12) % 2), config=train_config("fast", epochs=1))
    for form in (images, images.astype(float), images.astype(int)):
        explain(run, form[:, None])


def test_zeros_and_ones_never_reach_further() -> None:
    for share in np.linspace(0.001, 1, 200):
        mean, std = share / 255, np.sqrt(share * (1 - share)) / 255 + 1e-9
        network = NetworkConfig("single", "small", (1, 2, 2), classes=2, mean=(mean,), std=(std,), scale=255.0)
        assert range_problem(network, np.ones((1, 1, 2, 2), np.uint8)) is None
