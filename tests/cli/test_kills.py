"""kill -9 at random moments of every command that writes, and two commands at once on one run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import typer

from provnet.cli.app import app
from tests.counts import count, grows

from .killed import WRITE_OUT, WRITE_RUN

ROOT = Path(__file__).parents[2]
READ = {"member", "verify", "info"}
ELSEWHERE = {"app", "reproduce", "without"}  # one of a pair below; results beside no run; --keep writes as influence


def test_every_command_that_writes_is_killed() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    killed = {name.split()[0] for name in (*WRITE_RUN, *WRITE_OUT)}
    assert set(commands) == killed | READ | ELSEWHERE


@grows
def test_killed_or_two_at_once_nothing_is_lost_mixed_or_stale(tmp_path: Path) -> None:
    kills, rounds = count(3, 100), count(1, 20)
    seed = os.environ.get("PROVNET_SEED", str(random.SystemRandom().randrange(2**32)))
    command = [sys.executable, "-m", "tests.cli.paired", str(tmp_path), str(kills), str(rounds), seed]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["bad"] == [], f"again with PROVNET_SEED={seed}"
    assert (summary["kills"], summary["rounds"]) == (kills, rounds), summary
