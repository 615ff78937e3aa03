"""FilledConv is nn.Conv2d: the same numbers, gradients, names and file, however few channels there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from provnet.models.backbones import conv_block
from provnet.models.channels import EIGHT, FEW, FilledConv, filled
from provnet.models.provenance import IndexMap, NetworkConfig, build


@pytest.mark.parametrize("taken", [1, FEW, FEW + 1, 16])
@pytest.mark.parametrize("made", [1, FEW, FEW + 1, 16])
@pytest.mark.parametrize("bias", [True, False])
def test_filled_channels_change_neither_values_nor_gradients(taken: int, made: int, bias: bool) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(taken, made, 3, stride=2, padding=1, bias=bias).double()
    x = torch.randn(3, taken, 9, 8, dtype=torch.float64, requires_grad=True)
    given = (x, *conv.parameters())
    ours, theirs = filled(conv, x, conv.bias), conv(x)
    assert ours.shape == theirs.shape
    assert torch.allclose(ours, theirs, atol=1e-12)
    weights = torch.randn_like(theirs)
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), given),
        torch.autograd.grad((theirs * weights).sum(), given),
        strict=True,
    ):
        assert torch.allclose(mine, other, atol=1e-12)


def test_few_channels_are_filled_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    real = torch.nn.functional.conv2d

    def watched(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.append((x.shape[1], *weight.shape[:2]))
        return real(x, weight, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("provnet.models.channels.F.conv2d", watched)
    for taken, made in ((1, 32), (32, 1), (3, 32)):
        conv = nn.Conv2d(taken, made, 3, padding=1)
        filled(conv, torch.zeros(2, taken, 4, 4), conv.bias)
    assert seen == [(EIGHT, 32, EIGHT), (32, EIGHT, 32), (3, 32, 3)]


def test_it_is_a_convolution_on_a_cpu_with_the_same_file() -> None:
    torch.manual_seed(0)
    layer, same = FilledConv(1, 8, 3, padding=1), nn.Conv2d(1, 8, 3, padding=1)
    same.load_state_dict(layer.state_dict())
    x = torch.randn(2, 1, 7, 7)
    assert torch.equal(layer(x), same(x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize("backbone", ["paper-single", "small", "sharing-small", "vae-paper", "vae-modern"])
def test_networks_for_grey_pictures_answer_on_a_gpu_as_on_a_cpu(backbone: str) -> None:
    torch.manual_seed(0)
    config = NetworkConfig("class-conditional-heads", backbone, (1, 28, 28), classes=2)
    net = build(config, IndexMap([0, 1, 1])).eval()
    images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
    with torch.inference_mode():
        here = net(images).features
        net.to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload]
        there = net(images.cuda()).features.cpu()
    assert torch.allclose(here, there, atol=1e-3, rtol=1e-3)


def test_pooling_before_the_relu_changes_no_bit() -> None:
    torch.manual_seed(0)
    block = conv_block(2, 4, nn.MaxPool2d(2, ceil_mode=True))
    usual = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True))
    usual.load_state_dict(block.state_dict())
    x = torch.randn(5, 2, 7, 7, requires_grad=True)
    made, other = block(x), usual(x)
    assert torch.equal(made, other)
    weights = torch.randn_like(made)
    grads, theirs = (torch.autograd.grad((out * weights).sum(), x)[0] for out in (made, other))
    assert torch.equal(grads, theirs)
