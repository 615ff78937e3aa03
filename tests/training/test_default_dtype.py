"""Weights are float32 whatever torch's default is, and trained whatever it does with gradients; both are put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import provnet
from provnet.base.errors import UsageError
from provnet.runs.run import read_run
from tests.cases import cases
from tests.fitting import fit

from .made import NETWORKS, pictures, recipe, same_bits


@pytest.fixture
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def body() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
        nn.init.constant_(module[1].weight, 0.01)
        nn.init.zeros_(module[1].bias)
        return module


@cases("name", ["single", "class-conditional", "sharing", "keys", "own"])
def test_a_run_is_the_same_whatever_the_default(name: str, tmp_path: Path) -> None:
    kind = {"head": "exemplar"} if name == "own" else NETWORKS[name]
    settings = {**kind, "conditional": False, "config": recipe(epochs=1)}
    usual = fit(pictures(), **settings, **({"backbone": body()} if name == "own" else {}))
    torch.set_default_dtype(torch.float64)
    try:
        own = {"backbone": body()} if name == "own" else {}
        run = fit(pictures(), **settings, **own, out=tmp_path / "run")
        again = read_run(tmp_path / "run", **own)
        found = provnet.explain(again, pictures().images, k=2)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    same_bits(run, usual)
    same_bits(again, usual)
    assert found.to_records() == provnet.explain(usual, pictures().images, k=2).to_records()


@pytest.mark.usefixtures("doubles")
def test_the_default_is_put_back_after_an_error() -> None:
    with pytest.raises(UsageError, match="level must be one of"):
        fit(pictures(), network="class-independent", backbone="sharing-small", level=9, config=recipe())
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["class-conditional", "own"])
def test_a_caller_without_gradients_gets_the_same_run(name: str, off: type[torch.no_grad]) -> None:
    settings = {"head": "exemplar", "config": recipe(epochs=1)}
    usual = fit(pictures(), **settings, **({"backbone": body()} if name == "own" else {}))
    with off():
        run = fit(pictures(), **settings, **({"backbone": body()} if name == "own" else {}))
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (off is torch.inference_mode)
    same_bits(run, usual)
