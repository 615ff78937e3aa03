"""A run that was interrupted anywhere and goes on gives the bits of one that was not."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from provnet.base.batches import bounds, order
from provnet.runs.run import Run, read_run
from provnet.training.session import LOG
from tests.counts import SOAK, count, grows

from .made import (
    BATCH,
    EPOCHS,
    NETWORKS,
    SAMPLES,
    STEPS,
    fit,
    interrupt,
    names,
    pictures,
    recipe,
    same_bits,
    step_of,
    tensor_hashes,
)


@pytest.fixture(scope="module", params=NETWORKS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Run]:
    """Each network, trained without any interruption."""
    wishes = NETWORKS[request.param]
    return wishes, fit(pictures(), config=recipe(), out=tmp_path_factory.mktemp("whole") / "run", **wishes)


def test_the_runs_here_have_a_ragged_last_batch() -> None:
    sizes = [end - start for start, end in bounds(SAMPLES, BATCH)]
    assert sizes == [8, 8, 7]
    assert len(sizes) * EPOCHS == STEPS


@grows
def test_interrupted_after_any_step_it_ends_with_the_same_bits(whole: tuple[dict, Run], tmp_path: Path) -> None:
    """Every step for two networks; for the others the first, the last of an epoch, one amid an epoch, the last."""
    wishes, uninterrupted = whole
    every = SOAK or wishes in (NETWORKS["class-conditional"], NETWORKS["keys, trained"])
    for step in range(1, STEPS + 1) if every else (1, 3, 5, STEPS):
        out = tmp_path / str(step)
        interrupt(pictures(), out, step, **wishes)
        assert step_of(out) == step
        same_bits(fit(pictures(), config=recipe(), out=out, resume=True, **wishes), uninterrupted)
        same_bits(read_run(out), uninterrupted)
        assert not [name for name in names(out) if "tmp" in name or "checkpoints" in name]


def test_work_after_the_last_checkpoint_is_done_again(tmp_path: Path) -> None:
    uninterrupted = fit(pictures(), config=recipe(), out=tmp_path / "whole")
    for saved in range(STEPS):
        out = tmp_path / str(saved)
        interrupt(pictures(), out, at=STEPS, saved=[saved])
        assert len((out / LOG).read_text().splitlines()) == EPOCHS  # the log is ahead of the checkpoint
        same_bits(fit(pictures(), config=recipe(), out=out, resume=True), uninterrupted)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(pictures(), config=recipe(), alpha=0.5, out=tmp_path_factory.mktemp("mixed") / "run")


@grows
@given(st.lists(st.tuples(st.integers(1, STEPS), st.sets(st.integers(1, STEPS))), max_size=5))
@settings(max_examples=count(10, 500), deadline=None)
def test_interrupted_many_times_it_ends_with_the_same_bits(mixed: Run, stops: list[tuple[int, set[int]]]) -> None:
    """Each stop is (after which step, after which steps checkpoints were written before it)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        for at, saved in stops:
            if at > ((step_of(out) if out.exists() else None) or 0):
                interrupt(pictures(), out, at, saved, alpha=0.5)
        same_bits(fit(pictures(), config=recipe(), alpha=0.5, out=out, resume=True), mixed)


def test_a_run_with_a_checkpoint_after_every_step_keeps_two_and_then_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def look(row: object) -> None:
        seen.append(sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()))

    run = fit(pictures(), config=recipe(), out=tmp_path / "run", checkpoint_seconds=0, on_epoch=look)
    assert seen == [
        ["step-0000000001", "step-0000000002"],
        ["step-0000000004", "step-0000000005"],
        ["step-0000000007", "step-0000000008"],
    ]
    assert not (tmp_path / "run" / "checkpoints").exists()
    same_bits(run, fit(pictures(), config=recipe()))


def test_a_finished_run_is_given_back_as_it_is(tmp_path: Path) -> None:
    run = fit(pictures(), config=recipe(), out=tmp_path / "run")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()}
    same_bits(fit(pictures(), config=recipe(), out=tmp_path / "run", resume=True), run)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir() if p.name != ".lock"} == {
        p: t for p, t in before.items() if p.name != ".lock"
    }


def test_log_and_history_say_what_happened(tmp_path: Path) -> None:
    run = fit(pictures(), config=recipe(), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 3), (2, 6), (3, 9)]
    assert run.history is not None
    assert run.history.shape == (EPOCHS, SAMPLES)
    for row, losses in zip(rows, run.history, strict=True):
        assert row["task_loss"] == pytest.approx(float(losses.astype(np.float64).mean()), rel=1e-3)
        assert row["loss"] == pytest.approx(row["task_loss"] + 0.7 * row["index_loss"], rel=1e-6)
        assert 0 <= row["class_accuracy"] <= 1
        assert 0 <= row["index_accuracy"] <= 1


class Tied(nn.Module):
    """A backbone of one's own: dropout, BatchNorm, two names for one weight, one parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(64, 64)
        self.two = nn.Linear(64, 64)
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(64)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.norm(self.two(self.one(x.flatten(1)).relu())), 0.2, self.training)


def tied() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Tied()


def test_a_backbone_given_as_object_resumes_too(tmp_path: Path) -> None:
    uninterrupted = fit(pictures(), config=recipe(), backbone=tied(), out=tmp_path / "whole")
    for step in (1, 4, 9):
        out = tmp_path / str(step)
        interrupt(pictures(), out, step, backbone=tied())
        same_bits(fit(pictures(), config=recipe(), backbone=tied(), out=out, resume=True), uninterrupted)


@pytest.mark.parametrize("name", NETWORKS)
def test_same_seed_same_bits_another_seed_others(name: str) -> None:
    runs = []
    for seed, state in ((3, 0), (3, 1), (4, 1)):
        torch.manual_seed(state)  # what the caller did before has no say
        runs.append(fit(pictures(), config=recipe(seed=seed), **NETWORKS[name]))
    same_bits(runs[0], runs[1])
    first, other = tensor_hashes(runs[0]), tensor_hashes(runs[2])
    trained = [key for key, value in runs[0].network.named_parameters() if value.requires_grad]
    assert [key for key in trained if first[key] == other[key]] == []


def test_the_order_is_a_permutation_of_its_own_for_every_seed_and_epoch() -> None:
    orders = [tuple(order(50, seed, epoch).tolist()) for seed in range(4) for epoch in range(4)]
    assert all(sorted(o) == list(range(50)) for o in orders)
    assert len(set(orders)) == 16
    assert order(50, 2, 3).tolist() == list(orders[11])


def random_states() -> tuple[bytes, bytes, int]:
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes(), hash(random.getstate())


@pytest.mark.parametrize("end", ["finished", "interrupted", "resumed"])
def test_the_callers_random_state_is_left_as_it_was(end: str, tmp_path: Path) -> None:
    if end == "resumed":
        interrupt(pictures(), tmp_path / "run", 4)
    torch.manual_seed(11)
    before = random_states()
    if end == "interrupted":
        interrupt(pictures(), tmp_path / "run", 4)
    else:
        fit(pictures(), config=recipe(), out=tmp_path / "run", resume=end == "resumed")
    assert random_states() == before
