"""Blocks of the built-in backbones give what the usual order of layers gives."""

from __future__ import annotations

import torch
from torch import nn

from provnet.models.backbones import conv_block


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
