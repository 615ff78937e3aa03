"""Choosing samples by position or mask, labels that nobody shares, and names that are text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from provnet import open_data
from provnet.base.errors import DataError, UsageError
from provnet.data.rules import encode_labels
from tests.cases import cases

MASK = [True, False, False, True, True, False]


def made() -> Any:
    return open_data(np.arange(24, dtype=np.uint8).reshape(6, 2, 2), [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("mask", [MASK, np.array(MASK), torch.tensor(MASK)], ids=["list", "array", "tensor"])
def test_a_mask_selects_what_it_marks(mask: Any) -> None:
    data = made()
    chosen = data.select(mask)
    assert chosen.samples.sample_ids == ("train/0", "train/3", "train/4")
    assert (chosen.images == data.images[[0, 3, 4]]).all()
    assert data.samples.select(mask).sample_ids == chosen.samples.sample_ids


@pytest.mark.parametrize("rows", [[4, 0], np.array([4, 0], np.uint8), torch.tensor([4, 0], dtype=torch.int32)])
def test_whole_numbers_are_positions(rows: Any) -> None:
    assert made().select(rows).samples.sample_ids == ("train/4", "train/0")
    assert len(made().select([])) == 0


@cases(
    ("rows", "words"),
    [
        (MASK[:5], "one value per sample, 6; got shape"),
        ([*MASK, True], "one value per sample, 6; got shape"),
        ([1.9], "whole numbers.*got float64"),
        (torch.tensor([1.0]), "whole numbers.*got float32"),
        (["1"], "whole numbers"),
        ([[1, 2]], "shape"),
    ],
)
def test_anything_else_selects_nothing(rows: Any, words: str) -> None:
    for selectable in (made(), made().samples):
        with pytest.raises(UsageError, match=words):
            selectable.select(rows)


def test_a_selection_keeps_who_is_withheld_and_who_was_added() -> None:
    marks = {"withheld": np.array([True, False, False]), "added": np.array([False, False, True])}
    chosen = replace(made().samples.select([0, 1, 2]), **marks).select([2, 0])
    assert chosen.withheld.tolist() == [False, True]
    assert chosen.added.tolist() == [True, False]


def test_the_hash_of_a_picture_covers_its_type_and_shape() -> None:
    pictures = [np.zeros((1, 4, 4), np.uint8), np.zeros((1, 2, 8), np.uint8), np.zeros((1, 2, 2), np.float32)]
    found = [open_data(each, [0]).samples.pixel_sha256.tobytes() for each in pictures]
    assert len(set(found)) == 3  # the same 16 bytes


def test_writing_to_labels_changes_no_sample() -> None:
    data = made()
    data.labels[0] = 2
    assert data.samples.labels[0] == data.labels[0] == 0


@cases(
    ("labels", "name"),
    [
        (np.array([1e300, 1e200, 0.0]), r"1e\+300"),
        (np.array([0.0, -(2.0**63)]), "-9.22"),
        ([2**64, 1], str(2**64)),
        ([-(2**70), 1], str(-(2**70))),
        (np.array([2**63, 1], np.uint64), str(2**63)),
    ],
)
def test_labels_too_large_are_refused_by_name(labels: Any, name: str) -> None:
    with pytest.raises(DataError, match=f"label {name}.* is too large"):
        encode_labels(labels)


def test_the_largest_labels_are_kept_apart() -> None:
    assert encode_labels([2**63 - 1, 2**63 - 2])[1] == (str(2**63 - 2), str(2**63 - 1))


def test_a_class_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match=r"class name '\\ud800' is not valid text"):
        open_data(np.zeros((2, 2, 2), np.uint8), ["a", "\ud800"])
    with pytest.raises(DataError, match="is not valid text"):
        open_data(np.zeros((2, 2, 2), np.uint8), [0, 1], class_names=["a", "\ud800"])
