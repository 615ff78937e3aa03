"""Inputs of the applications are looked at as those of explain: type, values, range, and names that are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.applications.abstention import abstention, support_of
from provnet.applications.credit import credit
from provnet.applications.generated import attribute_generated
from provnet.applications.member import memberships
from provnet.applications.membership import member_scores, network_scores
from provnet.applications.trust import check
from provnet.errors import DataError, NonFiniteError, UsageError
from provnet.evaluation import evaluate
from provnet.generation import fit_generator, rebuild_pictures

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


@pytest.mark.parametrize("name", CHECKED)
def test_values_of_another_range_get_a_warning(name: str) -> None:
    with pytest.warns(UserWarning, match=r"the values lie in 0..1, this run was trained on 0..255") as told:
        CHECKED[name](unseen().images[:4].float() / 255)
    assert told[0].filename == __file__  # who gave them is named, not the library


@pytest.mark.parametrize("name", ASK)
def test_what_was_looked_at_before_gets_no_second_warning(name: str) -> None:
    ASK[name](unseen().images[:4].float() / 255, warn=False)  # a warning would be an error


@pytest.mark.parametrize("name", [*CHECKED, "support_of", "network_scores"])
def test_text_nan_and_nothing_are_refused(name: str) -> None:
    ask = (
        CHECKED.get(name)
        or {
            "support_of": lambda x: support_of(trained(), x),
            "network_scores": lambda x: network_scores(trained().network, x),
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
