"""Rows 68, 69 and 73 to 77: runs that are killed, stopped, crowded out, mixed up, or asked for too much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.runs.run import has_run, read_run
from provnet.training.checkpoint import load_checkpoint
from provnet.training.session import run_lock

from .entry import Entry, Place, Said
from .made import NETWORK, SIDE, STEPS, interrupted

KILLED = """
import os, signal, sys
from provnet.cli import main
real = os.replace
def replace(source, goal, **more):
    if str(goal).endswith("step-0000000003"):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(source, goal, **more)
os.replace = replace
main(sys.argv[1:])
"""


def steps(place: Place, out: Path, *options: object) -> list[object]:
    """Six steps on the pictures of the kit, with a checkpoint after each."""
    return ["train", place.kit.data, "--out", out, *NETWORK, *STEPS, *options]


def killed(place: Place) -> list[object]:
    """A process that kills itself while the third checkpoint is ready but has not got its name."""
    command = [str(part) for part in steps(place, place.out)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert step_of(place.out) == 2
    return steps(place, place.out, "--resume")


def step_of(out: Path) -> int:
    found = load_checkpoint(out)
    assert found is not None
    return int(found.meta["step"])


def is_as_if_nothing_happened(place: Place, _: Said) -> None:
    """Weights, log and history are those of a run that was never interrupted."""
    straight = place.tmp / "straight"
    assert place.call(*steps(place, straight)).code == 0
    for name in ("model.safetensors", "history.safetensors", "log.jsonl"):
        assert (place.out / name).read_bytes() == (straight / name).read_bytes()
    assert not (place.out / "checkpoints").exists()


def stopped(number: signal.Signals, times: int = 1) -> Callable[[Place], list[object]]:
    def given(place: Place) -> list[object]:
        place.stack.enter_context(interrupted(4, number, times))
        return steps(place, place.out)

    return given


def goes_on(step: int) -> Callable[[Place, Said], None]:
    """The checkpoint of that step is kept, and --resume ends as if nothing had happened."""

    def after(place: Place, said: Said) -> None:
        assert "--resume" in said.err
        assert not has_run(place.out)
        assert step_of(place.out) == step
        assert place.call(*steps(place, place.out, "--resume")).code == 0
        is_as_if_nothing_happened(place, said)

    return after


def crowded(*options: object) -> Callable[[Place], list[object]]:
    """Another run holds the folder."""

    def given(place: Place) -> list[object]:
        out = place.run("stopped", "out") if options else place.out
        out.mkdir(exist_ok=True)
        place.stack.enter_context(run_lock(out))
        return steps(place, out, *options)

    return given


def released(place: Place, _: Said) -> None:
    assert place.call(*steps(place, place.out, "--resume")).code == 0


def resumed(*options: object) -> Callable[[Place], list[object]]:
    return lambda place: [*steps(place, place.run("stopped", "out"), "--resume"), *options]


def other_threads(place: Place) -> list[object]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    place.stack.callback(torch.set_num_threads, before)
    return resumed()(place)


def other_data(place: Place, out: str = "stopped") -> list[object]:
    """One training picture less."""
    data = place.data()
    (data / "train/digit-0/0.png").unlink()
    run = place.run(out, "out")
    return ["train", data, "--out", run, *NETWORK, *(STEPS if out == "stopped" else ("--epochs", 1)), "--resume"]


def still_resumes(place: Place, _: Said) -> None:
    assert step_of(place.out) == 3
    assert place.call(*steps(place, place.out, "--resume")).code == 0
    is_as_if_nothing_happened(place, _)


def diverging(place: Place) -> list[object]:
    return ["train", place.kit.data, "--out", place.out, *NETWORK, *STEPS, "--epochs", 60, "--lr", "1e6"]


def last_good_is_kept(place: Place, _: Said) -> None:
    assert not has_run(place.out)
    assert step_of(place.out) >= 1  # reading it checks that every weight is finite


def poisoned(place: Place) -> list[object]:
    values = np.zeros((6, 4), np.float32)
    values[2, 3] = np.nan
    np.savez(place.tmp / "x.npz", images=values, labels=np.arange(6) % 2)
    return ["train", place.tmp / "x.npz", "--out", place.out]


def many(place: Place, k: object, *options: object) -> list[object]:
    return ["explain", place.kit.run, place.kit.data / "test/digit-0/0.png", "-k", k, "--json", *options]


def all_are_named(_: Place, said: Said) -> None:
    found = said.json[0]["exemplars"]
    assert len({item["sample_id"] for item in found}) == 20
    assert abs(sum(item["weight"] for item in found) - 1) < 1e-5


def many_in_python(place: Place) -> Callable[[], Any]:
    return lambda: explain(read_run(place.kit.run), np.zeros((2, 1, SIDE, SIDE), np.uint8), k=10**9)


def asked(name: str, value: object) -> Callable[[Place], list[object]]:
    return lambda place: ["train", place.kit.data, "--out", place.out, f"{name}={value}"]


TWICE = "Ctrl-C twice"

LISTED = ("cannot resume",)

ROWS = [
    Entry(68, "killed while a checkpoint is written, resumed", killed, after=is_as_if_nothing_happened),
    Entry(69, "SIGTERM", stopped(signal.SIGTERM), 130, ("interrupted",), goes_on(4), leaves=True),
    Entry(69, "Ctrl-C", stopped(signal.SIGINT), 130, ("interrupted",), goes_on(4), leaves=True),
    Entry(69, TWICE, stopped(signal.SIGINT, 2), 130, ("interrupted",), goes_on(3), leaves=True),
    Entry(73, "second run in a folder", crowded(), 2, ("in use by another provnet run", f"process {os.getpid()}")),
    Entry(73, "second run, --resume", crowded("--resume"), 2, ("in use by another provnet run",), released),
    Entry(73, "second run, --overwrite", crowded("--overwrite"), 2, ("in use by another provnet run",), released),
    Entry(74, "resumed with another seed", resumed("--seed", 5), 2, (*LISTED, "training.seed: 0 -> 5"), still_resumes),
    Entry(74, "resumed with another batch size", resumed("--batch-size", 4), 2, (*LISTED, "batch_size: 8 -> 4")),
    Entry(74, "resumed with another learning rate", resumed("--lr", 0.5), 2, (*LISTED, "training.lr: 0.002 -> 0.5")),
    Entry(74, "resumed with other data", other_data, 6, (*LISTED, "data.fingerprint", "data.samples: 20 -> 19")),
    Entry(74, "resumed with other threads", other_threads, 2, (*LISTED, "machine.threads")),
    Entry(
        74,
        "resumed with everything else",
        resumed("--seed", 5, "--lr", 0.5, "--epochs", 9, "--network", "single", "--alpha", 0.5),
        2,
        ("training.seed", "training.lr", "training.epochs", "network.network", "network.alpha"),
    ),
    Entry(74, "finished run with other data", lambda p: other_data(p, "run"), 6, (*LISTED, "data.samples: 20 -> 19")),
    Entry(75, "learning rate 1e6", diverging, 3, ("step", "Lower the learning rate"), last_good_is_kept, True),
    Entry(75, "NaN in the data", poisoned, 3, ("x.npz", "NaN")),
    Entry(76, "k above N", lambda p: many(p, 10**9), 0, ("more than the 20 training samples",), all_are_named),
    Entry(
        76,
        "k above N in Python",
        many_in_python,
        after=lambda _, said: None if said.value.index.shape == (2, 20) else 1 / 0,
    ),
    Entry(76, "k of 0", lambda p: many(p, 0), 2, ("-k must be 1 or more, got 0",)),
    Entry(76, "k of -1", lambda p: many(p, -1), 2, ("-k must be 1 or more, got -1",)),
    *(
        Entry(77, f"{name} {value}", asked(name, value), 2, (str(value),))
        for name in ("--epochs", "--batch-size")
        for value in (-1, 0, 10**7, 10**30)
    ),
    Entry(77, "--batch-size 1", asked("--batch-size", 1), 2, ("--batch-size", "from 2 to 1,000,000, got 1")),
    Entry(77, "--epochs 1.5", asked("--epochs", 1.5), 2, ("--epochs", "valid integer")),
]
