"""Gradients that hooks catch are those of torch.func, sample by sample, at every layer of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from provnet.influence.keys import margins
from provnet.influence.layers import Gradients, Layer
from tests.cases import cases


class Conv1D(nn.Module):
    """As that of Hugging Face: a Linear turned round."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) / 4), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Lora(nn.Module):
    """A frozen layer with two narrow ones beside it, between others that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 6, padding_idx=0), nn.Embedding(9, 6)
        self.own, self.base = Conv1D(6, 6), Conv1D(12, 6).requires_grad_(False)
        self.down, self.up, self.head = nn.Linear(6, 2, bias=False), nn.Linear(2, 12, bias=False), nn.Linear(12, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.own(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))
        return self.head(F.relu(self.base(x) + self.up(self.down(x))).mean(1))


class Residual(nn.Module):
    """A block that is called twice, with what is done in place, groups and padding of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.second = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.wide = nn.Conv2d(4, 4, 3, groups=4, dilation=2, padding="same", padding_mode="circular")
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        for _ in range(2):
            inner = self.second(self.relu(self.norm(self.first(x))))
            inner += x
            x = self.relu(inner)
        return self.head(self.relu(self.wide(x)).amax((2, 3)))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.conv, self.head = nn.Embedding(11, 6), nn.Conv1d(6, 8, 3, stride=2), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(F.relu(self.conv(self.tokens(ids).transpose(1, 2))).amax(2))


class Encoder(nn.Module):
    def __init__(self, first: bool) -> None:
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=first), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.layer.self_attn.batch_first:
            return self.head(self.layer(x).mean(1))
        return self.head(self.layer(x.transpose(0, 1)).mean(0))


def cnn() -> nn.Module:
    convs = [nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 6, 2, dilation=2), nn.Flatten()]
    return nn.Sequential(*convs, nn.Linear(54, 3))


def ids() -> Tensor:
    return torch.randint(0, 11, (5, 9))


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(True), nn.Linear(7, 3)), lambda: torch.randn(5, 5)),
    "cnn": (cnn, lambda: torch.randn(5, 1, 12, 12)),
    "volumes": (
        lambda: nn.Sequential(nn.Conv3d(1, 4, 3, stride=2), nn.Flatten(), nn.Linear(32, 3)),
        lambda: torch.randn(5, 1, 5, 5, 5),
    ),
    "residual": (Residual, lambda: torch.randn(5, 3, 8, 8)),
    "text": (Text, ids),
    "encoder": (lambda: Encoder(True), lambda: torch.randn(5, 6, 8)),
    "positions first": (lambda: Encoder(False), lambda: torch.randn(5, 6, 8)),
    "lora": (Lora, ids),
}


def by_autograd(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def number(own: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return margins(functional_call(model, own, (one[None],)), label[None])[0]

    return dict(vmap(grad(number), (None, 0, 0))(weights, x, y))


def expected(name: str, layer: Layer, found: dict[str, Tensor]) -> Tensor:
    """(B, P, Q) of a layer, its blocks on the diagonal where it has groups."""
    if name[-2:] in (".q", ".k", ".v"):
        part = "qkv".index(name[-1])
        weight, bias = (found[f"{name[:-2]}.in_proj_{kind}"].chunk(3, 1)[part] for kind in ("weight", "bias"))
        return torch.cat([weight.transpose(1, 2), bias[:, None]], 1)
    weight, bias = found[f"{name}.weight"].flatten(2), found.get(f"{name}.bias")
    weight = weight if isinstance(layer.module, nn.Embedding | Conv1D) else weight.transpose(1, 2)
    whole = torch.zeros(len(weight), layer.inputs, layer.outputs)
    rows, columns = layer.inputs // layer.groups, layer.outputs // layer.groups
    for group in range(layer.groups):
        own = slice(group * columns, (group + 1) * columns)
        block = weight[:, :, own] if bias is None else torch.cat([weight[:, :, own], bias[:, None, own]], 1)
        whole[:, group * rows : (group + 1) * rows, own] = block
    return whole


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@cases("kind", list(NETS))
def test_gradients_are_those_of_autograd(kind: str) -> None:
    torch.manual_seed(0)
    make, draw = NETS[kind]
    model, x, y = make(), draw(), torch.randint(0, 3, (5,))
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    caught = Gradients(model, lambda inputs, labels: margins(model(inputs), labels))
    caught.probe(x, y)
    maps = {name: (torch.randn(one.inputs, 5), torch.randn(one.outputs, 4)) for name, one in caught.layers.items()}
    before = {name: (one.requires_grad, one.clone()) for name, one in model.named_parameters()}
    values, found = caught(x, y, maps)
    assert model.training and "forward" not in {key for part in model.modules() for key in vars(part)}
    assert all(one.requires_grad == before[name][0] and one.grad is None for name, one in model.named_parameters())
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    each = by_autograd(model, x, y)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(values, margins(model(x), y))
    owners = {name.rsplit(".", 1)[0] for name, (trained, _) in before.items() if trained and "norm" not in name}
    known = {name[:-2] if name[-2:] in (".q", ".k", ".v") else name for name in caught.layers}
    assert owners - known == ({"places"} if kind == "lora" else set())
    assert set(caught.left_out) == ({"places"} if kind == "lora" else set())
    for name, layer in caught.layers.items():
        left, right = maps[name]
        wanted = (left.t() @ expected(name, layer, each) @ right).flatten(1)
        error = (found[name] - wanted).abs().max() / wanted.abs().max()
        assert error < 1e-4, f"{name}: {error}"
