"""Tasks: what TASKS promise, a task of one's own, and a network with features and class scores of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.answers.attributor import attribute
from provnet.heads.index_map import IndexMap
from provnet.models.keys import restrict_network
from provnet.models.network import Inputs, NetworkConfig, ProvenanceNet, Seen, build
from provnet.tasks import TASKS
from provnet.tasks.classify import Classify
from provnet.tasks.task import Answers, Pooled, Task
from provnet.training.loop import SUMS, ProvenanceObjective, logged

LABELS = [0, 2, 1, 0, 2, 2]


def network(head: str = "plain", labels: list[int] = LABELS) -> ProvenanceNet:
    torch.manual_seed(0)
    config = NetworkConfig("class-independent", "mlp", (4,), classes=max(labels) + 1, head=head)
    return build(config, IndexMap(labels)).eval()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_works_on_anybodys_logits(name: str) -> None:
    task, target = TASKS[name], torch.tensor(LABELS)
    logits = nn.Linear(4, 3)(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(task.loss(logits, target), F.cross_entropy(logits, target, reduction="none"))
    said = task.answer(logits)
    assert torch.equal(said.what, logits.argmax(1))
    torch.testing.assert_close(said.sure, logits.softmax(1).amax(1))
    assert said.group is not None
    assert torch.equal(said.group, said.what)
    assert torch.equal(task.right(logits, target), said.what == target)
    pooled = task.pool(logits, logits)
    assert pooled.features is logits
    assert pooled.owner is None


def test_half_precision_is_summed_in_full() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = Classify().loss(logits, torch.tensor(LABELS))
    assert found.dtype == Classify().answer(logits).sure.dtype == torch.float32
    assert torch.equal(found, F.cross_entropy(logits.float(), torch.tensor(LABELS), reduction="none"))


def test_the_log_has_the_parts_of_the_task() -> None:
    assert logged(network()) == SUMS
    made = build(NetworkConfig("class-conditional", "vae-modern", (1, 8, 8), 3, head="exemplar"), IndexMap(LABELS))
    assert logged(made) == (*SUMS, "reconstruction", "divergence", "feature")
    assert [net.task for net in (network(), made)] == [TASKS["classify"], TASKS["generate"]]


class Regress(Task):
    """A number for each sample, exemplars from all."""

    def loss(self, output: Tensor, target: Any, smoothing: float = 0.0, there: Tensor | None = None) -> Tensor:
        return (output[:, 0].float() - target).square()

    def answer(self, output: Tensor) -> Answers:
        return Answers(output[:, 0], output.new_ones(len(output)), None)

    def right(self, output: Tensor, target: Any) -> Tensor:
        return (output[:, 0] - target).abs() < 1


def test_a_task_without_groups_looks_among_all() -> None:
    net = network(labels=[0] * 6)
    net.task = Regress()
    x, wanted = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.linspace(0, 5, 6)
    objective, optimizer = ProvenanceObjective(1.0, 1.0), torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(150):
        losses = objective(net, net.train()(x), wanted, torch.arange(6))
        losses.total.backward()
        optimizer.step()
        optimizer.zero_grad()
    output = net.eval()(x)
    assert output.classes.tolist() == [0] * 6
    assert bool(net.task.right(output.logits, wanted).all())
    found = attribute(net, output, 1)
    assert torch.equal(found.predicted, output.logits[:, 0])
    assert found.index[:, 0].tolist() == list(range(6))


class Halves(Classify):
    """Two keys for each sample."""

    def pool(self, features: Tensor, output: Tensor | None) -> Pooled:
        return Pooled(features.repeat(2, 1), torch.arange(len(features)).repeat(2))


def test_a_network_with_one_key_for_each_sample_takes_no_parts_of_it() -> None:
    net = network()
    net.task = Halves()
    with pytest.raises(AssertionError, match="one key for each sample"):
        net(torch.zeros(2, 4))


class Foreign(ProvenanceNet):
    """Features and class scores of somebody's own, from a mapping of tensors."""

    def see(self, inputs: Inputs) -> Seen:
        assert isinstance(inputs, Mapping)
        return Seen(inputs["words"] * inputs["mask"], inputs["scores"])

    def features(self, inputs: Inputs) -> Tensor:
        return self.see(inputs).features


@pytest.mark.parametrize("head", ["plain", "exemplar"])
def test_a_network_with_features_and_scores_of_its_own(head: str) -> None:
    plain = network(head)
    parts = {name: getattr(plain, name) for name in ("normalise", "backbone", "task_head", "index_trunk", "index_head")}
    net = Foreign(**parts, index_map=plain.index_map, support=plain.support).eval()
    assert net.state_dict().keys() == plain.state_dict().keys()
    x, scores = torch.randn(5, 4), torch.randn(5, 3)
    features = plain.features(x)
    given = {"words": features, "mask": torch.ones(5, 1), "scores": scores}
    output = net(given)
    assert output.logits is scores
    assert output.looks is None
    assert torch.equal(output.classes, scores.argmax(1))
    assert torch.equal(output.index_features, plain(x, scores.argmax(1)).index_features)
    assert torch.equal(net(given, torch.zeros(5, dtype=torch.int64)).classes, torch.zeros(5))
    if head == "exemplar":
        few = restrict_network(net, torch.tensor([1, 4]))
        assert isinstance(few, Foreign)
        assert (few.index_head.index_map.n, net.index_head.index_map.n) == (2, 6)
        assert few.backbone is net.backbone
    found = attribute(net, output, 2)
    assert torch.equal(found.predicted, scores.argmax(1))
    torch.testing.assert_close(found.confidence, scores.softmax(1).amax(1))
