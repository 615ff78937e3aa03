"""Two commands at once on one run, and the kills of `tests.cli.killed`.

`python -m tests.cli.paired FOLDER KILLS ROUNDS SEED` prints what happened as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from provnet.runs.run import read_run
from tests.training.killed import finish

from .conftest import contents
from .killed import FIGURES, Place, Summary, fresh, kills, left_over, prepare, problems, state

PAIRED = ("train --overwrite", "withhold", "withhold --erase", "evaluate", "app")
CHANGES = PAIRED[:3]


def rounds(root: Path, count: int, chance: random.Random, summary: Summary) -> None:
    """Two commands at once, again and again: what is left is what one after the other leaves."""
    pairs = list(itertools.combinations(PAIRED, 2))
    chance.shuffle(pairs)
    goals: dict[tuple[str, ...], dict[str, str]] = {}
    seconds = {"app": 1.0}
    for number in range(count):
        pair = list(pairs[number % len(pairs)])
        chance.shuffle(pair)
        if pair[0] not in seconds:
            seconds[pair[0]] = _time(root, pair[0])
        place, said = fresh(root, "both"), [root / "said-0", root / "said-1"]
        before = contents(place.run)
        started = {}
        for name, path in zip(pair, said, strict=True):
            path.write_text("")  # what the last round said
            started[name] = place.start(name, path)
            time.sleep(chance.uniform(0, seconds[name]) if name == pair[0] else 0)
        words = dict(zip(pair, said, strict=True))
        seen = None
        if "app" in pair:
            other = next(name for name in pair if name != "app")
            try:
                link = _link(words["app"])
                codes = {other: finish(*started[other])[0]}
                seen = None if link is None else _seen(link)
            finally:
                os.kill(started["app"][0], signal.SIGTERM)  # our own child, not yet waited for
            codes["app"] = finish(*started["app"])[0]
        else:
            codes = {name: finish(*one)[0] for name, one in started.items()}
        summary.rounds += 1
        for name, code in codes.items():
            summary.by[f"round: {name} {code}"] += 1
        done = [name for name in CHANGES if codes.get(name) == 0]
        bad = [f"{name}: exit code {code}: {_said(words[name])}" for name, code in codes.items() if not _fine(code)]
        bad += [f"{name}: {_said(words[name])}" for name in codes if "Traceback" in _said(words[name])]
        bad += problems(place.run) + left_over(place)
        if state(place.run) not in [_goal(root, order, goals) for order in itertools.permutations(done)]:
            bad.append(f"the run is not what {done} leave")
        for name in FIGURES:
            written = contents(place.run).get(name)
            if not done and (written is None or (written != before[name] and codes.get("evaluate") != 0)):
                bad.append(f"{name} is lost")
        if seen is not None:
            bad += _app_problems(place.run, seen)
        summary.bad += [f"round {number}, {' and '.join(pair)}: {line}" for line in bad]


def _fine(code: int) -> bool:
    """Done, refused as the run is in use or being replaced, or overtaken by a change."""
    return code in (0, 2, 6)


def _said(path: Path) -> str:
    return path.read_text()[-400:]


def _time(root: Path, name: str) -> float:
    place, began = fresh(root, name), time.monotonic()
    place.do(name)
    return time.monotonic() - began


def _goal(root: Path, order: Sequence[str], goals: dict[tuple[str, ...], dict[str, str]]) -> dict[str, str]:
    """The state that these commands leave one after the other."""
    if tuple(order) not in goals:
        place = Place(root, root / "serial", root / "serial-out")
        shutil.copytree(root / "run", place.run)
        for name in order:
            place.do(name)
        goals[tuple(order)] = state(place.run)
        shutil.rmtree(place.run)
    return goals[tuple(order)]


def _link(path: Path) -> str | None:
    """The link that the app prints; None where it did not start, as the run was being replaced."""
    for _ in range(600):
        for line in path.read_text().splitlines(keepends=True):
            if "#t=" in line and line.endswith("\n"):
                return line.split()[-1]
            if line.startswith("error: "):
                return None
        time.sleep(0.1)
    raise AssertionError(path.read_text())


def _seen(link: str) -> dict[str, Any]:
    """What the app tells of its run."""
    address, token = link.split("/#t=")
    found = {}
    for name in ("", "/state", "/files", "/evaluation"):
        request = urllib.request.Request(f"{address}/api/v1/run{name}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            found[name] = json.loads(reply.read())
    return found


def _app_problems(run: Path, seen: dict[str, Any]) -> list[str]:
    """The app says that the run changed exactly where it did, and shows figures of the run that it opened alone."""
    now = read_run(run)
    opened = (seen["/files"]["model_sha256"], seen["/files"]["data_fingerprint"], seen[""]["withheld"])
    on_disk = (state(run)["model.safetensors"], now.samples.fingerprint, int(now.samples.withheld.sum()))
    bad = [] if (seen["/state"]["changed"] == "") == (opened == on_disk) else [f"app: {seen['/state']}"]
    measured = [one["n"] for one in seen["/evaluation"]["measures"] if one["name"] == "index_accuracy"]
    return bad + [f"app: figures on {n} samples" for n in measured if n not in (0, seen[""]["samples"])]


def main(folder: str, kill_count: str, round_count: str, seed: str) -> None:
    """Do it all and print the summary."""
    torch.set_num_threads(1)
    root, summary, chance = Path(folder), Summary(), random.Random(seed)
    prepare(root)
    kills(root, int(kill_count), chance, summary)
    rounds(root, int(round_count), chance, summary)
    sys.stdout.write(json.dumps({**vars(summary), "seed": seed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
