"""Attributions at the edges: rounded keys, far-apart scores, ties, values that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import Answered, Attributor, attribute, weights_of
from provnet.base.errors import NonFiniteError
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import unit
from provnet.heads.scores import joint_scores
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.runs.run import Run
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit


def vectors(n: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


@pytest.fixture(scope="module")
def keys() -> Run:
    """A network with keys over thirty samples, each twice: samples i and i + 30 are equal."""
    data = provnet.open_data(np.concatenate([vectors(30, 6)] * 2), np.tile(np.arange(30) % 3, 2))
    return fit(data, network="class-independent", head="exemplar", config=train_config("fast", epochs=2))


@pytest.mark.parametrize("key_type", ["fp32", "bf16", "int8"])
def test_near_copies_find_themselves_however_keys_are_stored(key_type: str) -> None:
    first = provnet.open_data("embedded", limit=60)
    change = np.random.default_rng(0).integers(-3, 4, first.images.shape)
    copies = np.clip(first.images.numpy().astype(np.int64) + change, 0, 255).astype(np.uint8)
    data = provnet.open_data(np.concatenate([first.images.numpy(), copies]), np.tile(first.samples.labels, 2))
    config = train_config("fast", epochs=1)
    run = fit(data, network="class-independent", head="exemplar", key_type=key_type, config=config)
    assert provnet.explain(run, data.images, k=1).index[:, 0].tolist() == list(range(len(data)))


def test_joint_weights_of_far_apart_scores_are_those_of_float64() -> None:
    scores = torch.tensor([[0.0, -300.0, -305.0, 5.0], [1e4, -1e4, -1e4 + 2, 0.0]])
    labels, log_class = torch.tensor([0, 1, 1, 0]), torch.tensor([[1e-4, 0.9999], [0.5, 0.5]]).log()
    found = joint_scores(scores, labels, log_class).exp().double().numpy()
    for row in range(2):
        for label in (0, 1):
            mine = np.flatnonzero(labels.numpy() == label)
            exact = np.exp(scores[row, mine].double().numpy() - scores[row, mine].max().item())
            wanted = float(log_class[row, label].exp()) * exact / exact.sum()
            assert np.allclose(found[row, mine], wanted, rtol=1e-4, atol=1e-30)


def test_the_first_by_joint_weights_is_of_the_sure_class() -> None:
    net = made("class-independent", IndexMap([0, 1]))
    with torch.no_grad():
        outputs: Any = net.index_head
        outputs.linear.weight.zero_()
        outputs.linear.bias.copy_(torch.tensor([200.0, -200.0]))
        last(net).weight.zero_()
        last(net).bias.copy_(torch.tensor([0.0, 9.0]))
    output = net(torch.zeros(1, 4))
    found = attribute(net, output, 2, "joint")
    assert found.index.tolist() == [[1, 0]]
    assert found.weight[0, 0].item() == pytest.approx(found.confidence[0].item(), rel=1e-6)
    assert torch.allclose(weights_of(net, output, found.index, "joint"), found.weight)


def test_a_sharp_scale_keeps_the_weight_of_opposite_keys() -> None:
    net = made("class-independent", IndexMap([0, 1, 1]), head="exemplar", key_width=4)
    head = net.index_head
    assert isinstance(head, ExemplarHead)
    with torch.no_grad():
        head.log_scale.fill_(np.log(64.0))
    queries = torch.nn.functional.normalize(torch.randn(5, 4), dim=1)
    away = torch.tensor([0.0, 0.0, 0.0, 1.0])
    for query in queries:
        head.set_keys(torch.arange(3), torch.stack([query, -query, -query + 0.01 * away]))
        totals = head.class_totals(query.unsqueeze(0)).double()[0]
        keys = head.bank.unpacked().double()
        exact = 64 * (keys @ query.double())
        assert totals.tolist() == pytest.approx([exact[0].item(), exact[1:].logsumexp(0).item()], rel=1e-5)


def test_of_equal_samples_the_first_is_named_whatever_was_asked_for(keys: Run) -> None:
    images = torch.from_numpy(np.concatenate([vectors(30, 6)] * 2))
    for weights in ("plain", "joint"):
        names = [provnet.explain(keys, images, k=k, weights=weights).index[:, 0].tolist() for k in (1, 2, 5, 60)]
        assert names == [names[0]] * 4
        assert max(names[0]) < 30  # the lower of two that are equal
        assert weights == "joint" or names[0] == list(range(30)) * 2


@cases("network", ["single", "class-independent", "class-conditional", "class-conditional-heads"])
@cases("weights", ["plain", "joint"])
def test_of_equal_scores_the_lower_sample_is_named_whatever_was_asked_for(network: str, weights: str) -> None:
    labels = np.arange(200) % 2
    net = made(network, IndexMap(labels))
    outputs: Any = net.index_head
    with torch.no_grad():
        outputs.linear.weight.zero_()
        outputs.linear.bias.copy_(torch.arange(len(outputs.linear.bias)) // 40 % 2)  # two scores, each many times
    output = net(torch.randn(5, 4))
    for k in (1, 2, 30, 200):
        found = attribute(net, output, k, weights)
        whole = weights_of(net, output, torch.arange(200).expand(5, 200), weights).detach().numpy()
        for row in range(5):
            order = np.lexsort((np.arange(200), -whole[row]))
            order = order[whole[row][order] > 0][:k]
            assert found.index[row, : len(order)].tolist() == order.tolist()


def test_classes_that_nearly_tie_are_told_alike() -> None:
    net = made("class-conditional", IndexMap([0, 1, 0, 1]))
    with torch.no_grad():
        last(net).weight.zero_()
        last(net).bias.copy_(torch.tensor([0.0, 1e-9]))
    found = attribute(net, net(torch.randn(3, 4)), 2)
    assert found.predicted.tolist() == [1, 1, 1]
    assert net.index_map.labels[found.index].tolist() == [[1, 1]] * 3
    assert found.confidence.tolist() == pytest.approx([0.5] * 3)


@pytest.mark.parametrize("weights", ["plain", "joint"])
@pytest.mark.parametrize("what", ["key", "scale"])
def test_keys_and_scales_that_are_not_finite_name_nobody(keys: Run, weights: str, what: str) -> None:
    head = keys.network.index_head
    assert isinstance(head, ExemplarHead)
    part = head.keys if what == "key" else head.log_scale
    before = part.detach().clone()
    images = torch.from_numpy(vectors(2, 6))
    with torch.no_grad():
        part[5 if what == "key" else ...] = torch.nan
    try:
        with pytest.raises(NonFiniteError):
            provnet.explain(keys, images, k=2, weights=weights)
        with pytest.raises(NonFiniteError):
            weights_of(keys.network, keys.network(images), head.order[5].expand(2, 1), weights)
    finally:
        with torch.no_grad():
            part.copy_(before)


@cases("weights", ["plain", "joint"])
@cases("bad", [torch.nan, -torch.nan, torch.inf, -torch.inf])
@cases("stored", ["fp32", "bf16", "int8"])
def test_a_broken_key_of_one_class_names_nobody_of_others(weights: str, bad: float, stored: str) -> None:
    net = made("class-independent", IndexMap([0, 0, 1, 1]), head="exemplar", key_width=4, key_type=stored)
    head = net.index_head
    assert isinstance(head, ExemplarHead)
    head.open_keys(trained=False)
    head.set_keys(torch.arange(4), torch.randn(4, 4))
    head.close_keys()
    (head.keys if head.steps is None or stored == "bf16" else head.steps)[head.rows[3]] = bad
    images, first = torch.randn(8, 4), torch.zeros(1, 1, dtype=torch.int64)
    for row in range(8):
        output = net(images[row : row + 1])
        with pytest.raises(NonFiniteError):
            attribute(net, output, 2, weights)
        with pytest.raises(NonFiniteError):
            weights_of(net, output, first, weights)
        with pytest.raises(NonFiniteError):
            Attributor(net, weights).each(images[row : row + 1], credited)


def test_a_score_of_minus_infinity_is_no_weight_of_zero() -> None:
    net = made("single", IndexMap([0, 0, 1]))
    outputs: Any = net.index_head
    output = net(torch.zeros(1, 4))
    assert weights_of(net, output, torch.tensor([[0]])).item() > 0
    with torch.no_grad():
        outputs.linear.bias[2] = -torch.inf
    output = net(torch.zeros(1, 4))
    for weights in ("plain", "joint"):
        with pytest.raises(NonFiniteError):
            weights_of(net, output, torch.tensor([[0]]), weights)


@pytest.mark.parametrize("weights", ["plain", "joint"])
def test_of_keys_that_fp32_cannot_tell_apart_the_best_comes_first(weights: str) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    head = ExemplarHead(64, IndexMap(labels), conditional=False, scale=16.0).eval()
    for _ in range(4):
        keys = unit(torch.randn(600, 64, generator=generator))
        middle = keys[0]
        keys[:120:3] = unit(middle + 3e-7 * torch.randn(40, 64, generator=generator))  # all of class 0
        head.set_keys(torch.arange(600), keys)
        queries = unit(middle + 0.05 * torch.randn(17, 64, generator=generator))
        log_class = torch.log_softmax(torch.tensor([5.0, 0.0, 0.0]), 0).expand(17, 3) if weights == "joint" else None
        none = torch.zeros(17, dtype=torch.int64)
        found = head.best(queries, none, 600, log_class).index
        for k in (1, 5):
            assert torch.equal(head.best(queries, none, k, log_class).index, found[:, :k])
        exact = unit(queries).double() @ head.bank.unpacked()[head.rows].double().t()
        best = exact[:, labels == 0].amax(1) if weights == "joint" else exact.amax(1)
        assert torch.equal(exact.gather(1, found[:, :1])[:, 0].float(), best.float())


def credited(answered: Answered) -> dict[str, torch.Tensor]:
    return {"shares": answered.credit(torch.arange(4), 4, -1e9)[0].by_group}


def made(network: str, index_map: IndexMap, **more: object) -> ProvenanceNet:
    torch.manual_seed(0)
    return build(NetworkConfig(network, "mlp", (4,), classes=2, **more), index_map).eval()  # type: ignore[arg-type]


def last(net: ProvenanceNet) -> torch.nn.Linear:
    assert net.task_head is not None
    found = [part for part in net.task_head.modules() if isinstance(part, torch.nn.Linear)][-1]
    assert found.out_features == 2
    return found
