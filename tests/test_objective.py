"""Losses: cross-entropy over the valid slots, finite where slots are masked, weighed as asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap
from provnet.heads.losses import index_loss
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.training.loop import Losses, ProvenanceObjective
from tests.cases import cases
from tests.models.made import LAWS, NETWORKS, UNEVEN, scores_of, vectors

TARGETS = torch.tensor([8, 3, 0, 6, 2, 5])
LABELS = torch.tensor(UNEVEN)[TARGETS]


def naive(scores: np.ndarray, valid: np.ndarray, slot: int, smoothing: float) -> float:
    """One sample: (1 - s) times its own surprise and s times the mean surprise of the slots that name a sample."""
    real = [float(s) for s, v in zip(scores, valid, strict=True) if v]
    total = math.log(math.fsum(math.exp(s - max(real)) for s in real)) + max(real)
    surprises = [total - s for s in real]
    return (1 - smoothing) * (total - float(scores[slot])) + smoothing * math.fsum(surprises) / len(surprises)


@LAWS
@given(st.integers(1, 12), st.integers(1, 5), st.floats(0, 0.9), st.floats(0.1, 30), st.integers(0, 2**31))
def test_unmasked_it_is_cross_entropy(slots: int, batch: int, smoothing: float, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=(batch, slots)) * size).float()
    own = torch.from_numpy(rng.integers(0, slots, batch))
    wanted = F.cross_entropy(scores, own, label_smoothing=smoothing, reduction="none")
    for valid in (None, torch.ones_like(scores, dtype=torch.bool)):
        assert torch.allclose(index_loss(scores, valid, own, smoothing), wanted, rtol=1e-4, atol=1e-4)


@LAWS
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(0, 0.9), st.integers(0, 2**31))
def test_masked_it_is_a_naive_loop_over_valid_slots(sizes: list[int], smoothing: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(len(sizes), 9)) * 5).astype(np.float32)
    valid = np.arange(9) < np.array(sizes)[:, None]
    own = np.array([rng.integers(0, size) for size in sizes])
    scores = torch.from_numpy(np.where(valid, values, -np.inf)).requires_grad_()
    loss = index_loss(scores, torch.from_numpy(valid), torch.from_numpy(own), smoothing)
    wanted = [naive(values[row], valid[row], own[row], smoothing) for row in range(len(sizes))]
    np.testing.assert_allclose(loss.detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
    loss.sum().backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
    assert bool((scores.grad[~torch.from_numpy(valid)] == 0).all())
    assert torch.allclose(scores.grad.sum(1), torch.zeros(len(sizes)), atol=1e-5)  # as of any softmax


def test_a_class_of_one_costs_nothing() -> None:
    scores = torch.tensor([[3.0, -torch.inf, -torch.inf]])
    assert index_loss(scores, torch.isfinite(scores), torch.tensor([0]), 0.3).tolist() == [0.0]


def test_half_precision_is_summed_in_full() -> None:
    scores = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    half = scores.bfloat16()
    loss = index_loss(half, None, torch.tensor([0, 1, 2]), 0.1)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, index_loss(half.float(), None, torch.tensor([0, 1, 2]), 0.1))


def losses_of(net: ProvenanceNet, objective: ProvenanceObjective) -> Losses:
    images = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    return objective(net, net.train()(images, LABELS), LABELS, TARGETS)


@cases("network", NETWORKS)
@cases(("task", "index"), [(0.3, 0.7), (1.0, 0.0), (0.0, 1.0), (2.0, 5.0)])
def test_the_total_is_the_weighted_sum(network: str, task: float, index: float) -> None:
    net = vectors(network, IndexMap(UNEVEN))
    losses = losses_of(net, ProvenanceObjective(task, index, smoothing=0.1))
    assert losses.per_sample.shape == (6,)
    assert losses.task == losses.per_sample.mean()
    if network == "single":  # trained on indices alone, whatever the weights
        assert losses.total.detach() == losses.index
    else:
        assert float(losses.total.detach()) == pytest.approx(task * float(losses.task) + index * float(losses.index))
    for part in (losses.task, losses.index, losses.per_sample):
        assert not part.requires_grad
        assert bool(torch.isfinite(part).all())


@pytest.mark.parametrize("network", NETWORKS)
def test_the_parts_are_what_they_say(network: str) -> None:
    net = vectors(network, IndexMap(UNEVEN)).train()
    output = net(torch.randn(6, 4), LABELS)
    losses = ProvenanceObjective(smoothing=0.2)(net, output, LABELS, TARGETS)
    assert torch.allclose(losses.per_sample, F.cross_entropy(output.logits, LABELS, reduction="none"))
    scores, slots = scores_of(output).detach(), net.index_head.to_slot(TARGETS).tolist()
    valid = torch.isfinite(scores).numpy()
    each = [naive(scores[row].numpy(), valid[row], slots[row], 0.2) for row in range(6)]
    assert float(losses.index) == pytest.approx(np.mean(each), rel=1e-4)


@cases("network", NETWORKS)
@cases(("task", "index"), [(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])
def test_gradients_are_finite_and_go_where_the_weights_say(network: str, task: float, index: float) -> None:
    net = vectors(network, IndexMap(UNEVEN))
    losses_of(net, ProvenanceObjective(task, index)).total.backward()
    moved = set()
    for name, p in net.named_parameters():
        if p.grad is not None:
            assert bool(torch.isfinite(p.grad).all()), name
            moved |= {name.split(".")[0]} if bool((p.grad != 0).any()) else set()
    wanted = {"backbone"}
    wanted |= {"task_head"} if task and network != "single" else set()
    wanted |= {"index_trunk", "index_head"} if index or network == "single" else set()
    assert moved == wanted


@pytest.mark.parametrize("weights", [(-0.1, 1.0), (1.0, -1e-9), (0.0, 0.0)])
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="loss weights must be 0 or more, finite, not both 0; got"):
        ProvenanceObjective(*weights)


@cases("smoothing", [-0.1, 1.0, 2.0, math.nan, math.inf])
def test_smoothing_that_makes_no_sense_is_refused(smoothing: float) -> None:
    with pytest.raises(UsageError, match=r"label smoothing must lie in \[0, 1\), got"):
        ProvenanceObjective(smoothing=smoothing)


def test_smoothing_of_the_class_loss_is_in_the_total_alone_and_spares_empty_classes() -> None:
    index_map = IndexMap([0, 0, 2], classes=3)  # nobody is in class 1
    net = build(NetworkConfig("class-independent", "mlp", (4,), classes=3), index_map).eval()
    images, labels = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), index_map.labels
    output, own = net(images, labels), torch.arange(3)
    plain, smooth = (
        ProvenanceObjective(1.0, 0.0, task_smoothing=part)(net, output, labels, own) for part in (0.0, 0.2)
    )
    assert torch.equal(plain.per_sample, smooth.per_sample)
    assert torch.equal(plain.task, smooth.task)
    logp = output.logits[:, [0, 2]].log_softmax(1)
    wanted = 0.8 * plain.task - 0.2 * logp.mean()
    assert torch.allclose(smooth.total, wanted, rtol=1e-5)
    with pytest.raises(UsageError, match="smoothing"):
        ProvenanceObjective(task_smoothing=1.0)
