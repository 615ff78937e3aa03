"""Training on a CPU with the memory that a step frees kept for the next one, and given back as glibc does by itself.

    python benchmarks/kept_memory.py [--turns 3] [--threads 1] [--out benchmarks/results/kept_memory.json]

Three networks on the 4,000 embedded digits, a few epochs each, seed 0. Every training runs in a process of its own and
the two ways take turns. Processor time is that of the training alone, so other processes on the machine hardly matter;
pages are those that the system had to clear. The losses of both ways must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import machine

import provnet
from provnet.training import fit as fitting
from provnet.training.config import train_config

CASES = {"fast": 5, "robust": 3, "paper": 2}  # preset -> epochs
WAYS = ("kept", "given back")


def measure(preset: str, way: str, threads: int) -> dict[str, Any]:
    """One training, in a process that has done nothing else."""
    torch.set_num_threads(threads)
    data = provnet.open_data("embedded")
    if way != "kept":
        fitting.kept_memory = nullcontext  # type: ignore[assignment]
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run = fitting.fit(data, config=train_config(preset, epochs=CASES[preset]), device="cpu")
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "wall": wall,
        "pages": after.ru_minflt - before.ru_minflt,
        "peak_mb": after.ru_maxrss / 1e3,
        "losses": sha256(run.history.tobytes()).hexdigest(),  # of every sample in every epoch
    }


def fresh(preset: str, way: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, __file__, "--only", preset, way, "--threads", str(given.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{preset}, {way}: the measurement failed\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(preset: str, given: argparse.Namespace) -> dict[str, Any]:
    """Medians over the turns, ratio turn by turn."""
    turns = [{way: fresh(preset, way, given) for way in WAYS} for _ in range(given.turns)]
    assert len({one["losses"] for turn in turns for one in turn.values()}) == 1, f"{preset}: the losses differ"
    ratios = sorted(turn["kept"]["seconds"] / turn["given back"]["seconds"] for turn in turns)
    middle = {
        way: {
            name: round(median(turn[way][name] for turn in turns), 2)
            for name in ("seconds", "wall", "pages", "peak_mb")
        }
        for way in WAYS
    }
    row = {
        "preset": preset,
        "epochs": CASES[preset],
        **middle,
        "ratio": [round(ratios[i], 3) for i in (0, len(ratios) // 2, -1)],
    }
    print(json.dumps(row))
    return row


def main() -> None:
    """Measure all, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # one training, in this process
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(*given.only, given.threads)))
        return
    about = machine(rates=False) | {"device": "cpu", "threads": given.threads}
    found = {"machine": about, "turns": given.turns, "rows": [compared(preset, given) for preset in CASES]}
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
