"""`provnet add` and `provnet withhold`: what is refused, and what a kill leaves."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from provnet.base.errors import DiskError, UsageError
from provnet.cli import bank as commands
from provnet.cli import main
from provnet.runs import bank
from provnet.runs.run import read_run, write_run
from provnet.training.session import run_lock
from tests.banked import MORE, RUNS, ids
from tests.counts import count, grows
from tests.modelfile.faults import Faults, KilledError

from .conftest import Call, contents

GONE = "train/digit-2/3.png"


@pytest.fixture(scope="module")
def plain(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without keys; copy before changing."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    assert main(["train", str(trained[0]), "--out", str(folder), "--preset", "fast", "--epochs", "1"]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["withhold", "run"], 2, "no sample was named"),
        (["withhold", "run", "--id", "train/digit-2/33.png"], 2, f'Did you mean "{GONE}"?'),
        (["withhold", "run", "--id", GONE, "--erase", "--restore"], 2, "give one of them"),
        (["withhold", "run", "--list", "empty.txt"], 2, "no sample was named"),
        (["withhold", "run", "--list", "bad.txt"], 3, "not UTF-8"),
        (["withhold", "run", "--list", "nowhere.txt"], 3, "does not exist"),
        (["withhold", "run", "--list", "all.txt", "--erase"], 2, "at least one"),
        (["withhold", "run", "--list", "all.txt"], 2, "at least one"),
        (["withhold", "nowhere", "--id", GONE], 2, "no run at nowhere"),
        (["withhold", "more", "--id", GONE], 2, "not a provnet run"),
        (["withhold", "plain", "--id", GONE], 2, "--head exemplar"),
        (["add", "plain", "more"], 2, "--head exemplar"),
        (["add", "run", "nowhere"], 2, "no data set and no path"),
        (["add", "run", "digits"], 3, "shape (1, 8, 8), the run takes (1, 28, 28)"),
        (["add", "run", "embedded", "--limit", "10"], 2, 'does not know, the first "0"'),
        (["add", "run", "more", "--split", "some"], 2, "allowed: all, test, train"),
        (["add", "run", "more", "--split", "test"], 2, "no test split"),
        (
            ["add", "run", "twice"],
            2,
            '"train/digit-0/b.png" has the pixels of "train/digit-0/a.png", which comes before it',
        ),
        (["add", "nowhere", "more"], 2, "no run at nowhere"),
    ],
)
def test_refused_and_nothing_changed(
    arguments: list[str], code: int, words: str, place: Path, plain: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    shutil.copytree(plain, "plain")
    Path("empty.txt").write_text("\n\n")
    Path("bad.txt").write_bytes(b"\xff\xfe")
    Path("all.txt").write_text("\n".join(read_run("run").samples.sample_ids))
    for name in ("a", "b"):
        path = Path("twice/train/digit-0") / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("more/train/digit-0/0.png", path)
    before = contents(place)
    found = call(*arguments)
    assert found.code == code, found.err
    assert words in found.last_line
    assert contents(place) == before


def test_a_run_that_is_in_use_is_refused(place: Path, call: Call) -> None:
    with run_lock(place / "run"):
        for arguments in (["withhold", place / "run", "--id", GONE], ["add", place / "run", place / "more"]):
            found = call(*arguments)
            assert found.code == 2
            assert f"in use by another provnet run (process {os.getpid()})" in found.last_line


@grows
@pytest.mark.parametrize("number", [None, errno.ENOSPC], ids=["killed", "disk full"])
def test_stopped_at_any_step_the_run_is_old_or_new(tmp_path: Path, number: int | None) -> None:
    """Old with its figures; and the next command, even one that is refused, finds nothing left of what was erased."""
    run, folder = bank.add(RUNS["single", "fp32"], MORE), tmp_path / "run"
    trace = run.samples.sha256[5].tobytes()

    def start() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        write_run(run, folder)
        (folder / "evaluation.json").write_bytes(trace)

    def erase() -> None:
        commands.change_run(folder, lambda run: bank.erase(run, ids(5)))

    start()
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, at=None)
        erase()
    seen = set()
    for step in range(0, faults.steps, count(5, 1)):
        start()
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step, errno=number)
            with suppress(DiskError, KilledError):
                erase()
        found = read_run(folder).samples
        seen.add(len(found))
        if len(found) == len(run.samples):
            assert found.fingerprint == run.samples.fingerprint
            assert (folder / "evaluation.json").read_bytes() == trace
            erase()
        else:
            with pytest.raises(UsageError, match="no sample"):
                erase()
        assert [name for name, blob in contents(folder).items() if trace in blob] == []
    assert seen == {16, 17}
