"""benchmarks/influence: networks trained together are as each alone, the truth is whole, TRAK is its formula."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

ROOT = Path(__file__).parents[1]
TRUTH = sorted((ROOT / "benchmarks/influence/truth").glob("*.npz"))


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "benchmarks/influence")


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def small() -> nn.Module:
    conv = nn.Conv2d(1, 3, 3, stride=2, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))


def test_networks_trained_together_are_those_trained_alone() -> None:
    together, recipe = module("together"), module("subjects").Recipe(epochs=6, batch=20, rate=0.02, clip=0.5)
    x, y = torch.randn(40, 1, 4, 4), torch.arange(40) % 3
    rows, made = torch.arange(40).view(2, 20), []
    for seed in (5, 6):
        torch.manual_seed(seed)
        made.append(together.Plain(small().train(), recipe))
    weights, held = together.train_many(made, x, y, rows, recipe)
    for number, seed in enumerate((5, 6)):
        alone, _ = together.train_one(small, x, y, rows[number], recipe, seed)
        own = {name.split(".", 1)[1]: each[number] for name, each in (weights | held).items()}
        assert torch.allclose(functional_call(made[0].net.eval(), own, x), alone(x), atol=1e-4)


def test_kept_retrainings_are_whole_and_those_on_one_half_are_alike() -> None:
    lds, truth = module("lds"), module("truth")
    assert {path.stem for path in TRUTH} <= set(truth.ALL)
    for path in TRUTH:
        subject, kept = truth.ALL[path.stem], np.load(path)
        assert path.stat().st_size < 2_000_000
        assert kept["margins"].shape[::2] == (subject.times, subject.halves), path.stem
        assert np.isfinite(kept["margins"]).all()
        assert len(np.unique(kept["classes"])) > 1 if "classes" in kept else path.stem == "gpt"
        if subject.times > 1:
            one, other = kept["margins"][:2, :100].astype(float)
            assert lds.correlation(one, other).mean() > 0.1 > abs(lds.correlation(one, np.roll(other, 7, 1)).mean())


def test_what_is_foretold_rightly_scores_one_and_its_interval_holds_the_mean() -> None:
    lds, chance = module("lds"), np.random.default_rng(0)
    foretold = chance.normal(size=(30, 50))
    noisy = foretold + chance.normal(size=foretold.shape)
    assert lds.correlation(foretold, np.exp(foretold)) == pytest.approx(1)
    low, high = np.quantile(lds.drawn(foretold, noisy), [0.025, 0.975])
    assert low < lds.correlation(foretold, noisy).mean() < high < 1
    assert high - low > 0.02


def test_trak_is_its_formula_where_the_projection_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects, rivals = module("subjects"), module("rivals")
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    monkeypatch.setattr(rivals, "RIDGES", (1.0,))
    data = subjects.Data(x, y, torch.randn(5, 4), torch.arange(5) % 3)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3))
    trak = rivals.Trak(data, subjects.Recipe(1, 1, 1.0), data.query_y, 1024, 7)
    (found,) = trak.foretold(net, 0, [torch.eye(60)])["width 1024, ridge 1"]

    def grads(inputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        rows = []
        for one, target in zip(inputs, classes, strict=True):
            margin = rivals.margins(net(one[None]), target[None]).sum()
            rows.append(torch.cat([each.flatten() for each in torch.autograd.grad(margin, list(net.parameters()))]))
        return torch.stack(rows)

    train, query = grads(x, y), grads(data.query_x, data.query_y)
    gram = train.T @ train
    ridge = gram.diagonal().sum() / 1024  # the mean over the columns of the projection
    expected = query @ torch.linalg.solve(gram + ridge * torch.eye(len(gram)), train.T)
    assert torch.allclose(found, expected, atol=1e-3 * expected.abs().max())
