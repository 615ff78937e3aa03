"""What provnet does is what it did when `fixtures` was recorded: losses, JSON, run folders, tables, OpenAPI, options.

A change that is meant is recorded anew with `python -m tests.net.make`, and the difference is read before it is kept.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.net.make import FIXTURES, probe

ROOT = Path(__file__).parents[2]
SAME = probe() == (FIXTURES / "probe.txt").read_text("utf-8").strip()
# Another processor rounds otherwise: there the numbers are compared with a tolerance, and what is ranked is not.
HOW = pytest.mark.parametrize(
    "exact", [pytest.param(SAME, id="exact" if SAME else "tolerance-as-this-CPU-rounds-otherwise")]
)
RELATIVE, ABSOLUTE = 0.05, 0.1
TURNING = ("json", "tables")  # hold ranks, counts and maps of few samples: a tenth of the numbers may turn
SHARE = 0.1
NUMBERS = re.compile(r": '-?[\d.e-]+' became '-?[\d.e-]+'$")
RANKED = re.compile(r"[0-9a-f]{64}|(?:train/|test/|\d+/)\d+(?:\.bmp)?|\d")  # hashes, ids, class names


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of the present code, made once however many processes test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "net"
    with (folder.parent / "net.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "options.json").is_file():  # the last that is written
            command = [sys.executable, "-m", "tests.net.make", str(folder)]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600, env=environment()
            )
            assert done.returncode == 0, done.stderr[-2000:]
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def read(path: Path) -> Any:
    """JSON, lines of JSON, the cells of a table, or lines of text."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".csv":
        return [[number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]
    return text.splitlines()


def number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def differences(was: Any, now: Any, exact: bool, where: str = "") -> Iterator[str]:
    """Where two values differ, by the way to the place."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            if name in was and name in now:
                yield from differences(was[name], now[name], exact or name == "shape", f"{where}/{name}")
            else:
                yield f"{where}/{name} is {'new' if name in now else 'gone'}"
    elif isinstance(was, list) and isinstance(now, list) and (exact or len(was) == len(now)):
        if len(was) != len(now):
            yield f"{where} has {len(now)} parts, not {len(was)}"
        for place, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from differences(one, other, exact, f"{where}[{place}]")
    elif was != now and (exact or not close(was, now)):
        yield f"{where}: {str(was)[:120]!r} became {str(now)[:120]!r}"


def close(was: Any, now: Any) -> bool:
    """Alike but for rounding: numbers within the tolerance, names of samples and hashes of any value, texts alike."""
    if isinstance(was, bool) or isinstance(now, bool):
        return isinstance(was, bool) and isinstance(now, bool)  # an answer that may turn
    if is_number(was) and is_number(now):
        return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(was, str) and isinstance(now, str):
        return re.sub(r"-?[\d.,]+", "#", RANKED.sub("#", was)) == re.sub(r"-?[\d.,]+", "#", RANKED.sub("#", now))
    return isinstance(was, list) and isinstance(now, list)  # of other lengths: what was flagged


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(value: Any) -> int:
    """How many numbers a value holds."""
    if isinstance(value, dict):
        return sum(map(numbers, value.values()))
    return sum(map(numbers, value)) if isinstance(value, list) else is_number(value)


def compare(made: Path, kind: str, exact: bool) -> None:
    """Every file of a kind, and no file more or less."""
    was, now = (
        {str(p.relative_to(root)): p for p in sorted(root.glob(f"{kind}/**/*")) if p.is_file()}
        for root in (FIXTURES, made)
    )
    assert sorted(was) == sorted(now)
    assert was, kind
    found, held = [], 0
    for name, path in was.items():
        if not exact or path.read_bytes() != now[name].read_bytes():
            held += numbers(read(path))
            more = list(differences(read(path), read(now[name]), exact, name))
            found += more or ([f"{name}: other bytes"] if exact else [])
    turned = [line for line in found if NUMBERS.search(line)]
    if not exact and kind in TURNING and len(turned) <= held * SHARE:
        found = [line for line in found if line not in turned]
    assert not found, "\n".join([f"{len(found)} differences:", *found[:20]])


@HOW
@pytest.mark.parametrize("kind", ["logs", "json", "folders", "tables"])
def test_what_is_trained_and_answered_is_as_recorded(made: Path, kind: str, exact: bool) -> None:
    compare(made, kind, exact)


def test_the_openapi_documents_are_as_recorded(made: Path) -> None:
    compare(made, "openapi", exact=True)


def test_every_option_is_still_there(made: Path) -> None:
    was, now = read(FIXTURES / "options.json"), read(made / "options.json")
    assert list(differences(was, now, exact=True)) == []
