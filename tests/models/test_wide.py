"""WideLinear is nn.Linear: the same numbers, names and file."""

from __future__ import annotations

import torch
from torch import nn

from provnet.heads.heads import LARGE, WideLinear


def test_it_is_a_linear_layer_on_a_cpu_whatever_its_size() -> None:
    torch.manual_seed(0)
    layer = WideLinear(1024, LARGE // 1024)
    same = nn.Linear(1024, LARGE // 1024)
    same.load_state_dict(layer.state_dict())
    x = torch.randn(3, 1024)
    assert torch.equal(layer(x), same(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
