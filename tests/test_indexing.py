"""Index laws: a sample's index and its (class, local) pair name each other, whatever the sizes of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap
from tests.cases import cases
from tests.models.made import LAWS, Labels, members, uneven_labels


@LAWS
@given(uneven_labels())
def test_join_undoes_split(made: Labels) -> None:
    index_map = made.index_map
    every = torch.arange(index_map.n)
    classes, local = index_map.split(every)
    assert classes.tolist() == made.labels.tolist()
    assert torch.equal(index_map.join(classes, local), every)


@LAWS
@given(uneven_labels())
def test_split_undoes_join(made: Labels) -> None:
    index_map = made.index_map
    sizes = np.bincount(made.labels, minlength=made.classes).tolist()
    pairs = torch.tensor([(c, place) for c, size in enumerate(sizes) for place in range(size)])
    index = index_map.join(pairs[:, 0], pairs[:, 1])
    assert sorted(index.tolist()) == list(range(len(made.labels)))  # each sample has one pair
    assert torch.equal(torch.stack(index_map.split(index), 1), pairs)


@LAWS
@given(uneven_labels())
def test_order_within_a_class_is_kept(made: Labels) -> None:
    index_map = made.index_map
    for label in range(made.classes):
        own = members(index_map, label)
        row = index_map.table[label].tolist()
        assert row == own + [-1] * (index_map.largest - len(own))
        assert int(index_map.sizes[label]) == len(own)
    assert (index_map.n, index_map.classes) == (len(made.labels), made.classes)
    assert index_map.largest == np.bincount(made.labels).max()


@LAWS
@given(uneven_labels())
def test_pairs_that_name_no_sample_are_refused(made: Labels) -> None:
    """The first and the last place beyond each class, beside a pair that is right."""
    index_map = made.index_map
    right, largest = int(index_map.labels[0]), index_map.largest
    for label, size in enumerate(index_map.sizes.tolist()):
        for place in {size, largest - 1} & set(range(size, largest)):
            with pytest.raises(UsageError, match="names no sample"):
                index_map.join(torch.tensor([right, label]), torch.tensor([0, place]))


@pytest.mark.parametrize(("classes", "local"), [(0, 3), (1, 1), (2, 0), (0, 2**40)])
def test_pairs_beyond_the_table_are_refused(classes: int, local: int) -> None:
    with pytest.raises(UsageError):
        IndexMap([0, 0, 0, 1]).join(torch.tensor([classes]), torch.tensor([local]))


def test_one_bad_pair_among_good_ones_is_refused() -> None:
    index_map = IndexMap([0, 0, 0, 1])
    with pytest.raises(UsageError):
        index_map.join(torch.tensor([[0, 0], [1, 1]]), torch.tensor([[0, 2], [0, 2]]))


def test_any_shape_of_indices() -> None:
    index_map = IndexMap([1, 0, 1, 1])
    index = torch.tensor([[3, 0], [1, 1], [2, 3]])
    classes, local = index_map.split(index)
    assert classes.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert local.tolist() == [[2, 0], [0, 0], [1, 2]]
    assert torch.equal(index_map.join(classes, local), index)


def test_one_class_is_the_identity() -> None:
    index_map = IndexMap([0] * 9)
    assert index_map.split(torch.arange(9))[1].tolist() == list(range(9))
    assert (index_map.classes, index_map.largest) == (1, 9)


def test_empty_classes_keep_their_place() -> None:
    index_map = IndexMap([3, 1, 3], classes=6)
    assert index_map.sizes.tolist() == [0, 1, 0, 2, 0, 0]
    assert index_map.table.tolist() == [[-1, -1], [1, -1], [-1, -1], [0, 2], [-1, -1], [-1, -1]]


@cases(
    "labels",
    [
        [1, 0, 1],
        (1, 0, 1),
        np.array([1, 0, 1], np.int32),
        np.array([1, 0, 1], np.uint8),
        torch.tensor([1, 0, 1], dtype=torch.int16),
        torch.tensor([1, 0, 1]),
    ],
    ids=["list", "tuple", "int32", "uint8", "torch int16", "torch int64"],
)
def test_everything_is_int64(labels: Any) -> None:
    index_map = IndexMap(labels)
    for value in (index_map.labels, index_map.local, index_map.table, index_map.sizes):
        assert value.dtype == torch.int64
    assert index_map.table.tolist() == [[1, -1], [0, 2]]
    index = index_map.join(torch.tensor([1]), torch.tensor([1]))
    assert index.dtype == torch.int64
    assert [part.dtype for part in index_map.split(index)] == [torch.int64] * 2


def test_it_keeps_its_own_labels() -> None:
    labels = np.array([0, 1, 1, 0])
    for shared in (labels, torch.from_numpy(labels)):
        index_map = IndexMap(shared)
        labels[:] = 0
        assert index_map.labels.tolist() == [0, 1, 1, 0]
        labels[1:3] = 1


def test_it_is_made_of_the_labels_alone_and_not_kept_in_weights() -> None:
    assert IndexMap([0, 1, 1]).state_dict() == {}
    assert repr(IndexMap([0, 1, 1], classes=4)) == "IndexMap(n=3, classes=4, largest=2)"


@pytest.mark.parametrize(
    ("labels", "classes", "said"),
    [
        ([], None, "at least one sample"),
        ([0, -1], None, "0 or more, got -1"),
        ([0, 5], 5, "below the number of classes, 5; got 5"),
        ([0], 0, "below the number of classes, 0; got 0"),
    ],
)
def test_labels_that_make_no_map_are_refused(labels: list[int], classes: int | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        IndexMap(labels, classes)
