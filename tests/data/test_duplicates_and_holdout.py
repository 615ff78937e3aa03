"""Exact duplicates, the ceiling they impose, and the split by content."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provnet import DataSpec, open_data
from provnet.base.errors import UsageError
from provnet.data.select import holdout
from provnet.samples.identity import duplicate_facts
from tests.data.made import encode, noise, write_folder


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_groups_and_ceiling_are_exact(content: list[int]) -> None:
    pool = noise((7, 4, 4))
    samples = open_data(pool[content], [0] * len(content)).samples
    sizes = np.bincount(content)[content]
    assert samples.index_ceiling == pytest.approx(float((1 / sizes).sum() / len(content)), abs=1e-12)
    same = samples.groups[:, None] == samples.groups[None, :]
    assert (same == (np.array(content)[:, None] == np.array(content)[None, :])).all()


def test_conflicts_are_told() -> None:
    pool = noise((3, 4, 4))
    samples = open_data(pool[[0, 0, 1, 1, 2]], ["a", "b", "a", "a", "b"]).samples
    assert samples.conflicts() == [(0, 1)]
    assert duplicate_facts(samples) == [
        "2 groups of exact duplicates, 4 of 5 samples",
        "exact index accuracy can reach at most 0.6000: equal pictures cannot be told apart",
        "1 group of equal pictures carries different labels; the first: train/0 (a), train/1 (b)",
    ]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("aaaab", "train/0 (a), train/4 (b)"),
        ("bbaba", "train/0 (b), train/2 (a)"),
        ("aabcd", "train/0 (a), train/2 (b), train/3 (c)"),
    ],
)
def test_a_conflict_shows_one_sample_of_each_label(labels: str, told: str) -> None:
    pool = noise((2, 4, 4))
    samples = open_data(pool[[0] * 5], list(labels)).samples
    assert duplicate_facts(samples)[-1] == f"1 group of equal pictures carries different labels; the first: {told}"
    several = open_data(pool[[0, 0, 1, 1]], list("abab")).samples
    assert duplicate_facts(several)[-1].startswith("2 groups of equal pictures carry different labels; the first: ")


def test_the_same_picture_in_two_files_is_one_group(tmp_path: Path) -> None:
    picture = noise((6, 5))
    write_folder(tmp_path, {"a/1.png": picture, "a/2.bmp": encode(picture, "BMP"), "b/3.png": noise((6, 5), 1)})
    samples = open_data(tmp_path).samples
    assert samples.index_ceiling == 2 / 3
    assert samples.hex(0) != samples.hex(1)


def test_holdout_is_stratified_and_blind_to_order() -> None:
    data = open_data("embedded")
    train, test = holdout(data, 0.1)
    assert np.bincount(train.labels).tolist() == [360] * 10
    assert np.bincount(test.labels).tolist() == [40] * 10
    order = np.random.default_rng(0).permutation(len(data))
    again, _ = holdout(data.select(order), 0.1)
    assert set(again.samples.sample_ids) == set(train.samples.sample_ids)
    assert not set(train.samples.sample_ids) & set(test.samples.sample_ids)


def test_both_sides_open_again(tmp_path: Path) -> None:
    for side in holdout(open_data("embedded", limit=200), 0.25):
        spec = DataSpec.from_json(json.loads(json.dumps(side.spec.to_json())))
        again = open_data(spec)
        assert again.samples.fingerprint == side.samples.fingerprint
        assert again.spec == side.spec == spec
    train, _ = holdout(open_data("embedded", limit=200), 0.25)
    inner, _ = holdout(train, 0.5)
    assert open_data(inner.spec).samples.fingerprint == inner.samples.fingerprint


def test_small_classes_and_duplicates_stay_together() -> None:
    pool = noise((8, 4, 4))
    content = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]
    data = open_data(pool[content], ["one", "one", "one", *["two"] * 6, "three"])
    train, test = holdout(data, 0.5)
    assert {train.class_names[label] for label in train.labels} == {"one", "two", "three"}
    shared = set(train.samples.places) & set(test.samples.places)
    assert not shared
    assert len(test) == 3


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=4, max_size=60),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
)
def test_equal_pictures_with_different_labels_go_to_one_side(made: list[tuple[int, int]], fraction: float) -> None:
    content, labels = (list(part) for part in zip(*made, strict=True))
    data = open_data(noise((31, 4, 4))[content], labels)
    train, test = holdout(data, fraction)
    assert not set(train.samples.places) & set(test.samples.places)
    assert len(train) + len(test) == len(data)
    assert set(train.samples.labels) == set(data.samples.labels)
    order = np.random.default_rng(0).permutation(len(data))
    assert set(holdout(data.select(order), fraction)[1].samples.places) == set(test.samples.places)


def test_the_share_of_each_class_stays_about_right() -> None:
    content = np.concatenate([np.arange(200), np.arange(100, 300)])  # a hundred pictures carry both labels
    data = open_data(noise((300, 4, 4))[content], ["a"] * 200 + ["b"] * 200)
    train, test = holdout(data, 0.2)
    assert not set(train.samples.places) & set(test.samples.places)
    assert np.bincount(test.labels).tolist() == [40, 40]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2])
def test_fractions_that_make_no_sense(fraction: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        holdout(open_data("embedded", limit=20), fraction)
