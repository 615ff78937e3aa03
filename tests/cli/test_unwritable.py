"""A folder that may not be written to: exit code 4, what was given and what to do, and before long work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provnet.base.atomic import refuse_unwritable
from provnet.base.errors import DiskError
from tests.bad.made import plain_user, small_files
from tests.cases import cases

from .conftest import Call


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    (tmp_path / "closed").mkdir(mode=0o555)
    return tmp_path / "closed"


@pytest.mark.parametrize(
    "command",
    [
        ["map", "RUN", "--out", "OUT"],
        ["map", "RUN", "--out", "OUT/below"],
        ["audit", "RUN", "--out", "OUT"],
        ["check", "RUN", "--out", "OUT"],
        ["debug", "RUN", "--out", "OUT"],
        ["robustness", "RUN", "--out", "OUT"],
        ["credit", "RUN", "test:0", "--out", "OUT"],
        ["attribute", "RUN", "x.png", "--out", "OUT"],
        ["generate", "RUN", "--out", "OUT"],
        ["interpolate", "RUN", "test:0", "test:1", "--out", "OUT"],
        ["train", "embedded", "--out", "OUT"],
        ["train", "embedded", "--out", "OUT/below"],
    ],
    ids=" ".join,
)
def test_long_work_is_not_begun(
    command: list[str], closed: Path, run: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provnet.runs.run.read_run", None)  # nothing is read
    monkeypatch.setattr("provnet.data.open._open_spec", None)
    with plain_user():
        found = call(*(word.replace("RUN", str(run)).replace("OUT", str(closed)) for word in command))
    assert found.code == 4
    assert f"cannot write {closed}" in found.last_line
    assert "permission denied" in found.last_line
    assert "choose a folder that you may write to" in found.last_line
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("option", ["--html", "--png", "--log"])
def test_explain_writes_nothing_there(option: str, closed: Path, run: Path, call: Call) -> None:
    with plain_user():
        found = call("explain", run, "test:0", option, closed / "x.png")
    assert found.code == 4
    assert "x.png" in found.last_line
    assert "ermission denied" in found.last_line
    assert "that you may write to" in found.last_line


def test_a_run_that_may_not_be_changed(place: Path, call: Call) -> None:
    run = place / "run"
    (run / ".lock").unlink(missing_ok=True)
    name = sorted(path.name for path in run.iterdir())
    run.chmod(0o555)
    try:
        with plain_user():
            found = call("withhold", run, "--id", "train/digit-0/0.png")
    finally:
        run.chmod(0o755)
    assert found.code == 4
    assert f"cannot write to {run}: Permission denied; allow it, or use a folder that you may" in found.last_line
    assert sorted(path.name for path in run.iterdir()) == name


def test_a_folder_below_one_that_may_not_be_entered(tmp_path: Path) -> None:
    (tmp_path / "shut" / "in").mkdir(parents=True)
    (tmp_path / "shut").chmod(0)
    try:
        with plain_user(), pytest.raises(DiskError, match="permission denied"):
            refuse_unwritable(tmp_path / "shut" / "in" / "x.html")
    finally:
        (tmp_path / "shut").chmod(0o755)
    refuse_unwritable(tmp_path / "shut" / "in" / "x.html")
    assert os.listdir(tmp_path / "shut") == ["in"]  # noqa: PTH208


@cases("command", ["audit", "robustness", "check", "map", "debug", "credit", "attribute"])
def test_an_output_below_a_file_is_refused_before_long_work(
    command: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provnet.runs.run.read_run", lambda *given, **more: pytest.fail("the run was read"))
    (tmp_path / "file").write_text("mine")
    asked = {"credit": ["test:0"], "attribute": ["x.png"]}.get(command, [])
    found = call(command, tmp_path / "run", *asked, "--out", tmp_path / "file" / "x")
    assert found.code == 2
    assert f"{tmp_path / 'file'} is a file, not a folder" in found.last_line


def test_a_full_disk_leaves_nothing_behind(run: Path, tmp_path: Path, call: Call) -> None:
    for command, place in (("debug", ["--out", "looked"]), ("explain", ["test:0", "--log", "made.jsonl"])):
        with small_files(200):
            found = call(command, run, *place[:-1], tmp_path / place[-1])
        assert (found.code, place[-1] in found.last_line) == (4, True)
        assert list(tmp_path.iterdir()) == []
