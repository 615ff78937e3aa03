"""Two processes through torchrun on the CPU, loopback only: one result, and that of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from provnet.answers.attributor import explain
from provnet.runs.run import read_run, verify_files
from tests.fitting import fit

from .made import EPOCHS, SAMPLES, names, pictures, recipe
from .two_processes import COMPARABLE, RAGGED, USUAL, bank, main, without_dropout

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two processes, and one alone, left."""
    folder = tmp_path_factory.mktemp("two")
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command = [sys.executable, "-W", "error::FutureWarning", "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += [*rendezvous, "-m", "tests.training.two_processes", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    with one_thread():
        main(folder)
    return folder


@contextmanager
def one_thread() -> Iterator[None]:
    """As in the two processes: sums are put together alike, and a checkpoint of theirs may be gone on with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def held(folder: Path, name: str, process: object) -> dict[str, torch.Tensor]:
    return load_file(folder / f"{name}-{process}.safetensors")


@pytest.mark.parametrize("name", [*COMPARABLE, "usual", "again"])
def test_both_processes_hold_the_same(done: Path, name: str) -> None:
    first, second = held(done, name, 0), held(done, name, 1)
    assert first.keys() == second.keys()
    assert [key for key in first if not torch.equal(first[key], second[key])] == []


@pytest.mark.parametrize("name", COMPARABLE)
def test_two_processes_do_what_one_does(done: Path, name: str) -> None:
    """Batches of 8, 8 and 7: the last one is shared unevenly."""
    two, one = held(done, name, 0), held(done, name, "alone")
    assert two.keys() == one.keys()
    moved = False
    for key in (k for k in one if "support" not in k and k not in ("history", "threshold")):
        # AdamW makes a good part of a step (2e-3) out of the rounding of a gradient near zero
        assert torch.allclose(two[key], one[key], rtol=0, atol=1e-4), key
        moved |= not torch.equal(two[key], one[key])
    assert moved  # it is not the same computation
    assert torch.allclose(two["history"].float(), one["history"].float(), atol=2e-3)


@pytest.mark.parametrize("conditional", [False, True])
def test_a_bank_split_over_processes_gives_what_the_whole_gives(done: Path, conditional: bool) -> None:
    head, features, index = bank(conditional)
    queries = features.clone().requires_grad_()
    classes = head.index_map.labels[index]
    loss, hit = head.loss(queries, classes, None, index, 0.1)
    loss.sum().backward()
    found = head.best(queries, classes, 4)
    totals = head.class_totals(queries)
    head.observe(index, features)
    scale = torch.zeros(())
    for process in (0, 1):
        part, own = load_file(done / f"parts-{conditional}-{process}.safetensors"), slice(process, None, 2)
        torch.testing.assert_close(part["loss"], loss.detach()[own], rtol=1e-6, atol=0)
        assert queries.grad is not None
        torch.testing.assert_close(
            part["grad"], queries.grad[own], rtol=1e-6, atol=1e-6 * float(queries.grad.abs().max())
        )
        assert part["hit"].tolist() == hit[own].tolist()
        assert part["index"].tolist() == found.index[own].tolist()
        torch.testing.assert_close(part["share"], found.log_share[own], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(part["totals"], totals[own], rtol=1e-6, atol=1e-6)
        assert torch.equal(part["keys"], head.keys)
        scale += part["scale"]
    torch.testing.assert_close(scale, head.log_scale.grad, rtol=1e-6, atol=1e-8)


def test_another_number_of_processes_goes_on_with_a_checkpoint(done: Path) -> None:
    """Two processes train an epoch, one goes on: what one process alone would have come to."""
    with without_dropout(), one_thread():
        run = fit(pictures(), config=recipe(), out=done / "handed", resume=True, **COMPARABLE["keys"])
    alone = held(done, "keys", "alone")
    for key, value in run.network.state_dict().items():
        if "support" not in key:
            # as above: a step is 2e-3, and where a gradient is near zero its rounding, which may differ, decides
            assert torch.allclose(value, alone[key], rtol=0, atol=1e-4), key


def test_another_number_of_processes_shows_every_sample_once_an_epoch(done: Path) -> None:
    """Two processes have two batches an epoch, one has three: steps alone do not say where training is."""
    with one_thread():
        run = fit(pictures(RAGGED), config=recipe(), out=done / "ragged", resume=True, **USUAL)
    assert run.history is not None
    assert run.history.shape == (EPOCHS, RAGGED)
    assert (run.history > 0).all()  # the loss of every sample in every epoch
    rows = [json.loads(line) for line in (done / "ragged" / "log.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 2), (2, 6), (3, 9)]


def test_the_first_process_writes_a_whole_run(done: Path) -> None:
    run = read_run(done / "run")
    assert [check.why for check in verify_files(done / "run") if check.why != "ok"] == []
    assert not [name for name in names(done / "run") if "tmp" in name or "checkpoints" in name]
    kept = held(done, "usual", 0)
    assert all(torch.equal(value, kept[key]) for key, value in run.network.state_dict().items())
    assert run.config.training["machine"]["processes"] == 2
    assert run.history is not None
    assert run.history.shape == (EPOCHS, SAMPLES)
    assert np.isfinite(run.history).all()
    assert (run.history > 0).all()  # the loss of every sample, whichever process saw it
    rows = [json.loads(line) for line in (done / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 6, 9]
    for row, losses in zip(rows, run.history, strict=True):
        assert row["task_loss"] == pytest.approx(float(losses.astype(np.float64).mean()), rel=1e-3)
        assert 0 <= row["class_accuracy"] <= 1
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert len(explain(run, pictures().images)) == SAMPLES


def test_interrupted_after_an_epoch_two_processes_go_on_to_the_same_bits(done: Path) -> None:
    for process in (0, 1):
        whole, again = held(done, "usual", process), held(done, "again", process)
        assert [key for key in whole if not torch.equal(whole[key], again[key])] == []
    assert (done / "run" / "log.jsonl").read_bytes() == (done / "again" / "log.jsonl").read_bytes()


@pytest.mark.parametrize(("n", "words"), [(3, "3 samples"), (23, "batch of 3")])
def test_shares_below_two_samples_are_refused(done: Path, n: int, words: str) -> None:
    for process in (0, 1):
        assert words in (done / f"refused-{n}-{process}").read_text()
