"""The recipe for so many samples of a shape: what preset `robust` leaves open, and what was asked for by name."""

from typing import Any

import numpy as np
import pytest

from provnet.base.errors import UsageError
from provnet.models.backbones import MANY, auto_backbone
from provnet.training.config import MANY_SAMPLES, PRESETS, TrainConfig, for_samples, train_config
from tests.cases import cases

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


@pytest.mark.parametrize(("shape", "policy"), [(GREY, "digits"), (COLOUR, "photos")])
def test_many_samples_take_another_recipe(shape: tuple[int, ...], policy: str) -> None:
    few, many = (for_samples(train_config("robust"), n, shape) for n in (MANY - 1, MANY))
    assert (few.augment, many.augment) == (policy, policy)
    for name, value in MANY_SAMPLES[policy].items():
        assert getattr(few, name) == getattr(PRESETS["robust"], name) != value
        assert getattr(many, name) == value


@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_other_presets_do_not(preset: str) -> None:
    assert for_samples(train_config(preset), MANY, GREY).to_json() == (
        for_samples(train_config(preset), MANY - 1, GREY).to_json()
    )


@cases("name", sorted(MANY_SAMPLES["photos"]))
def test_what_was_asked_for_stays_even_where_it_is_the_usual_value(name: str) -> None:
    usual = getattr(PRESETS["robust"], name)
    config = for_samples(train_config("robust", **{name: usual}), MANY, COLOUR)
    assert getattr(config, name) == usual
    others = {other: getattr(config, other) for other in MANY_SAMPLES["photos"] if other != name}
    assert others == {other: MANY_SAMPLES["photos"][other] for other in others}


def test_a_recipe_written_out_stays() -> None:
    assert for_samples(TrainConfig(preset="robust", epochs=3, augment="auto"), MANY, COLOUR).epochs == 3


def test_resolving_twice_changes_nothing() -> None:
    once = for_samples(train_config("robust", epochs=30), MANY, COLOUR)  # the usual number, asked for
    assert (once.epochs, for_samples(once, MANY, COLOUR)) == (30, once)


def test_who_asked_is_not_part_of_a_run() -> None:
    assert "asked" not in train_config("robust", epochs=3).to_json()


def test_many_grey_pictures_take_a_larger_backbone_under_robust_alone() -> None:
    assert auto_backbone(GREY, "class-independent", "robust", MANY) == "medium"
    assert auto_backbone(GREY, "class-independent", "robust", MANY - 1) == "small"
    assert auto_backbone(GREY, "class-independent", "fast", MANY) == "small"
    assert auto_backbone(COLOUR, "class-independent", "robust", MANY) == "residual"


@cases(
    ("settings", "said"),
    [
        ({"lr": "x"}, "lr must be a finite number above 0, got 'x'"),
        ({"lr": [1e-3]}, r"lr must be a finite number above 0, got \[0.001\]"),
        ({"lr": float("nan")}, "lr must be a finite number above 0, got nan"),
        ({"lr": 0}, "lr must be a finite number above 0, got 0"),
        ({"lr": -1.0}, r"lr must be a finite number above 0, got -1\.0"),
        ({"weight_decay": "x"}, "weight_decay must be a finite number of 0 or more, got 'x'"),
        ({"betas": "xy"}, r"betas must be two numbers, each in \[0, 1\); got 'xy'"),
        ({"betas": (0.9,)}, r"betas must be two numbers, each in \[0, 1\); got \(0.9,\)"),
        ({"betas": 0.9}, "betas must be two numbers"),
        ({"smoothing": "x"}, r"smoothing must be a number in \[0, 1\); got 'x'"),
        ({"smoothing": 1.0}, "smoothing must be a number in"),
        ({"seed": "x"}, "seed must be a whole number in 0..2.63-1, got 'x'"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"epochs": "3"}, "epochs must be a whole number from 1 to 100000, got '3'"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        train_config("fast", **settings)


def test_numbers_of_any_type_are_taken() -> None:
    config = train_config("fast", lr=np.float32(0.25), weight_decay=1, betas=[0.5, 0.75], seed=np.int64(3), warmup=0)
    assert (config.lr, config.weight_decay, config.seed) == (0.25, 1, 3)


@pytest.mark.parametrize("name", ["fastest", ["fast"], None, 3])
def test_a_preset_that_is_none_is_refused_with_those_there_are(name: Any) -> None:
    with pytest.raises(UsageError, match=r"unknown preset .*; allowed: .*fast"):
        train_config(name)
