"""Index heads: a slot names one sample, masked slots name none, and the packed head equals a loop over layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from torch import nn

from provnet.answers.attributor import attribute
from provnet.heads.heads import INDEX_HEADS, IndexHead, PerClassHead, SharedHead
from provnet.heads.index_map import IndexMap

from .made import LAWS, UNEVEN, Labels, around, members, uneven_labels

WIDTH = 6
# Every head is made by (features, index map); one that takes more is added here as a function.
HEADS: dict[str, Callable[[int, IndexMap], IndexHead]] = {**INDEX_HEADS}


def can_name(head: IndexHead, label: int) -> list[int]:
    """The samples that a head can name, given a class."""
    valid = head.valid(torch.tensor([label]))
    return list(range(head.index_map.n)) if valid is None else members(head.index_map, label)


@pytest.mark.parametrize("name", HEADS)
@LAWS
@given(made=uneven_labels())
def test_to_index_undoes_to_slot(name: str, made: Labels) -> None:
    head = HEADS[name](WIDTH, made.index_map)
    every = torch.arange(head.index_map.n)
    slots = head.to_slot(every)
    assert slots.dtype == torch.int64
    index = head.to_index(slots.unsqueeze(1), head.index_map.labels)
    assert index.dtype == torch.int64
    assert torch.equal(index.squeeze(1), every)


@pytest.mark.parametrize("name", HEADS)
@LAWS
@given(made=uneven_labels())
def test_valid_slots_name_each_sample_once_and_only_they_have_scores(name: str, made: Labels) -> None:
    torch.manual_seed(0)
    head = HEADS[name](WIDTH, made.index_map)
    classes = torch.unique(head.index_map.labels)
    scores = head(torch.randn(len(classes), WIDTH), classes)
    valid = head.valid(classes)
    shown = torch.ones_like(scores, dtype=torch.bool) if valid is None else valid
    assert torch.equal(torch.isfinite(scores), shown)
    assert bool((scores[~shown] == -torch.inf).all())
    for row, label in enumerate(classes.tolist()):
        slots = shown[row].nonzero().T
        assert sorted(head.to_index(slots, classes[row : row + 1])[0].tolist()) == can_name(head, label)


@pytest.mark.parametrize("name", HEADS)
@LAWS
@given(made=uneven_labels())
def test_masked_slots_are_never_named(name: str, made: Labels) -> None:
    """With k beyond every class: all samples that can be named, once each, and -1 where there are no more."""
    torch.manual_seed(0)
    head = HEADS[name](WIDTH, made.index_map)
    net = around(head, WIDTH)
    classes = torch.unique(head.index_map.labels)
    with torch.no_grad():
        found = attribute(net, net(torch.randn(len(classes), WIDTH), classes), k=head.index_map.n + 5)
    for label, index, weight in zip(classes.tolist(), found.index.tolist(), found.weight.tolist(), strict=True):
        wanted = can_name(head, label)
        assert sorted(index[: len(wanted)]) == wanted
        assert set(index[len(wanted) :]) <= {-1}
        assert set(weight[len(wanted) :]) <= {0.0}


@LAWS
@given(made=uneven_labels())
def test_the_packed_head_equals_a_loop_over_layers(made: Labels) -> None:
    torch.manual_seed(0)
    head = PerClassHead(WIDTH, made.index_map)
    classes, features = head.index_map.labels, torch.randn(head.index_map.n, WIDTH)
    with torch.no_grad():
        scores, start = head(features, classes), 0
        assert scores.shape == (len(classes), head.index_map.largest)
        for label, size in enumerate(head.index_map.sizes.tolist()):
            if size == 0:
                continue
            layer = nn.Linear(WIDTH, size)
            layer.weight.copy_(head.linear.weight[start : start + size])
            layer.bias.copy_(head.linear.bias[start : start + size])
            own = scores[classes == label]
            assert torch.allclose(own[:, :size], layer(features[classes == label]), atol=1e-5)
            assert bool((own[:, size:] == -torch.inf).all())
            start += size


def test_the_packed_head_teaches_only_the_layer_of_the_class() -> None:
    torch.manual_seed(0)
    head = PerClassHead(WIDTH, IndexMap(UNEVEN))  # rows 0-4 belong to class 0, 5 to class 1, 6-8 to class 2
    scores = head(torch.randn(4, WIDTH), torch.tensor([2, 2, 1, 2]))
    scores[torch.isfinite(scores)].square().sum().backward()
    assert head.linear.weight.grad is not None
    taught = head.linear.weight.grad.abs().sum(1) > 0
    assert taught.tolist() == [False] * 5 + [True] * 4


@LAWS
@given(made=uneven_labels())
def test_the_shared_head_is_one_layer_with_a_mask(made: Labels) -> None:
    torch.manual_seed(0)
    head = SharedHead(WIDTH, made.index_map)
    assert head.linear.out_features == head.index_map.largest
    classes = head.index_map.labels
    features = torch.randn(len(classes), WIDTH)
    plain, scores = head.linear(features), head(features, classes)
    for row, size in enumerate(head.index_map.sizes[classes].tolist()):
        assert torch.equal(scores[row, :size], plain[row, :size])
        assert bool((scores[row, size:] == -torch.inf).all())


@pytest.mark.parametrize("name", ["shared", "per-class"])
def test_the_mask_holds_where_a_slot_beyond_the_class_would_win(name: str) -> None:
    head = INDEX_HEADS[name](WIDTH, IndexMap(UNEVEN))
    nn.init.zeros_(head.linear.weight)
    head.linear.bias.data = torch.arange(float(head.linear.out_features)) * 100  # later slots and classes win
    net = around(head, WIDTH)
    with torch.no_grad():
        found = attribute(net, net(torch.zeros(3, WIDTH), torch.tensor([0, 1, 2])), k=5)
    assert found.index.tolist() == [[8, 7, 5, 2, 1], [3, -1, -1, -1, -1], [6, 4, 0, -1, -1]]


def test_a_class_without_samples_has_no_valid_slot() -> None:
    for name in ("shared", "per-class"):
        head = INDEX_HEADS[name](WIDTH, IndexMap([0, 0, 2], classes=4))
        valid = head.valid(torch.tensor([1, 3, 0]))
        assert valid is not None
        assert valid.tolist() == [[False, False], [False, False], [True, True]]
        assert bool((head(torch.randn(2, WIDTH), torch.tensor([1, 3])) == -torch.inf).all())
