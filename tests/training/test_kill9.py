"""kill -9 at random moments: nothing is lost but the step at work."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests.counts import count, grows

ROOT = Path(__file__).parents[2]


@grows
def test_killed_at_random_moments_a_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    trials = count(2, 20)
    seed = os.environ.get("PROVNET_SEED", str(random.SystemRandom().randrange(2**32)))
    command = [sys.executable, "-m", "tests.training.killed", str(tmp_path), str(trials), seed]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["trials"] == trials
    assert summary["kills"] >= trials // 2, summary
    bad = {name: summary[name] for name in ("unreadable", "lost", "different", "failed", "orphans") if summary[name]}
    assert bad == {}, f"again with PROVNET_SEED={seed}: {summary}"
