"""Nothing is resumed under other settings, with other data or another network."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from provnet.training.config import TrainConfig
from tests.cases import cases
from tests.fitting import fit

from .made import interrupt, pictures, recipe
from .refused import refusal

CHANGED: dict[str, Any] = {
    "preset": "paper", "epochs": 4, "batch_size": 9, "lr": 3e-3, "weight_decay": 0.1, "betas": (0.8, 0.99),
    "schedule": "step", "warmup": 2.0, "step_every": 9, "step_factor": 0.5, "smoothing": 0.1, "task_smoothing": 0.1,
    "task_weight": 0.9,
    "index_weight": 0.8, "precision": "bf16-mixed", "augment": "tiny", "negatives": 9, "finetune": True, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after its fourth step."""
    out = tmp_path_factory.mktemp("halfway") / "run"
    interrupt(pictures(), out, at=4, backbone="small")
    return out


def test_every_setting_has_a_change_here() -> None:
    assert {field.name for field in fields(TrainConfig)} - {"asked", "wanted"} == set(
        CHANGED
    )  # who asked decides nothing; the network is kept apart


@cases("name", CHANGED)
def test_another_setting_does_not_resume(halfway: Path, name: str) -> None:
    settings = {"preset": "fast", "weight_decay": 5e-2, "betas": (0.9, 0.99), "schedule": "one-cycle"}
    config = TrainConfig(**{"epochs": 3, "batch_size": 8, **settings, name: CHANGED[name]})
    text = refusal(halfway, config=config)
    before = recipe().to_json().get(name)  # what runs are not written with, as finetune, was not asked for
    shown = list(before) if isinstance(before, tuple) else before
    shown = "not set" if name == "finetune" else shown  # a recipe holds it only where it is asked for
    assert f"training.{name}: {shown} -> " in text
    also = {"precision"}  # its effect on this machine is a setting of its own
    assert ("2 settings differ: " if name in also else "1 setting differs: ") in text


@cases(
    ("wishes", "words"),
    [
        ({"network": "class-conditional-heads"}, ["network.network: class-conditional -> class-conditional-heads"]),
        ({"backbone": "mlp"}, ["network.backbone: small -> mlp"]),
        ({"conditional": False}, ["network.conditional: True -> False"]),
        ({"alpha": 0.25}, ["network.alpha: 0.0 -> 0.25"]),
        ({"level": 2}, ["network.level: 3 -> 2"]),
        ({"data": pictures(seed=1)}, ["data.fingerprint: "]),
        ({"data": pictures(24)}, ["data.fingerprint: ", "data.samples: 23 -> 24"]),
        ({"data": pictures(shape=(1, 8, 9))}, ["network.input_shape: [1, 8, 8] -> [1, 8, 9]"]),
        (
            {"config": recipe(seed=1, lr=1e-3, batch_size=4), "alpha": 0.5},
            ["training.seed: 0 -> 1", "training.lr: 0.002 -> 0.001", "training.batch_size: 8 -> 4", "network.alpha: "],
        ),
    ],
)
def test_another_network_or_data_set_does_not_resume(halfway: Path, wishes: dict[str, Any], words: list[str]) -> None:
    text = refusal(halfway, **wishes)
    assert [word for word in words if word not in text] == []


def test_another_order_of_the_same_samples_does_not_resume(halfway: Path) -> None:
    text = refusal(halfway, pictures().select(torch.arange(22, -1, -1)))
    assert "data.fingerprint" in text


def test_another_number_of_threads_does_not_resume(halfway: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        text = refusal(halfway)
    finally:
        torch.set_num_threads(threads)
    assert f"1 setting differs: machine.threads: {threads} -> {threads + 1}" in text


def test_a_finished_run_is_compared_too(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path / "run")
    text = refusal(tmp_path / "run", config=recipe(seed=2, epochs=4))
    assert "training.epochs: 3 -> 4; training.seed: 0 -> 2" in text


def test_another_backbone_of_ones_own_does_not_resume(tmp_path: Path) -> None:
    def flat(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width))

    interrupt(pictures(), tmp_path / "run", at=2, backbone=flat(8))
    assert "another backbone" in refusal(tmp_path / "run", backbone=flat(9))
