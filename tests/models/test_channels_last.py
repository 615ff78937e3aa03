"""Backbones of others get pixels in the usual order, whatever order they came in."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import provnet
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from provnet.training.config import train_config
from tests.fitting import fit


class Viewing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


def test_build_with_a_module_in_place_of_a_named_backbone() -> None:
    """`build(config, map, module)`: "`backbone` replaces the named one", but Normalise looks at the name alone."""
    net = build(NetworkConfig("single", "small", (3, 4, 4), classes=2), IndexMap([0, 1]), Viewing()).eval()
    net(torch.zeros(2, 3, 4, 4))


def test_pictures_of_another_order_of_axes_are_explained() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
    data = provnet.open_data(images, np.arange(12) % 2)
    run = fit(data, backbone=Viewing(), config=train_config("fast", epochs=1, batch_size=8))
    provnet.explain(run, torch.from_numpy(images).permute(0, 3, 1, 2))
