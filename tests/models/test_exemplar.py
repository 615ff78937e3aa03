"""ExemplarHead: its laws, its shares against plain softmax, its keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provnet.base.errors import UsageError
from provnet.heads import heads as exemplar
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import unit
from provnet.heads.losses import index_loss
from tests.cases import cases

LABELS = [2, 0, 1, 2, 2, 1, 0, 2, 4]
WIDTH = 5


def head_of(
    labels: list[int] = LABELS, *, conditional: bool = False, stored: str = "fp32", **more: float
) -> ExemplarHead:
    torch.manual_seed(0)
    head = ExemplarHead(WIDTH, IndexMap(labels), conditional=conditional, stored=stored, **more)
    head.open_keys(trained=False)
    head.set_keys(torch.arange(len(labels)), torch.randn(len(labels), WIDTH))
    head.close_keys()
    return head


def queries(n: int = 7) -> Tensor:
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(1))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.booleans())
def test_every_index_has_its_own_slot(labels: list[int], conditional: bool) -> None:
    head = ExemplarHead(2, IndexMap(labels), conditional=conditional)
    index = torch.arange(len(labels))
    slots = head.to_slot(index).unsqueeze(1)
    assert torch.equal(head.to_index(slots, torch.tensor(labels)).squeeze(1), index)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_the_samples_of_a_class_are_one_slice(labels: list[int]) -> None:
    head = ExemplarHead(2, IndexMap(labels), conditional=False)
    assert head.index_map.labels[head.order].tolist() == sorted(labels)
    assert torch.equal(head.order[head.rows], torch.arange(len(labels)))


@cases("conditional", [False, True])
@cases("k", [1, 3, len(LABELS)])
def test_the_best_are_those_of_a_plain_softmax(conditional: bool, k: int) -> None:
    head, features = head_of(conditional=conditional), queries()
    classes = torch.tensor([0, 1, 2, 4, 2, 1, 0])
    shares = torch.softmax(head(features, classes), 1)
    found = head.best(features, classes, k)
    for row in range(len(features)):
        real = int((shares[row] > 0).sum())
        best = shares[row].topk(min(k, real))
        index = head.to_index(best.indices.unsqueeze(0), classes[row : row + 1])[0]
        assert found.index[row, : len(index)].tolist() == index.tolist()
        torch.testing.assert_close(found.log_share[row, : len(index)].exp(), best.values)
        assert found.index[row, len(index) :].tolist() == [-1] * (k - len(index))


def test_joint_shares_are_class_times_share_within_the_class() -> None:
    head, features = head_of(), queries()
    log_class = torch.log_softmax(torch.randn(7, head.index_map.classes, generator=torch.Generator().manual_seed(2)), 1)
    found = head.best(features, torch.zeros(7, dtype=torch.int64), len(LABELS), log_class)
    scores = head(features, torch.zeros(7, dtype=torch.int64))[:, head.rows].double()  # by index
    expected = torch.zeros_like(scores)
    for index, label in enumerate(LABELS):
        mine = torch.tensor([other == label for other in LABELS])
        within = (scores[:, index] - scores[:, mine].logsumexp(1)).exp()
        expected[:, index] = log_class[:, label].double().exp() * within
    torch.testing.assert_close(found.log_share.exp().double(), expected.gather(1, found.index), rtol=1e-5, atol=1e-7)
    assert (found.log_share.diff(dim=1) <= 0).all()
    assert [sorted(row) for row in found.index.tolist()] == [list(range(len(LABELS)))] * 7


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_totals_do_not_depend_on_the_pieces(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    head, features = head_of(), queries()
    monkeypatch.setitem(exemplar.SCORES, "cpu", pieces * len(features))
    totals = head.class_totals(features)
    scores = head(features, torch.zeros(7, dtype=torch.int64))[:, head.rows]
    for label in (0, 1, 2, 4):
        mine = torch.tensor([other == label for other in LABELS])
        torch.testing.assert_close(totals[:, label], scores[:, mine].logsumexp(1))
    assert torch.isfinite(totals).all()  # class 3 has no samples
    assert (totals[:, 3] < totals[:, [0, 1, 2, 4]].amin(1) - 20).all()


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_all_scores(conditional: bool, smoothing: float) -> None:
    head = head_of(conditional=conditional)
    index = torch.tensor([0, 3, 8, 5])
    classes = torch.tensor(LABELS)[index]
    one, two = (queries(4).requires_grad_() for _ in range(2))
    loss, hit = head.loss(one, classes, None, index, smoothing)
    scores = head(two, classes)
    reference = index_loss(scores, head.valid(classes), head.to_slot(index), smoothing)
    torch.testing.assert_close(loss, reference)
    assert hit.tolist() == (scores.argmax(1) == head.to_slot(index)).tolist()
    gradients = [torch.autograd.grad(x.sum(), (q, head.log_scale)) for x, q in ((loss, one), (reference, two))]
    torch.testing.assert_close(*gradients)


def test_observing_moves_keys_of_those_samples_and_no_others() -> None:
    head = head_of()
    before = head.keys.clone()
    seen, now = torch.tensor([4, 1]), queries(2)
    head.observe(seen, now)
    moved = (head.keys != before).any(1)
    assert head.order[moved].sort().values.tolist() == [1, 4]
    expected = unit(0.5 * before[head.rows[seen]] + 0.5 * unit(now))
    torch.testing.assert_close(head.keys[head.rows[seen]], expected)


def test_trained_keys_get_gradients_and_are_not_moved_by_observing() -> None:
    head = head_of()
    head.open_keys(trained=True)
    assert dict(head.named_parameters()).keys() == {"keys", "log_scale"}
    loss, _ = head.loss(queries(2), torch.tensor(LABELS[:2]), None, torch.tensor([0, 1]), 0.0)
    loss.sum().backward()
    assert head.keys.grad is not None
    assert (head.keys.grad.abs().sum(1) > 0).all()
    before = head.keys.detach().clone()
    head.observe(torch.tensor([0]), queries(1))
    assert torch.equal(head.keys, before)
    head.close_keys()
    assert "keys" in dict(head.named_buffers())
    assert not head.keys.requires_grad


@cases(("stored", "tolerance"), [("fp32", 1e-6), ("bf16", 2e-2), ("int8", 2e-2)])
@cases("conditional", [False, True])
def test_stored_keys_name_the_same_samples(stored: str, tolerance: float, conditional: bool) -> None:
    exact, head = head_of(conditional=conditional), head_of(conditional=conditional, stored=stored)
    again = ExemplarHead(WIDTH, IndexMap(LABELS), conditional=conditional, stored=stored)
    again.load_state_dict(head.state_dict())
    keys = exact.keys[exact.rows]
    found = again.best(keys, torch.tensor(LABELS), 1)
    assert found.index[:, 0].tolist() == list(range(len(LABELS)))
    reference = exact.best(keys, torch.tensor(LABELS), 1)
    torch.testing.assert_close(found.log_share, reference.log_share, rtol=0, atol=tolerance * 16)


def test_the_scale_is_learned_or_fixed() -> None:
    assert "log_scale" in dict(head_of().named_parameters())
    fixed = head_of(scale=30.0)
    assert "log_scale" in dict(fixed.named_buffers())
    assert float(fixed.scale) == pytest.approx(30.0)


def test_an_unknown_type_of_keys_is_refused() -> None:
    with pytest.raises(UsageError, match=r"int4.*fp32"):
        ExemplarHead(2, IndexMap([0]), conditional=False, stored="int4")
