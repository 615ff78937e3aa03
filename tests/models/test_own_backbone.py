"""A backbone given as an object: any module from (B, C, H, W) to (B, D), used as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provnet
from provnet.base.errors import UsageError
from provnet.data.dataset import ImageData
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from provnet.runs.run import read_run
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from .made import NETWORKS, UNEVEN, scores_of

SHAPE = (3, 6, 5)


class Viewing(nn.Module):
    """Takes the pixels in the order they usually have, as much code does: `view` refuses any other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(90, 7)
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        out: Tensor = self.linear(x.view(len(x), -1))
        return out


class Convolving(nn.Module):
    """With BatchNorm and a view after a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x)).view(len(x), 48)
        return out


OWN: dict[str, Callable[[], nn.Module]] = {
    "view": Viewing,
    "convolution": Convolving,
    "no weights": nn.Flatten,
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(90, 2)),
}


def config(network: str) -> NetworkConfig:
    return NetworkConfig(network, "custom", SHAPE, classes=3, mean=(0.5,), std=(0.25,), scale=255.0)


@cases("network", NETWORKS)
@cases("name", OWN)
def test_its_features_are_the_networks(name: str, network: str) -> None:
    module = OWN[name]()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    net = build(config(network), IndexMap(UNEVEN), module)
    assert net.backbone is module
    assert module.training
    for key, value in module.state_dict().items():  # neither initialised again nor moved by looking at its shape
        assert torch.equal(before[key], value)
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, *SHAPE), dtype=np.uint8))
    output = net.eval()(images)
    assert torch.allclose(output.features, module((images.float() / 255 - 0.5) / 0.25), atol=1e-5)
    assert output.logits.shape == (4, 3)
    assert len(scores_of(output)) == 4
    scores_of(net.train()(images, torch.tensor([0, 2, 0, 0])))[:, 0].sum().backward()
    for p in module.parameters():
        assert p.grad is not None


def test_it_is_given_pixels_in_their_usual_order() -> None:
    module = Viewing()
    net = build(config("class-conditional"), IndexMap(UNEVEN), module)
    net.eval()(torch.zeros(4, *SHAPE, dtype=torch.uint8))
    assert module.seen is not None
    assert module.seen.is_contiguous()


@pytest.mark.parametrize("network", NETWORKS)
def test_it_is_trained_and_explained(network: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (14, *SHAPE), dtype=np.uint8)
    module = Viewing()
    start = module.linear.weight.detach().clone()
    data = provnet.open_data(images, np.arange(14) % 3)
    run = fit(data, network=network, backbone=module, config=train_config("fast", epochs=1, batch_size=8))
    assert run.config.network.backbone == "custom"
    assert torch.equal(start, module.linear.weight)  # a copy is trained
    assert module.training
    assert isinstance(run.network.backbone, Viewing)
    assert not torch.equal(start, run.network.backbone.linear.weight)
    found = provnet.explain(run, data.images, k=2)
    assert found.index.shape == (14, 2)
    assert found.index[:, 0].min() >= 0


def some(seed: int) -> ImageData:
    images = np.random.default_rng(seed).integers(0, 256, (14, *SHAPE), dtype=np.uint8)
    return provnet.open_data(images, np.arange(14) % 3)


def test_a_second_fit_with_the_same_module_leaves_the_first_run_as_it_was() -> None:
    module, config = Convolving(), train_config("fast", epochs=1, batch_size=8)
    first = fit(some(0), backbone=module, config=config)
    before = provnet.explain(first, some(0).images).to_records()
    second = fit(some(1), backbone=module, config=config)
    assert provnet.explain(first, some(0).images).to_records() == before
    mine, other = ({id(p) for p in run.network.parameters()} for run in (first, second))
    assert not mine & other
    again = fit(some(0), backbone=module, config=config)  # nothing of the runs before is in it
    assert provnet.explain(again, some(0).images).to_records() == before


def test_hooks_and_what_a_module_keeps_of_its_last_pass_are_copied() -> None:
    module, calls = Viewing(), []
    module.register_forward_hook(lambda *_: calls.append(1))
    module.seen = module.linear(torch.zeros(1, 90))  # has a gradient: torch alone does not copy it
    run = fit(some(0), backbone=module, config=train_config("fast", epochs=1, batch_size=8))
    calls.clear()
    provnet.explain(run, some(0).images)
    assert calls == [1]


@pytest.mark.parametrize("layers", [(), ((5, 0.0), (4, 0.2))])
def test_a_backbone_may_say_what_the_class_branch_is(layers: tuple[Any, ...], tmp_path: Path) -> None:
    def made() -> nn.Module:
        module = Viewing()
        module.task_layers = layers  # type: ignore[assignment]
        return module

    run = fit(some(0), backbone=made(), config=train_config("fast", epochs=1, batch_size=8), out=tmp_path / "run")
    head = run.network.task_head
    assert head is not None
    widths = [part.out_features for part in head.modules() if isinstance(part, nn.Linear)]
    assert widths == [*(width for width, _ in layers), run.config.network.classes]
    again = read_run(tmp_path / "run", backbone=made())
    assert torch.equal(again.network(some(0).images).logits, run.network.cpu().eval()(some(0).images).logits)


@cases("layers", [256, ((0, 0.1),), ((256, 1.0),), ("wide",), None])
def test_layers_that_are_none_are_refused(layers: Any) -> None:
    module = Viewing()
    module.task_layers = layers
    with pytest.raises(UsageError, match="task_layers of a backbone must be pairs"):
        fit(some(0), backbone=module, config=train_config("fast", epochs=1, batch_size=8))


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = Viewing()
    module.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"the backbone cannot be copied .*lock"):
        fit(some(0), backbone=module, config=train_config("fast", epochs=1, batch_size=8))


class Giving(nn.Module):
    """Gives what a function makes of the batch."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make
        self.inner = nn.Dropout().eval()  # while the rest is in training mode

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


WRONG: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "tuple": (lambda x: (x.flatten(1),), r"must give one tensor \(B, D\), this one gives a tuple; wrap it"),
    "none": (lambda x: None, "this one gives a NoneType"),
    "rows": (lambda x: x.flatten(1).repeat(2, 1), r"of a batch of 1 this one makes a tensor of shape \(2, 90\); wrap"),
    "squeezed": (lambda x: x.flatten(1).squeeze(), r"a tensor of shape \(90,\)"),
    "one number": (lambda x: x.sum(), r"a tensor of shape \(\)"),
    "a number each": (lambda x: x.flatten(1).sum(1), r"this one gives \(B\); end it with"),
    "no features": (lambda x: x.flatten(1)[:, :0], r"this one gives \(B, 0\)"),
    "whole numbers": (lambda x: x.flatten(1).long(), "must give torch.float32 features, this one gives torch.int64"),
    "half": (lambda x: x.flatten(1).half(), "this one gives torch.float16"),
    "fails": (
        lambda x: x.view(7, -1),
        r"does not take a batch of shape \(1, 3, 6, 5\) \(shape .* give one for samples",
    ),
}


@cases("name", WRONG)
def test_what_gives_no_features_is_refused_in_words(name: str) -> None:
    make, said = WRONG[name]
    module = Giving(make)
    with pytest.raises(UsageError, match=said):
        fit(some(0), backbone=module, config=train_config("fast", epochs=1, batch_size=8))
    with pytest.raises(UsageError, match=said):
        build(config("single"), IndexMap(UNEVEN), module)
    assert (module.training, module.inner.training) == (True, False)  # left in the modes that it came in


class Careless(nn.Module):
    """Drops out in evaluation mode, too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x.flatten(1))


DEPENDING: dict[str, Callable[[], nn.Module]] = {
    "chance": Careless,
    "the batch": lambda: nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_features_that_depend_on_more_than_the_sample_are_refused(name: str, tmp_path: Path) -> None:
    module = DEPENDING[name]()
    with pytest.raises(UsageError, match="gives other features for the same sample alone and in a batch of 2; leave"):
        fit(some(0), backbone=module, config=train_config("fast", epochs=1, batch_size=8), out=tmp_path / "run")
    assert module.training
    assert not (tmp_path / "run").exists()


class OneAtATime(nn.Module):
    """Takes one sample, as a network exported for single pictures does."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 1:
            raise ValueError("batch size must be 1")
        return x.flatten(1)


class FirstOnly(nn.Module):
    """Forgets all samples but the first."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:1].flatten(1)


BATCHES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "one at a time": (OneAtATime, r"takes one sample but not 2 at a time \(batch size must be 1\); wrap it"),
    "a row for all": (FirstOnly, r"a row for each sample; of a batch of 2 this one makes a tensor of shape \(1, "),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_backbone_that_takes_no_batches_is_refused_in_words(name: str) -> None:
    make, words = BATCHES[name]
    with pytest.raises(UsageError, match=words):
        fit(some(0), backbone=make(), config=train_config("fast", epochs=1, batch_size=8))


def test_another_backbone_than_the_trained_one_is_refused(tmp_path: Path) -> None:
    fit(some(0), backbone=Viewing(), config=train_config("fast", epochs=1, batch_size=8), out=tmp_path)
    with pytest.raises(UsageError, match=r"not the one that this run was trained with: .*\(B, 4, 4, 3\)"):
        read_run(tmp_path, nn.Conv2d(3, 4, 3))


def test_feature_maps_are_refused() -> None:
    with pytest.raises(UsageError, match=r"must give \(B, D\) features, this one gives \(B, 4, 4, 3\)"):
        build(config("single"), IndexMap(UNEVEN), nn.Conv2d(3, 4, 3))
