"""Training that is killed with SIGKILL at random moments and goes on, again and again.

`python -m tests.training.killed FOLDER TRIALS SEED` prints what happened as JSON. It is a process of its own with one
thread, which forks the processes to be killed: torch is imported once. A child writes a byte into a pipe before and
after every checkpoint, after every epoch and around the writing of the run, so that the moments of the kills spread
over the whole course whatever the machine is busy with.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import provnet
from provnet.base.errors import ProvnetError
from provnet.data.dataset import ImageData
from provnet.runs.run import has_run, read_run, verify_files
from provnet.training import fit as fitting
from provnet.training.checkpoint import load_checkpoint
from provnet.training.config import train_config
from provnet.training.session import LOG
from tests.fitting import fit

from .made import names, tensor_hashes

NETWORKS: tuple[dict[str, Any], ...] = (
    {"network": "class-conditional"},
    {"network": "single", "alpha": 0.5},
    {"network": "class-conditional-heads"},
    {"network": "class-independent"},
)
EPOCHS, BATCH, SAMPLES = 3, 48, 200  # batches of 48, 48, 48, 48 and 8
STEPS = 5 * EPOCHS
FILES = [".lock", "README.md", "config.json", "history.safetensors", LOG, "manifest.json", "model.safetensors"]
FILES += ["samples.safetensors", "snapshots.safetensors"]


@dataclass
class Summary:
    """What happened in all trials."""

    trials: int = 0
    kills: int = 0
    stages: Counter[str] = field(default_factory=Counter)  # of the kills
    unreadable: list[str] = field(default_factory=list)  # folders after a kill
    lost: list[str] = field(default_factory=list)  # trials whose checkpoint went back
    different: list[str] = field(default_factory=list)  # trials whose final run has other bits
    failed: list[str] = field(default_factory=list)  # runs that ended with an error
    orphans: list[str] = field(default_factory=list)  # files left over at the end


def start(data: ImageData, out: Path, wishes: dict[str, Any], seconds: float) -> tuple[int, int]:
    """Fork a process that begins or goes on with a run; return its number and the pipe of its events."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = 1
    try:
        os.close(reading)
        with (out.parent / f"{out.name}.said").open("a") as said:
            os.dup2(said.fileno(), 2)

        def announced(action: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                os.write(writing, b".")
                result = action(*args)
                os.write(writing, b".")
                return result

            return call

        fitting.save_checkpoint = announced(fitting.save_checkpoint)
        fitting.write_run = announced(fitting.write_run)
        fit(
            data,
            config=train_config("fast", epochs=EPOCHS, batch_size=BATCH),
            out=out,
            resume=True,
            checkpoint_seconds=seconds,
            on_epoch=lambda row: os.write(writing, b"."),
            **wishes,
        )
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(pid: int, reading: int) -> tuple[int, int]:
    """Wait for a process; return its exit code (minus the signal that ended it) and how many events it had."""
    events = 0
    while os.read(reading, 1):
        events += 1
    os.close(reading)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), events


def kill_after(pid: int, reading: int, events: int, delay: float) -> bool:
    """Send SIGKILL some time after an event of a process; False if it had ended before."""
    for _ in range(events):
        if not os.read(reading, 1):
            break
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)  # our own child, not yet waited for
    code, _ = finish(pid, reading)
    return code == -signal.SIGKILL


def newest(out: Path) -> int:
    """The step of the newest checkpoint by name; past the last step where the run is whole."""
    if has_run(out):
        return STEPS + 1
    steps = [int(p.name.removeprefix("step-")) for p in out.glob("checkpoints/step-*")]
    return max(steps, default=0)


def readable(out: Path) -> str | None:
    """What is wrong with a folder after a kill, or None. Reads a copy: reading checkpoints sweeps temporaries."""
    copy = out.with_name(f"{out.name}.copy")
    shutil.copytree(out, copy)
    try:
        if has_run(copy):
            bad = [check.why for check in verify_files(copy) if check.why != "ok"]
            read_run(copy)
            return bad[0] if bad else None
        load_checkpoint(copy)
        if newest(copy) and load_checkpoint(copy).meta["step"] != newest(copy):  # type: ignore[union-attr]
            return "the newest checkpoint was left out"
        return None
    except ProvnetError as error:
        return str(error)
    finally:
        shutil.rmtree(copy)


def bits(out: Path) -> dict[str, Any]:
    """Everything about a run that has to be the same."""
    run = read_run(out)
    assert run.history is not None
    return {
        "weights": tensor_hashes(run),
        "history": run.history.tobytes().hex(),
        "log": (out / LOG).read_text(),
        "support": dict(run.config.support),
    }


def trial(
    number: int, seed: str, data: ImageData, root: Path, goal: tuple[dict[str, Any], float], summary: Summary
) -> None:
    """Kill one run several times, let it end, compare it with the one that was never killed."""
    chance = random.Random(f"{seed} {number}")
    wishes = NETWORKS[number % len(NETWORKS)]
    expected, gap = goal
    seconds = 1e9 if number % 5 == 4 else 0.0  # now and then without any checkpoint
    out = root / f"trial-{number}"
    for _ in range(chance.randint(1, 4)):
        before = newest(out)
        left = 2 * (STEPS - before) + EPOCHS + 2 if seconds == 0 else EPOCHS + 2
        pid, reading = start(data, out, wishes, seconds)
        if kill_after(pid, reading, chance.randint(0, max(left - 1, 0)), chance.uniform(0, 2 * gap)):
            summary.kills += 1
            after = newest(out)
            stage = "finished" if after > STEPS else "finishing" if after == STEPS else "training" if after else "begun"
            summary.stages[stage] += 1
        if not out.exists():  # killed before it made its folder
            continue
        if (problem := readable(out)) is not None:
            summary.unreadable.append(f"{out.name}: {problem}")
        if newest(out) < before:
            summary.lost.append(f"{out.name}: {before} -> {newest(out)}")
    code, _ = finish(*start(data, out, wishes, seconds))
    said = out.with_name(f"{out.name}.said").read_text()
    if code != 0 or said:
        summary.failed.append(f"{out.name}: exit code {code}: {said[-400:]}")
    elif bits(out) != expected:
        summary.different.append(out.name)
    summary.orphans += [f"{out.name}: {name}" for name in names(out) if name not in FILES]
    summary.trials += 1


def main(folder: str, trials: str, seed: str) -> None:
    """Run the trials and print the summary."""
    torch.set_num_threads(1)
    root, summary = Path(folder), Summary()
    data = provnet.open_data("embedded", limit=SAMPLES)
    goals = []
    for number, wishes in enumerate(NETWORKS[: int(trials)]):
        out = root / f"whole-{number}"
        began = time.monotonic()
        code, events = finish(*start(data, out, wishes, 0.0))
        assert code == 0, out.with_name(f"{out.name}.said").read_text()
        assert events == 2 * STEPS + EPOCHS + 2, events
        goals.append((bits(out), (time.monotonic() - began) / events))
    for number in range(int(trials)):
        trial(number, seed, data, root, goals[number % len(goals)], summary)
    sys.stdout.write(json.dumps({**vars(summary), "seed": seed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
