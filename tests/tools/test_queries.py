"""Inputs of the applications are looked at as those of explain: type, values, range, and names that are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import Attributor
from provnet.answers.evaluation import evaluate
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.credit.compute import credit
from provnet.tools.generate.compute import fit_generator, rebuild_pictures
from provnet.tools.membership.compute import member_scores, scores_by
from provnet.tools.membership.member import memberships
from provnet.tools.trust.compute import abstention, check, support_of
from tests.cases import cases

from ..banked import banked_run
from ..digits import trained, training, unseen

ASK: dict[str, Callable[..., Any]] = {
    "memberships": lambda x, **more: memberships(trained(), x, **more),
    "member_scores": lambda x, **more: member_scores(trained(), x, **more),
    "credit": lambda x, **more: credit(trained(), x, ["ann"] * len(training()), draws=20, **more),
    "attribute_generated": lambda x, **more: attribute_generated(x, trained(), data=training(), **more),
}
CHECKED: dict[str, Callable[[Any], Any]] = {
    **ASK,
    "abstention, strangers": lambda x: abstention(trained(), None, {"mine": x}),
    "abstention, own": lambda x: abstention(trained(), x, {"mine": unseen().images}),
}
TYPES: dict[str, Callable[[torch.Tensor], Any]] = {
    "float16": lambda x: x.half(),
    "float32": lambda x: x.float(),
    "float64, numpy": lambda x: x.double().numpy(),
    "int64": lambda x: x.long(),
    "int16, numpy": lambda x: x.numpy().astype(np.int16),
}


@cases("name", CHECKED)
def test_values_of_another_range_get_a_warning(name: str) -> None:
    with pytest.warns(UserWarning, match=r"the values lie in 0..1, this run was trained on 0..255") as told:
        CHECKED[name](unseen().images[:4].float() / 255)
    assert told[0].filename == __file__  # who gave them is named, not the library


@pytest.mark.parametrize("name", ASK)
def test_what_was_looked_at_before_gets_no_second_warning(name: str) -> None:
    ASK[name](unseen().images[:4].float() / 255, warn=False)  # a warning would be an error


@cases("name", [*CHECKED, "support_of", "scores_by"])
def test_text_nan_and_nothing_are_refused(name: str) -> None:
    ask = (
        CHECKED.get(name)
        or {
            "support_of": lambda x: support_of(trained(), x),
            "scores_by": lambda x: scores_by(Attributor(trained()), x),
        }[name]
    )
    bad = unseen().images[:2].float()
    bad[1, 0, 3, 3] = torch.nan
    with pytest.raises(NonFiniteError, match="NaN"):
        ask(bad)
    with pytest.raises(DataError, match="must be whole or real numbers"):
        ask(np.full((1, 1, 28, 28), "a"))
    if name != "abstention, own":  # there, nothing means that none are to be measured
        with pytest.raises(UsageError, match=r"no (samples|pictures)"):
            ask(unseen().images[:0])


def test_arrays_that_torch_does_not_take_are_read() -> None:
    images = unseen().images[:4].numpy()
    odd = images.astype(">f4")[::-1].copy()[::-1]
    assert (support_of(trained(), odd) == support_of(trained(), images)).all()
    found = [member_scores(trained(), each).values["contrast"] for each in (odd, images)]
    assert (found[0] == found[1]).all()


def test_evaluate_says_that_test_data_have_another_range() -> None:
    test = unseen()
    scaled = provnet.open_data(test.images.float() / 255, test.samples.labels, class_names=list(test.class_names))
    with pytest.warns(UserWarning, match=r"the test data: the values lie in 0..1, this run was trained on 0..255"):
        evaluate(trained(), scaled)


def test_pictures_to_be_rebuilt_are_looked_at() -> None:
    run = fit_generator(training(), "faces", changes={"epochs": 1})
    images = unseen().images[:2]
    assert (rebuild_pictures(run, images.numpy().astype(">f4")) == rebuild_pictures(run, images)).all()
    with pytest.warns(UserWarning, match="trained on"):
        rebuild_pictures(run, images.float() / 255)
    with pytest.raises(NonFiniteError, match="NaN"):
        rebuild_pictures(run, torch.full((1, 1, 28, 28), torch.nan))
    with pytest.raises(UsageError, match="no pictures"):
        rebuild_pictures(run, images[:0])


@pytest.mark.parametrize("name", ["own", "edges"])
def test_strangers_do_not_take_a_name_of_the_result(name: str) -> None:
    with pytest.raises(UsageError, match=f'must not be called "{name}"'):
        abstention(trained(), unseen().images, {name: unseen().images})


@pytest.mark.parametrize("name", ["own", "noise"])
def test_other_data_do_not_replace_the_strangers_that_are_made(name: str) -> None:
    with pytest.raises(UsageError, match=f'"{name}" is a kind of strangers'):
        check(trained(), unseen(), others={name: unseen().images})


@pytest.mark.parametrize("text", ["000", "g" * 64, "0" * 65])
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a SHA-256 has 64 digits"):
        memberships(trained(), unseen().images[:1], [text])


@cases("name", TYPES)
def test_bytes_given_as_another_type_get_the_same_answers(name: str) -> None:
    run, data, change = trained(), training(), TYPES[name]
    images = torch.cat([data.images[3:5], unseen().images[:2]])
    assert memberships(run, change(images)) == memberships(run, images)
    assert memberships(run, change(images))[0].agrees == "pixels"
    heldout = unseen().images[9:15]
    found, wanted = (attribute_generated(each, run, data=data, heldout=heldout) for each in (change(images), images))
    assert found.exact.tolist() == wanted.exact.tolist() == [True, True, False, False]
    assert found.to_records() == wanted.to_records()


def test_held_out_pictures_of_another_type_are_known_as_training_samples() -> None:
    data = training()
    both = torch.cat([data.images, unseen().images[:6]])
    floats = provnet.open_data(both.float(), [0] * len(both), class_names=list(data.class_names))
    for heldout in (both, both.float(), both.long(), floats):
        found = attribute_generated(unseen().images[:2], trained(), data=data, heldout=heldout)
        assert found.heldout_trained == len(data)


def test_a_picture_with_fractions_changes_no_other_answer() -> None:
    run, data = trained(), training()
    alone = torch.cat([data.images[3:5], unseen().images[:1]])
    mixed = torch.cat([alone[:2].float(), alone[2:] / 2])
    assert memberships(run, mixed)[:2] == memberships(run, alone)[:2]
    heldout = unseen().images[9:15]
    found, wanted = (attribute_generated(each, run, data=data, heldout=heldout) for each in (mixed, alone))
    assert found.to_records()[:2] == wanted.to_records()[:2]
    assert 0 < found.controls["pixels"].distance[2] < 1  # on the scale of the bytes


def test_vectors_of_another_type_are_known() -> None:
    values = np.random.default_rng(0).integers(-9, 9, (30, 6))
    data = provnet.open_data(values, np.arange(30) % 4, class_names=[f"class {c}" for c in range(4)])
    run = banked_run(data)
    for given in (values, values.astype(np.float64), values.astype(np.float32), values.astype(np.int8)):
        (one,) = memberships(run, given[7:8])
        assert one.agrees == "pixels" and one.match is not None and one.match.index == 7
    double = np.random.default_rng(1).normal(size=(30, 6))
    run = banked_run(provnet.open_data(double, np.arange(30) % 4, class_names=[f"class {c}" for c in range(4)]))
    assert memberships(run, double[7:8])[0].agrees == "pixels"


def test_booleans_are_black_and_white() -> None:
    sharp = training().images > 127
    data = provnet.open_data(sharp, training().samples.labels, class_names=list(training().class_names))
    (one,) = memberships(replace(trained(), samples=data.samples), sharp[3:4])
    assert one.agrees == "pixels"
