"""The four networks: shapes, class scores, what the class given changes, and what comes back from a file of weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provnet.base.errors import UsageError
from provnet.heads.heads import FlatHead
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from tests.cases import cases

from .made import LAWS, NETWORKS, UNEVEN, Labels, around, members, scores_of, uneven_labels, vectors

SLOTS = {"single": 9, "class-independent": 9, "class-conditional": 5, "class-conditional-heads": 5}


@cases("network", NETWORKS)
@cases(("backbone", "shape", "width"), [("mlp", (4,), 128), ("small", (1, 9, 7), 256), ("residual", (3, 8, 8), 512)])
def test_shapes(network: str, backbone: str, shape: tuple[int, ...], width: int) -> None:
    net = build(NetworkConfig(network, backbone, shape, classes=3), IndexMap(UNEVEN)).eval()
    with torch.no_grad():
        output = net(torch.zeros(6, *shape))
    assert output.features.shape == output.support_features.shape == (6, width)
    assert output.logits.shape == (6, 3)
    assert output.classes.shape == (6,)
    assert output.classes.dtype == torch.int64
    assert scores_of(output).shape == (6, SLOTS[network])
    assert len(output.index_features) == 6
    assert (net.task_head is None) == (network == "single")


@LAWS
@given(uneven_labels(largest=20), st.integers(0, 2**31), st.floats(0.1, 40))
def test_class_scores_of_a_single_branch_are_log_sums_of_exponentials(made: Labels, seed: int, size: float) -> None:
    """Index scores are what goes in: the head is the identity."""
    n = len(made.labels)
    head = FlatHead(n, made.index_map)
    head.linear.weight.data, head.linear.bias.data = torch.eye(n), torch.zeros(n)
    scores = np.random.default_rng(seed).uniform(-size, size, (3, n)).astype(np.float32)
    output = around(head, n, task=False)(torch.from_numpy(scores))
    assert np.array_equal(scores_of(output).detach().numpy(), scores)
    for row in range(3):
        for label in range(made.classes):
            own = [math.exp(float(scores[row, i])) for i in members(head.index_map, label)]
            if own:
                assert float(output.logits[row, label]) == pytest.approx(math.log(sum(own)), abs=2e-5, rel=1e-5)
            else:  # an empty class
                assert float(torch.softmax(output.logits[row], 0)[label]) < 1e-30
        assert torch.equal(output.classes, output.logits.argmax(1))


def test_class_scores_far_apart_stay_finite() -> None:
    head = FlatHead(4, IndexMap([0, 1, 1, 2], classes=4))
    head.linear.weight.data, head.linear.bias.data = torch.eye(4), torch.zeros(4)
    output = around(head, 4, task=False)(torch.tensor([[-3e4, 1e4, -3e4, 5e3], [-1e4, -2e4, -3e4, -1.2e4]]))
    assert bool(torch.isfinite(output.logits).all())
    assert output.classes.tolist() == [1, 0]
    assert torch.softmax(output.logits, 1).max(1).values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("network", NETWORKS)
def test_only_class_scores_of_a_branch_of_their_own_carry_a_gradient(network: str) -> None:
    output = vectors(network, IndexMap(UNEVEN)).train()(torch.randn(4, 4))
    assert scores_of(output).requires_grad
    assert output.logits.requires_grad == (network != "single")


@cases("network", NETWORKS)
@cases("conditional", [True, False])
def test_the_class_given_reaches_the_index_branch_only_where_it_is_concatenated(
    network: str, conditional: bool
) -> None:
    net = vectors(network, IndexMap(UNEVEN), conditional=conditional)
    images = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    one, other = (net(images, torch.full((5,), label)) for label in (0, 2))
    assert torch.equal(one.logits, other.logits)
    assert torch.equal(one.features, other.features)
    told = network == "class-conditional" and conditional
    assert torch.equal(one.index_features, other.index_features) != told
    first = next(part for part in net.index_trunk.modules() if isinstance(part, torch.nn.Linear))
    assert first.in_features == 128 + (3 if told else 0)


@pytest.mark.parametrize("network", ["class-independent", "class-conditional", "class-conditional-heads"])
def test_without_classes_the_predicted_ones_are_taken(network: str) -> None:
    net = vectors(network, IndexMap(UNEVEN))
    images = torch.randn(40, 4, generator=torch.Generator().manual_seed(1)) * 20
    plain = net(images)
    assert torch.equal(plain.classes, plain.logits.argmax(1))
    assert len(plain.classes.unique()) > 1
    again = net(images, plain.classes)
    assert torch.equal(scores_of(plain), scores_of(again))
    given = (plain.classes + 1) % 3
    assert torch.equal(net(images, given).classes, given)
    if network != "class-independent":  # the mask follows the class given
        sizes = torch.isfinite(scores_of(net(images, given))).sum(1)
        assert torch.equal(sizes, net.index_map.sizes[given])


@pytest.mark.parametrize("network", NETWORKS)
def test_an_empty_class_is_never_predicted(network: str) -> None:
    net = vectors(network, IndexMap([0, 0, 2, 3, 2], classes=5))
    if net.task_head is not None:
        net.task_head.get_submodule("1").bias.data = torch.tensor([0.0, 500.0, 0.0, 0.0, 900.0])
    with torch.no_grad():
        output = net(torch.randn(50, 4) * 10)
    assert not set(output.classes.tolist()) & {1, 4}
    assert bool(torch.isfinite(output.logits).all())
    probabilities = torch.softmax(output.logits, 1)
    assert float(probabilities[:, [1, 4]].max()) < 1e-30
    assert float(probabilities[:, [0, 2, 3]].min()) > 0


@cases("network", NETWORKS)
@cases(("backbone", "shape"), [("mlp", (4,)), ("small", (1, 8, 8))])
def test_weights_put_into_another_network_give_the_same_answers(
    network: str, backbone: str, shape: tuple[int, ...]
) -> None:
    config, images = NetworkConfig(network, backbone, shape, classes=3), torch.randn(6, *shape)
    nets = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        nets.append(build(config, IndexMap(UNEVEN)))
    nets[0](images)  # moves the running statistics
    nets[0].support.fit(torch.randn(30, nets[0].support.mean.shape[1]), torch.arange(30) % 3)
    one, other = (net.eval()(images) for net in nets)
    assert not torch.equal(scores_of(one), scores_of(other))
    state = nets[0].state_dict()
    assert not [name for name in state if "index_map" in name or "members" in name]  # made of the labels again
    nets[1].load_state_dict(state)
    one, other = (net(images) for net in nets)
    assert one.made is other.made is None  # only generators make something
    assert (one.looks is None) == (len(shape) == 1)  # vectors have no looks
    for mine, other_value in zip(one, other, strict=True):
        assert mine is other_value is None or torch.equal(mine, other_value)
    distances = [net.support(one.support_features, one.classes) for net in nets]
    assert torch.equal(*distances)


def test_what_cannot_be_built_is_refused() -> None:
    index_map = IndexMap(UNEVEN)
    with pytest.raises(UsageError, match="config has 4 classes, the index map 3"):
        build(NetworkConfig("single", "mlp", (4,), classes=4), index_map)
    with pytest.raises(UsageError, match=r'unknown network "class-conditonal".*Did you mean "class-conditional"'):
        build(NetworkConfig("class-conditonal", "mlp", (4,), classes=3), index_map)
    with pytest.raises(
        UsageError, match=r'unknown backbone "smal"; allowed: auto, .*sharing-large.*Did you mean "small"'
    ):
        build(NetworkConfig("single", "smal", (1, 8, 8), classes=3), index_map)
    for backbone in ("small", "residual", "paper", "paper-single"):
        with pytest.raises(UsageError, match=r'takes pictures \(C, H, W\).*use "mlp"'):
            build(NetworkConfig("single", backbone, (4,), classes=3), index_map)
