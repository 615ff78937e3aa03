"""A block of keys that stands for all: exact where it is all of them, near it on the average, with its own gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from provnet.base.errors import UsageError
from provnet.heads.losses import block_cross_entropy


def made(n: int = 300, b: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    keys = F.normalize(torch.randn(n, 8, generator=dice, dtype=torch.float64), dim=1)
    features = 4 * F.normalize(torch.randn(b, 8, generator=dice, dtype=torch.float64), dim=1)
    return features.requires_grad_(), keys, torch.randint(n, (b,), generator=dice)


@pytest.mark.parametrize("chunk", [7, 100, 8192])
def test_a_block_of_all_keys_is_exact(chunk: int) -> None:
    features, keys, target = made()
    due = F.cross_entropy(features @ keys.t(), target, reduction="none")
    found = block_cross_entropy(features, keys, target, (0, len(keys)), chunk=chunk)
    torch.testing.assert_close(found, due)
    weight = torch.arange(1.0, len(features) + 1, dtype=torch.float64)
    (one,) = torch.autograd.grad((due * weight).sum(), features, retain_graph=True)
    (other,) = torch.autograd.grad((found * weight).sum(), features)
    torch.testing.assert_close(one, other)


def test_blocks_are_right_on_the_average_and_count_their_target_once() -> None:
    features, keys, target = made()
    due = F.cross_entropy(features @ keys.t(), target, reduction="none").exp()  # what a block estimates: 1 / p
    blocks = [(start, start + 60) for start in range(0, 300, 60)]
    each = [block_cross_entropy(features, keys, target, block).exp() for block in blocks]
    torch.testing.assert_close(torch.stack(each).mean(0), due, rtol=0.02, atol=0)
    assert float((each[0] / due - 1).abs().max().detach()) > 0.01  # an estimate, each of them


def test_the_gradient_of_a_block_is_its_own() -> None:
    features, keys, target = made(b=6)
    assert torch.autograd.gradcheck(lambda x: block_cross_entropy(x, keys, target, (40, 130), chunk=33), (features,))


@pytest.mark.parametrize("block", [(0, 1), (-1, 50), (0, 301), (50, 40)])
def test_what_is_no_block(block: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="a block of 2 keys or more"):
        block_cross_entropy(*made(), block)
