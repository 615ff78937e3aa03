"""Commands that are killed with SIGKILL at random moments, and given again.

`tests.cli.paired` runs this in a process with one thread, which forks the commands: torch is imported once. A command
writes a byte into a pipe before every call that changes the disk, so half of the kills come right there; the others
come at any time.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provnet.base.atomic import is_temporary
from provnet.base.errors import ProvnetError
from provnet.cli import main as provnet
from provnet.cli.demo import run_demo
from provnet.cli.info import read_evaluation
from provnet.runs.fileset import state_of
from provnet.runs.run import FILES, has_run, read_run, verify_files
from provnet.samples.decisions import Decision, decisions_csv
from provnet.tools.debug.fix import FIXED
from tests.training.killed import finish, kill_after

from .conftest import contents, write_digits, write_more

KEYS = ["--network", "class-independent", "--head", "exemplar", "--epochs", "3", "--batch-size", "8"]
ONE, OTHER = "train/digit-2/3.png", "train/digit-1/2.png"
CALLS = ("fsync", "replace", "mkdir", "unlink", "rmdir", "link")
MINE = ("notes.txt", ".tmp-mine")  # files of somebody else in the run's folder
FIGURES = ("evaluation.json", "membership.json")
NEW = ("train", "demo")  # make the run
# DATA, MORE, RUN, MADE (a run that makes pictures) and OUT stand for folders, DECISIONS for a file
WRITE_RUN: dict[str, list[str]] = {
    "train": ["train", "DATA", "--out", "RUN", *KEYS, "--checkpoint-seconds", "0", "--resume"],
    "train --overwrite": ["train", "DATA", "--out", "RUN", *KEYS, "--seed", "1", "--overwrite"],
    "withhold": ["withhold", "RUN", "--id", ONE],
    "withhold --erase": ["withhold", "RUN", "--id", OTHER, "--erase"],
    "add": ["add", "RUN", "MORE", "--skip-known"],
    "influence": ["influence", "RUN"],
    "evaluate": ["evaluate", "RUN"],
    "audit": ["audit", "RUN", "--out", "OUT"],
    "check": ["check", "RUN", "--limit", "20", "--out", "OUT"],
    "demo": ["demo", "--out", "RUN"],
}
WRITE_OUT: dict[str, list[str]] = {
    "explain": ["explain", "RUN", "test:0..3", "--html", "OUT/because.html", "--png", "OUT/because.png"],
    "debug": ["debug", "RUN", "--out", "OUT"],
    "map": ["map", "RUN", "--out", "OUT"],
    "credit": ["credit", "RUN", "test:0..3", "--by", "BY", "--out", "OUT"],
    "attribute": ["attribute", "RUN", "DATA/test", "--out", "OUT"],
    "robustness": ["robustness", "RUN", "--out", "OUT", "--attacks", "none", "--conditions", "blur-1"],
    "fix": ["fix", "RUN", "--decisions", "DECISIONS", "--out", "OUT/fixed"],
    "generate": ["generate", "MADE", "-n", "3", "--out", "OUT"],
    "interpolate": ["interpolate", "MADE", "test:0", "test:1", "--steps", "3", "--out", "OUT"],
}


@dataclass
class Summary:
    """What happened."""

    kills: int = 0
    rounds: int = 0
    by: Counter[str] = field(default_factory=Counter)  # kills, and how the commands of a round ended
    bad: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """The folders that commands are given."""

    root: Path
    run: Path
    out: Path
    theirs: bool = False  # whether files of somebody else lie beside the run

    def start(self, name: str, out: Path | None = None) -> tuple[int, int]:
        """Fork a command; return its number and the pipe of its events."""
        places = {"DATA": "data", "MORE": "more", "MADE": "made", "BY": "by.csv", "DECISIONS": "decisions.csv"}
        places = {word: str(self.root / folder) for word, folder in places.items()}
        places |= {"RUN": str(self.run), "OUT": str(self.out)}
        given = {**WRITE_RUN, **WRITE_OUT, "app": ["app", "RUN", "--no-browser", "--port", "0"], **PREPARE}[name]
        words = [next((w.replace(k, v) for k, v in places.items() if w.split("/")[0] == k), w) for w in given]
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
        code = 1
        try:
            os.close(reading)
            with (self.root / "said" if out is None else out).open("w") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            if name != "app":
                for call in CALLS:
                    setattr(os, call, _announced(getattr(os, call), writing))
            if name == "demo":
                run_demo(self.run, epochs=1, limit=40)
                code = 0
            else:
                code = provnet(words)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def do(self, name: str) -> int:
        """Carry out a command; return how many events it had."""
        code, events = finish(*self.start(name))
        assert code == 0, (name, (self.root / "said").read_text())
        return events


def _announced(real: Callable[..., Any], writing: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        os.write(writing, b".")
        return real(*args, **kwargs)

    return call


PREPARE = {
    "begin": ["train", "DATA", "--out", "RUN", *KEYS],
    "make": ["train", "DATA", "--out", "MADE", "--task", "generate", "--epochs", "1", "--batch-size", "8"],
}


def prepare(root: Path) -> None:
    """A run with figures, and data."""
    write_digits(root / "data")
    write_more(root / "more")
    (root / "by.csv").write_text(f"sample_id,contributor\n{ONE},ann\n{OTHER},bob\n")
    place = Place(root, root / "run", root / "figures")
    for name in ("begin", "evaluate", "audit"):
        place.do(name)
    samples = read_run(root / "run").samples
    change = Decision(ONE, samples.hex(samples.id_places[ONE]), "relabel", "digit-3")
    (root / "decisions.csv").write_bytes(decisions_csv([change]))
    for name in MINE:
        (root / "run" / name).write_text("mine")


def fresh(root: Path, name: str) -> Place:
    """A copy of the run, or none for a command that makes it."""
    run, out = root / "at" / "run", root / "at" / "out"
    shutil.rmtree(root / "at", ignore_errors=True)
    out.mkdir(parents=True)
    place = Place(root, run, out, name not in NEW)
    if name not in NEW:
        shutil.copytree(root / "run", run)
    if "MADE" in {**WRITE_RUN, **WRITE_OUT}.get(name, ()) and not (root / "made").exists():
        place.do("make")
    return place


def state(run: Path) -> dict[str, str]:
    """Hashes of weights and samples; empty where no run is."""
    return state_of(run, FILES) if has_run(run) else {}


def problems(run: Path) -> list[str]:
    """What is wrong with a run: files that do not fit each other, and figures of another state."""
    bad: list[str] = []
    if not has_run(run):
        return bad
    try:
        found = read_run(run)
        bad += [check.why for check in verify_files(run) if check.why != "ok"]
        named = len(found.samples) - int(found.samples.withheld.sum())
        for figures in (read_evaluation(run, state(run)), found.config.evaluation):
            if figures and figures["index_accuracy"]["n"] not in (0, named):
                bad.append(f"figures on {figures['index_accuracy']['n']} of {named} samples")
    except ProvnetError as error:
        bad.append(str(error))
    return bad


def left_over(place: Place) -> list[str]:
    """Once a command has ended well: temporaries, figures of another state; files of somebody else that are gone."""
    found = [path.name for folder in (place.run, place.out) for path in folder.rglob(".tmp-*")]
    bad = [name for name in found if is_temporary(name)]
    for name in FIGURES:
        if (place.run / name).exists():
            about = (place.run / name).read_text()
            bad += [f"{name} is stale" for digest in state(place.run).values() if digest not in about]
    theirs = [place.run / name for name in MINE] if place.theirs else []
    return bad + [f"{path.name} is gone" for path in theirs if not path.exists() or path.read_text() != "mine"]


def kills(root: Path, count: int, chance: random.Random, summary: Summary) -> None:
    """Kill each command in turn; look at what is left; give the command again."""
    before = contents(root / "run")
    goals: dict[str, tuple[dict[str, str], int, float, set[str]]] = {}
    commands = [*WRITE_RUN, *WRITE_OUT]
    chance.shuffle(commands)
    for number in range(2 * count):  # some have ended before they are killed
        if summary.kills == count:
            break
        name = commands[number % len(commands)]
        if name not in goals:
            place, began = fresh(root, name), time.monotonic()
            events = place.do(name)
            goals[name] = (state(place.run), events, time.monotonic() - began, names(place))
        after, events, seconds, there = goals[name]
        place, then = fresh(root, name), {} if name in NEW else state(root / "run")
        at = (chance.randint(1, events), chance.uniform(0, 0.002)) if chance.random() < 0.5 else (0, seconds)
        pid, reading = place.start(name)
        if kill_after(pid, reading, at[0], at[1] if at[0] else chance.uniform(0, at[1])):
            summary.kills += 1
            summary.by[name] += 1
        where = f"{number} {name}, killed after {at}"
        now = state(place.run)
        bad = problems(place.run)
        if now not in (then, after) and not (name == "train --overwrite" and state(place.run / "replaced") == then):
            bad.append("neither the run before nor the run after")
        if now and now == then:  # what told of it must be there still
            kept, measures = contents(place.run), name in ("evaluate", "audit")
            figures = [file for file in FIGURES if file not in kept or not (measures or kept[file] == before[file])]
            bad += [f"{file} is lost" for file in figures]
        if name in WRITE_OUT and contents(place.run) != before:
            bad.append("the run was changed")
        told = name == "fix" and (place.out / "fixed" / FIXED).exists()  # it was done, and is refused a second time
        code, _ = finish(*place.start(name))
        gone = told or (name == "withhold --erase" and now == after)  # there is nothing left to erase
        if code != (2 if gone else 0):
            bad.append(f"again: exit code {code}: {(root / 'said').read_text()[-300:]}")
        bad += problems(place.run) + left_over(place)
        if state(place.run) != after or names(place) != there:
            bad.append(f"again: not what it should be: {sorted(names(place) ^ there)}")
        summary.bad += [f"{where}: {words}" for words in bad]


def names(place: Place) -> set[str]:
    """All files of a run and beside it."""
    return {*contents(place.run), *(f"out/{name}" for name in contents(place.out))}
