"""Sharing levels 1-4 of the four sizes: what lies before the cut serves both branches, what lies behind one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap
from provnet.models.backbones import LEVELS, SHARING, PooledConv, cut_at
from provnet.models.network import NetworkConfig, ProvenanceNet, build, parameter_count
from provnet.runs.run import read_run
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from .made import UNEVEN, scores_of

OFF = ("class-independent", "class-conditional", "class-conditional-heads")


def make(size: str, level: int, network: str = "class-independent", side: int = 4) -> ProvenanceNet:
    torch.manual_seed(0)
    config = NetworkConfig(network, size, (1, side, side), classes=3, conditional=False, level=level)
    return build(config, IndexMap(UNEVEN))


def cnn_parameters(channels: tuple[int, int, int, int], side: int) -> list[int]:
    """Weights and biases of the four blocks, counted by hand."""
    a, b, c, hidden = channels
    last = (side + 3) // 4  # pooled twice, rounded up
    return [9 * a + a, 9 * a * b + b, 9 * b * c + c, c * last * last * hidden + hidden]


@cases("level", LEVELS)
@cases("size", SHARING)
def test_the_layers_before_the_cut_are_shared(size: str, level: int) -> None:
    with torch.device("meta"):  # shapes alone
        cut = cut_at(size, (1, 28, 28), level)
    blocks = cnn_parameters(SHARING[size], 28)
    assert parameter_count(cut.shared) == sum(blocks[:level])
    assert parameter_count(cut.task) == parameter_count(cut.index) == sum(blocks[level:])
    kinds = [type(part) for part in cut.shared.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert kinds == ([nn.Conv2d] * 3 + [nn.Linear])[:level]
    assert not [part for part in cut.shared.modules() if isinstance(part, nn.BatchNorm2d)]


@cases("level", LEVELS)
@cases("size", SHARING)
def test_outputs(size: str, level: int) -> None:
    net = make(size, level).eval()
    with torch.no_grad():
        output = net(torch.randn(3, 1, 4, 4))
    hidden = SHARING[size][3]
    assert output.logits.shape == (3, 3)
    assert scores_of(output).shape == (3, 9)
    assert output.index_features.shape == output.support_features.shape == (3, hidden)
    if level < 4:  # feature maps: the index branch's features are measured instead
        assert output.features.shape[:2] == (3, SHARING[size][level - 1])
        assert output.support_features is output.index_features
    else:
        assert output.features.shape == (3, hidden)
    assert net.support.mean.shape == (3, hidden)


@cases("network", OFF)
@cases("level", LEVELS)
def test_a_loss_reaches_the_shared_layers_and_its_own_branch_only(network: str, level: int) -> None:
    classes = torch.tensor([0, 2, 2, 0])
    for branch in ("task", "index"):
        net = make("sharing-small", level, network, side=8).eval()
        output = net(torch.randn(4, 1, 8, 8), classes)
        scores = scores_of(output)
        loss = output.logits if branch == "task" else scores.where(torch.isfinite(scores), 0.0)
        loss.square().sum().backward()
        own = {name for name, p in net.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}
        parts = {name.split(".")[0] for name in own}
        assert parts == {"task": {"backbone", "task_head"}, "index": {"backbone", "index_head"}}[branch] | (
            {"index_trunk"} if branch == "index" and level < 4 else set()
        )
        assert len([name for name in own if name.startswith("backbone.")]) == 2 * level  # a weight and a bias each
        behind = [name for name in own if name.startswith(("task_head.", "index_trunk.", "index_head."))]
        assert len(behind) == 2 * (4 - level) + 2


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_two_branches_do_not_start_equal(level: int) -> None:
    net = make("sharing-small", level)
    assert net.task_head is not None
    mine, other = next(net.task_head.parameters()), next(net.index_trunk.parameters())
    assert mine.shape == other.shape
    assert not torch.equal(mine, other)


@pytest.mark.parametrize("level", LEVELS)
def test_a_single_branch_is_one_whole_network(level: int) -> None:
    net = make("sharing-small", level, "single").eval()
    assert parameter_count(net.backbone) == sum(cnn_parameters(SHARING["sharing-small"], 4))
    assert net(torch.randn(2, 1, 4, 4)).features.shape == (2, 128)


@pytest.mark.parametrize("side", [5, 8])
def test_pooling_first_gives_the_same_values_and_gradients(side: int) -> None:
    torch.manual_seed(0)
    conv: Any = nn.Conv2d(2, 6, 3, padding=1).double()
    parts = (conv, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True))
    x = torch.randn(4, 2, side, side, dtype=torch.float64)
    found = []
    for block in (nn.Sequential(*parts), PooledConv(*parts)):
        conv.zero_grad()
        given = x.clone().requires_grad_()
        out = block(given)
        (out * torch.arange(1.0, 1 + out.numel()).view_as(out)).sum().backward()
        found.append([out, given.grad, conv.weight.grad, conv.bias.grad])
    for plain, pooled in zip(*found, strict=True):
        assert torch.allclose(plain, pooled, rtol=1e-12, atol=1e-12)
    assert bool((found[0][0] == 0).any()) and bool((found[0][0] > 0).any())


def test_any_size_of_picture() -> None:
    for shape in ((1, 1, 1), (3, 5, 9), (1, 28, 28), (3, 32, 33)):
        config = NetworkConfig("class-independent", "sharing-small", shape, classes=3, conditional=False, level=2)
        assert build(config, IndexMap(UNEVEN)).eval()(torch.zeros(2, *shape)).logits.shape == (2, 3)


def test_what_cannot_be_is_refused() -> None:
    for level in (0, 5):
        with pytest.raises(UsageError, match=rf"level must be one of \(1, 2, 3, 4\), got {level}"):
            cut_at("sharing-small", (1, 8, 8), level)
    with pytest.raises(UsageError, match=r'takes pictures .* use "mlp"'):
        cut_at("sharing-small", (8,), 3)
    with pytest.raises(UsageError, match='unknown sharing size "sharing-tiny"'):
        cut_at("sharing-tiny", (1, 8, 8), 3)
    config = NetworkConfig("class-conditional", "sharing-small", (1, 8, 8), classes=3, conditional=True)
    with pytest.raises(UsageError, match=r"no class input; set conditional off \(--no-conditional\)"):
        build(config, IndexMap(UNEVEN))


@cases("level", LEVELS)
@cases(("size", "key_width", "keys"), [("sharing-xlarge", 0, 128), ("sharing-small", 16, 16)])
def test_keys_narrower_than_the_features(size: str, key_width: int, keys: int, level: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 4), dtype=np.uint8)
    data = provnet.open_data(images, np.arange(8) % 2)
    run = fit(
        data, network="class-independent", backbone=size, head="exemplar", conditional=False, level=level,
        key_width=key_width, config=train_config("fast", epochs=1), out=tmp_path / "run",
    )  # fmt: skip
    width = SHARING[size][3] if level == 4 else keys  # of the features that are measured
    assert run.network.support.mean.shape == (2, width)
    assert run.network(data.images).support_features.shape == (8, width)
    found = provnet.explain(run, data.images, k=3)
    assert found.index[:, 0].tolist() == list(range(8))
    assert provnet.explain(read_run(tmp_path / "run"), data.images, k=3).to_records() == found.to_records()
