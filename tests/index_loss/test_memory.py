"""Nothing waits for a device, and no (B, N) tensor is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from provnet.heads.losses import IndexLoss
from tests.index_loss.made import Case, make, ours, plain, sampled, with_gradients


@pytest.mark.parametrize("span", [False, True])
def test_no_value_is_read_back_from_a_device(span: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())  # meta knows no autocast
    case = make(span=span, smoothing=0.1).to("meta")  # has no values: reading one is an error
    for loss in (ours, lambda c: sampled(c, 0.7)):
        found, gradients = with_gradients(loss, case)
        assert [x.device.type for x in (*found, *gradients)] == ["meta"] * 4
        assert [x.shape for x in gradients] == [x.shape for x in case.tensors]


class Largest(TorchDispatchMode):
    """The most numbers in any tensor that is made, views of what was given aside."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.given = {x.untyped_storage().data_ptr() for x in given}
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.given:
                self.numel = max(self.numel, x.numel())
        return made


def largest_of(loss: Callable[[Case], IndexLoss], case: Case, *, train_keys: bool) -> int:
    case = replace(case, features=case.features.requires_grad_(), keys=case.keys.requires_grad_(train_keys))
    with Largest(case.tensors) as largest:
        loss(case).loss.sum().backward()
    assert case.features.grad is not None
    assert (case.keys.grad is not None) == train_keys
    return largest.numel


@pytest.mark.parametrize("span", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_scores_or_the_keys(span: bool) -> None:
    b, n, d, chunk = 64, 2000, 16, 100

    def largest(loss: Callable[[Case], IndexLoss], train_keys: bool) -> int:
        return largest_of(loss, make(b, n, d, span=span, smoothing=0.1), train_keys=train_keys)

    assert largest(lambda c: ours(c, chunk), train_keys=True) == n * d > b * chunk
    assert largest(lambda c: ours(c, chunk), train_keys=False) <= b * chunk  # and no gradient of the keys
    assert largest(lambda c: ours(c, 1000), train_keys=True) <= b * 1000
    assert largest(plain, train_keys=True) >= b * n  # the same count sees the scores of the plain loss
