"""A step on a GPU is recorded once and replayed: nothing in it may look at the value of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import provnet
from provnet.base.options import HEADS
from provnet.heads import losses as index_loss
from provnet.models.network import NETWORKS
from provnet.tools.generate.compute import fit_generator
from provnet.training.config import train_config
from provnet.training.loop import Stepper
from tests.fitting import fit

LOOKS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero")


class NoLooking(TorchDispatchMode):
    """Raises where an operation needs a value on the CPU, which a recording forbids."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in LOOKS or (name == "index" and any(getattr(one, "dtype", None) == torch.bool for one in args[1])):
            raise AssertionError(f"a step looks at values: aten::{name}")
        return func(*args, **(kwargs or {}))


def unseen(way: Callable[..., Any]) -> Callable[..., Any]:
    """The same, not watched."""

    def call(*args: Any, **more: Any) -> Any:
        with _disable_current_modes():
            return way(*args, **more)

    return call


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts steps that looked at nothing. What a GPU does otherwise than a CPU is not watched."""
    plain, steps = Stepper.__call__, []

    def step(self: Stepper, *args: Any, **more: Any) -> torch.Tensor:
        with NoLooking():
            found = plain(self, *args, **more)
        steps.append(1)
        return found

    monkeypatch.setattr(Stepper, "__call__", step)
    monkeypatch.setattr(torch.optim.AdamW, "step", unseen(torch.optim.AdamW.step))
    monkeypatch.setattr(torch.nn.functional, "one_hot", unseen(torch.nn.functional.one_hot))
    for name in ("check_given", "check_span"):
        monkeypatch.setattr(index_loss, name, unseen(getattr(index_loss, name)))
    return steps


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("head", HEADS)
def test_looks_at_no_value(guarded: list[int], network: str, head: str) -> None:
    few, preset = provnet.open_data("embedded", limit=60), "paper" if head == "plain" else "robust"
    fit(few, network=network, head=head, config=train_config(preset, epochs=1, batch_size=30))
    assert len(guarded) == 2


def test_the_guard_finds_a_look(guarded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = provnet.ProvenanceNet.forward

    def looks(self: provnet.ProvenanceNet, images: torch.Tensor, *rest: Any) -> Any:
        float(images.sum())
        return plain(self, images, *rest)

    monkeypatch.setattr(provnet.ProvenanceNet, "forward", looks)
    with pytest.raises(AssertionError, match="looks at values"):
        fit(provnet.open_data("embedded", limit=60), config=train_config("paper", epochs=1, batch_size=30))


@pytest.mark.parametrize("generator", ["paper", "modern", "faces"])
def test_a_generator_looks_at_no_value(guarded: list[int], generator: str) -> None:
    few = provnet.open_data("embedded", limit=60)
    fit_generator(few, generator, changes={"epochs": 1, "batch_size": 30})
    assert len(guarded) == 2
