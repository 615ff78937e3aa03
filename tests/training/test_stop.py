"""Training that has to stop: losses that are no longer numbers, Ctrl-C, SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet.base.batches import bounds, order
from provnet.base.errors import NonFiniteError, UsageError
from provnet.runs.run import has_run
from provnet.training import checkpoint
from tests.cases import cases
from tests.fitting import fit

from .made import BATCH, NETWORKS, SAMPLES, interrupt, names, pictures, recipe, same_bits, step_of


class Poisoned(nn.Module):
    """A backbone whose output, or whose gradient alone, is not a number once in training, at a step of choice."""

    def __init__(self, step: int | None = None, what: str = "loss") -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.linear = nn.Linear(64, 16)
        self.bad, self.what, self.calls = step, what, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.linear(x.flatten(1))
        if not self.training:
            return out
        self.calls += 1
        if self.calls - 1 != self.bad:
            return out
        # The gradient of a square root at 0 is infinite, and infinity times 0 is NaN.
        return out * torch.nan if self.what == "loss" else out + 0 * (out - out).abs().sqrt()


def named_samples(step: int, seed: int = 0) -> list[str]:
    """The ids that the message should give: the first eight of the batch."""
    batches = bounds(SAMPLES, BATCH)
    epoch, number = divmod(step, len(batches))
    rows = order(SAMPLES, seed, epoch)[slice(*batches[number])]
    return [f"train/{i}" for i in rows.tolist()]


@cases("what", ["loss", "gradient"])
@cases("step", [0, 1, 5, 8])
def test_a_loss_or_gradient_that_is_no_number_names_its_step_and_samples(tmp_path: Path, step: int, what: str) -> None:
    out = tmp_path / "run"
    with pytest.raises(NonFiniteError) as error:
        fit(pictures(), backbone=Poisoned(step, what), config=recipe(), out=out, checkpoint_seconds=0)
    text = str(error.value)
    assert re.search(rf"\bstep {step}\b", text), text
    assert re.findall(r"train/\d+", text) == named_samples(step)[:8]
    assert ("and 1 more" in text) == (len(named_samples(step)) == 9)
    assert "\n" not in text
    assert error.value.exit_code == 3
    assert step_of(out) == (step or None)  # the last good one is kept, and nothing after it
    assert not has_run(out)
    healthy = fit(pictures(), backbone=Poisoned(), config=recipe())
    same_bits(fit(pictures(), backbone=Poisoned(), config=recipe(), out=out, resume=True), healthy)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_learning_rate_of_a_million_stops(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with pytest.raises(NonFiniteError, match=r"step \d"):
        fit(pictures(), config=recipe(lr=1e6, epochs=30), out=out, checkpoint_seconds=0, **NETWORKS[name])
    found = checkpoint.load_checkpoint(out)
    assert found is not None
    assert found.meta["step"] >= 1
    assert capsys.readouterr().err == ""  # no damaged one was met
    assert not has_run(out)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics can overflow while the loss is still finite."""
    out = tmp_path / "run"
    real = checkpoint.save_checkpoint

    def poison(folder, net, optimizer, state, settings):  # type: ignore[no-untyped-def]
        if state.step == 4:
            next(b for name, b in net.named_buffers() if name.endswith("running_var"))[0] = torch.inf
        return real(folder, net, optimizer, state, settings)

    monkeypatch.setattr("provnet.training.fit.save_checkpoint", poison)
    with pytest.raises(NonFiniteError, match=r"after step 4 the model holds NaN or infinity .*running_var"):
        fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0)
    assert step_of(out) == 3


def test_data_that_are_no_numbers_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    data = provnet.open_data(values, np.arange(6) % 2)
    data.images[3, 2] = torch.nan
    with pytest.raises(NonFiniteError, match="NaN"):
        fit(data, out=tmp_path / "run")
    assert names(tmp_path) == []


@pytest.fixture
def at_a_terminal() -> Iterator[None]:
    """These tests may themselves be run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize(
    ("number", "batch", "epoch"),
    [
        (signal.SIGTERM, BATCH, 1),
        (signal.SIGINT, BATCH, 2),
        (signal.SIGHUP, BATCH, 2),
        (signal.SIGTERM, BATCH, 3),
        (signal.SIGINT, 64, 1),
    ],
)
def test_a_signal_is_answered_with_a_checkpoint(tmp_path: Path, number: signal.Signals, batch: int, epoch: int) -> None:
    out, config = tmp_path / "run", recipe(batch_size=batch)
    before = signal.getsignal(number)

    def send(row: object) -> None:
        if dict(row)["epoch"] == epoch:  # type: ignore[call-overload]
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        fit(pictures(), config=config, out=out, on_epoch=send)
    assert signal.getsignal(number) is before
    assert step_of(out) == epoch * (1 if batch == 64 else 3)
    same_bits(fit(pictures(), config=config, out=out, resume=True), fit(pictures(), config=config))


class Signalling(nn.Module):
    """A backbone during whose very first training step a signal arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 16)
        self.sent = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and not self.sent:
            self.sent = True
            signal.raise_signal(signal.SIGTERM)
        return self.linear(x.flatten(1))


def test_a_signal_during_the_first_step_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(pictures(), backbone=Signalling(), config=recipe(), out=tmp_path / "run")
    assert step_of(tmp_path / "run") == 1


def test_a_second_signal_stops_at_once_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupt(pictures(), out, at=2)

    def send(row: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(pictures(), config=recipe(), out=out, resume=True, on_epoch=send)
    assert step_of(out) == 2
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))


def test_under_nohup_a_closed_terminal_stops_nothing(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        fit(pictures(), config=recipe(), out=tmp_path / "run", on_epoch=lambda row: signal.raise_signal(signal.SIGHUP))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert has_run(tmp_path / "run")


def test_without_a_folder_signals_are_left_to_the_caller() -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        fit(pictures(), config=recipe(), on_epoch=lambda row: signal.raise_signal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM] * 3


def test_the_command_stops_with_130_and_goes_on_with_resume(tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM from outside, each to a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        out = tmp_path / number.name
        command = [sys.executable, "-m", "provnet", "train", "embedded", "--limit", "100", "--epochs", "5000"]
        running[number] = subprocess.Popen(
            [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
    try:
        for number, child in running.items():
            out = tmp_path / number.name
            while not (out / "log.jsonl").exists() and child.poll() is None:
                time.sleep(0.02)
            child.send_signal(number)
            said = child.communicate(timeout=60)[1]
            assert child.returncode == 130, said
            assert "--resume" in said
            assert "Traceback" not in said
            rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
            step = step_of(out)
            assert step is not None
            assert step >= rows[-1]["step"] >= 1
            assert not has_run(out)
    finally:
        for child in running.values():
            child.kill()
            child.wait()


@cases(
    ("name", "value"),
    [
        *(("epochs", v) for v in (0, -1, 100_001, 2**40, 1.5)),
        *(("batch_size", v) for v in (-1, 1, 1_000_001, 2**40)),
        *(("lr", v) for v in (0.0, -1e-3, float("nan"), float("inf"))),
        *(("weight_decay", v) for v in (-1.0, float("nan"))),
        *(("warmup", v) for v in (-1.0, float("inf"))),
        *(("seed", v) for v in (-1, 2**63)),
        ("step_every", 0),
        ("precision", "16-mixed"),
        ("schedule", "cosine"),
        ("betas", (0.9, 1.0)),
        ("smoothing", 1.0),
        ("task_weight", -1.0),
        ("index_weight", float("nan")),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UsageError) as error:
        recipe(**{name: value})
    assert name in str(error.value)
    assert "\n" not in str(error.value)
