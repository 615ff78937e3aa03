"""A frozen backbone comes out of training as it went in: weights, BatchNorm's statistics, and no dropout in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import read_run
from provnet.training.config import train_config
from tests.fitting import fit

SHAPE = (3, 6, 5)


class Counting(nn.Module):
    """Notes how often it is asked in training mode, and in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append(self.training)
        return x


def backbone() -> nn.Sequential:
    torch.manual_seed(0)
    early = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Counting(), nn.ReLU(), nn.Dropout(0.5))
    late = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), Counting())
    return nn.Sequential(early, late)


def data() -> ImageData:
    images = np.random.default_rng(0).integers(0, 256, (30, *SHAPE), dtype=np.uint8)
    return provnet.open_data(images, np.arange(30) % 3)


def trained(module: nn.Module, **settings: str) -> nn.Module:
    recipe = train_config("fast", epochs=2, batch_size=8, lr=1e-2)
    return fit(data(), backbone=module, config=recipe, **settings).network.backbone  # type: ignore[arg-type]


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    other = after.state_dict()
    return {name for name, value in before.state_dict().items() if not torch.equal(value, other[name])}


@pytest.mark.parametrize("network", ["single", "class-independent", "class-conditional", "class-conditional-heads"])
@pytest.mark.parametrize("head", ["plain", "exemplar"])
def test_a_frozen_backbone_stays_as_it_is(network: str, head: str) -> None:
    module = backbone().requires_grad_(False)
    after = trained(module, network=network, head=head)
    assert changed(module, after) == set()
    assert not any(p.requires_grad for p in after.parameters())
    assert not any(any(part.modes) for part in after.modules() if isinstance(part, Counting))  # nor drops anything


def test_a_backbone_that_is_not_frozen_is_trained_as_ever() -> None:
    module = backbone()
    after = trained(module)
    assert changed(module, after) == set(module.state_dict())
    assert all(any(part.modes) for part in after.modules() if isinstance(part, Counting))


def test_of_a_partly_frozen_one_only_that_part_stays() -> None:
    module = backbone()
    module[0].requires_grad_(False)
    after = trained(module)
    assert changed(module, after) == {name for name in module.state_dict() if name.startswith("1.")}
    early, late = (part for part in after.modules() if isinstance(part, Counting))
    assert not any(early.modes)
    assert any(late.modes)


def test_a_layer_that_is_partly_frozen_is_trained() -> None:
    module = backbone()
    norm = module[0][1]  # its bias alone is trained: it goes on measuring
    norm.weight.requires_grad_(False)
    after = trained(module)
    assert {"0.1.running_mean", "0.1.running_var", "0.1.bias"} <= changed(module, after)
    assert "0.1.weight" not in changed(module, after)


def test_without_parameters_there_is_nothing_to_freeze() -> None:
    module = nn.Sequential(Counting(), nn.BatchNorm2d(3, affine=False), nn.Flatten())
    after = trained(module)
    assert any(after[0].modes)  # type: ignore[index, union-attr]
    assert {"1.running_mean", "1.running_var"} <= changed(module, after)


def test_a_run_with_a_frozen_backbone_is_read_again(tmp_path: Path) -> None:
    module = backbone().requires_grad_(False)
    run = fit(data(), backbone=module, config=train_config("fast", epochs=1, batch_size=8), out=tmp_path)
    fresh = backbone().requires_grad_(False)
    with torch.no_grad():
        fresh[0][1].running_mean.add_(3.0)  # what is in the file counts
    again = read_run(tmp_path, fresh)
    assert changed(run.network, again.network) == set()
    images = data().images
    assert provnet.explain(again, images).to_records() == provnet.explain(run, images).to_records()
