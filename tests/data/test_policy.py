"""Policies of augmentation: chosen by shape, checked, written as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from provnet.base.errors import UsageError
from provnet.data.modalities.augment import POLICIES, Policy, augment, auto_policy
from tests.cases import cases
from tests.data.augmented import EVERYTHING, made, pictures


@cases("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 4, 4), (1, 1, 100), (3, 224, 224)])
def test_the_policy_chosen_fits_the_shape(shape: tuple[int, ...]) -> None:
    images = pictures(4, *shape)
    assert not torch.equal(made(images, replace(POLICIES[auto_policy(shape)], keep=0.0)), images)


@cases(
    ("changes", "words"),
    [
        ({"shift": -1}, "shift must be a whole number"),
        ({"shift": 1.5}, "shift must be a whole number"),
        ({"shift": True}, "shift must be a whole number"),
        ({"fill": "reflct"}, 'Did you mean "reflect"'),
        ({"erase_fill": "noise"}, "unknown erase_fill"),
        ({"flip": 0.5}, "flip must be True or False"),
        ({"noise": float("nan")}, "noise must be a number from 0 to 1, got nan"),
        ({"noise": 25}, "noise must be a number from 0 to 1, got 25"),
        ({"keep": "1"}, "keep must be a number"),
        ({"rotate": 91}, "rotate must be degrees from 0 to 90"),
        ({"scale": (1.1, 0.9)}, "scale must be"),
        ({"scale": 1.1}, "scale must be"),
        ({"scale": (0.0, 1.0)}, "scale must be"),
        ({"scale": (1.0, float("nan"))}, "scale must be"),
    ],
)
def test_a_policy_out_of_bounds_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Policy(**changes)


def test_what_cannot_be_augmented_is_refused() -> None:
    images, index = pictures(4, 1, 8, 8), torch.arange(4)
    for bad, rows, policy, words in (
        (images[:, 0], index, "digits", "takes uint8 pictures"),
        (images.long(), index, "digits", "takes uint8 pictures"),
        (images.flatten(1), index, "digits", "takes uint8 pictures"),
        (images, index.int(), "digits", "one int64 index per sample, 4 here"),
        (images, index[:3], "digits", "one int64 index per sample, 4 here"),
        (images, index, Policy(shift=8), "too much for pictures of 8 x 8"),
        (images, index, "digit", 'Did you mean "digits"'),
    ):
        with pytest.raises(UsageError, match=words):
            augment(bad, rows, policy, seed=0, epoch=0)


@cases("policy", [*POLICIES.values(), EVERYTHING])
def test_a_policy_goes_through_json(policy: Policy) -> None:
    assert Policy(**json.loads(json.dumps(policy.to_json()))) == policy
