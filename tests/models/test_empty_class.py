"""A class without samples is never predicted, however low the others score."""

from __future__ import annotations

import torch

from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build


def test_an_empty_class_is_never_predicted() -> None:
    net = build(NetworkConfig("class-conditional", "mlp", (4,), classes=3), IndexMap([0, 2, 2], classes=3)).eval()
    net.task_head.get_submodule("1").bias.data = torch.full((3,), -2e4)
    assert 1 not in net(torch.zeros(1, 4)).classes.tolist()
