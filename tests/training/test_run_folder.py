"""One run, one folder: others are kept out, and what is there is not overwritten."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import DiskError, IntegrityError, NonFiniteError, UsageError
from provnet.runs.run import read_run, write_run
from provnet.training import session as run_folder
from tests.cases import cases
from tests.fitting import fit

from .made import interrupt, names, pictures, recipe, same_bits, tensor_hashes

HOLDER = """
import sys
from pathlib import Path
from provnet.training.session import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a folder."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("wishes", [{}, {"resume": True}, {"overwrite": True}])
def test_a_second_run_in_a_folder_is_refused_and_the_process_named(tmp_path: Path, wishes: dict[str, bool]) -> None:
    out = tmp_path / "run"
    with held(out) as child:
        before = names(out)
        with pytest.raises(UsageError, match=rf"in use by another provnet run \(process {child.pid}\)"):
            fit(pictures(), config=recipe(), out=out, **wishes)
        assert names(out) == before


def test_a_running_run_keeps_others_out_of_its_checkpoints(tmp_path: Path) -> None:
    """The same from the inside: a second fit while the first is at work."""
    out, said = tmp_path / "run", []

    def second(row: object) -> None:
        with pytest.raises(UsageError) as error:
            fit(pictures(), config=recipe(), out=out, overwrite=True)
        said.append(str(error.value))

    run = fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0, on_epoch=second)
    assert len(said) == 3
    assert all(f"process {os.getpid()}" in text for text in said)
    same_bits(run, fit(pictures(), config=recipe()))


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with held(out) as child:
        child.kill()
        child.wait()
        assert (out / ".lock").read_text().strip() == str(child.pid)
        fit(pictures(), config=recipe(), out=out)
    assert (out / ".lock").read_text().strip() == str(os.getpid())


@pytest.mark.parametrize(("epoch", "seconds"), [(1, 0.0), (1, 1e9), (3, 1e9)], ids=["checkpoint", "log", "run"])
def test_a_folder_renamed_while_it_trains_is_not_looked_for_under_its_name(
    tmp_path: Path, epoch: int, seconds: float
) -> None:
    """Renamed before the next checkpoint, log or run is written: another run has the name by then, and stays."""
    out, moved, second = tmp_path / "run", tmp_path / "moved", []

    def rename(row: Mapping[str, Any]) -> None:
        if row["epoch"] == epoch:
            out.rename(moved)
            second.append(fit(pictures(), config=recipe(seed=1), out=out))

    with pytest.raises(IntegrityError, match=f"was renamed while it was in use, its run is now in {moved}; nothing"):
        fit(pictures(), config=recipe(), out=out, on_epoch=rename, checkpoint_seconds=seconds)
    same_bits(read_run(out), second[0])
    assert not (out / "checkpoints").exists()
    same_bits(fit(pictures(), config=recipe(), out=moved, resume=True), fit(pictures(), config=recipe()))


def test_a_folder_removed_while_it_trains_does_not_come_back(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(IntegrityError, match="was removed or replaced while it was in use"):
        fit(pictures(), config=recipe(), out=out, on_epoch=lambda row: shutil.rmtree(out))
    assert names(tmp_path) == []


def test_what_dead_writers_left_is_removed_by_who_holds_the_lock_alone(tmp_path: Path) -> None:
    out, orphan, mine = tmp_path / "run", ".tmp-999999999-0a1b2c3d-log.jsonl", ".tmp-mine"
    with held(out):
        for name in (orphan, mine):
            (out / name).write_text("x")
        with pytest.raises(UsageError, match="in use"):
            fit(pictures(), config=recipe(), out=out)
        assert (out / orphan).exists()
    fit(pictures(), config=recipe(), out=out)
    assert not (out / orphan).exists()
    assert (out / mine).read_text() == "x"


def test_a_lock_file_that_names_a_living_process_without_holding_it_does_not_count(tmp_path: Path) -> None:
    """Process numbers come round again; only the kernel's lock counts."""
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").write_text(f"{os.getppid()}\n")
    fit(pictures(), config=recipe(), out=out)


def test_a_folder_that_holds_a_run_is_refused_unless_told(tmp_path: Path) -> None:
    done, begun = tmp_path / "done", tmp_path / "begun"
    first = fit(pictures(), config=recipe(), out=done)
    interrupt(pictures(), begun, at=2)
    for out in (done, begun):
        before = names(out)
        with pytest.raises(UsageError, match=r"already holds a run.*--resume.*--overwrite"):
            fit(pictures(), config=recipe(), out=out)
        assert names(out) == before
        other = fit(pictures(), config=recipe(seed=1), out=out, overwrite=True)
        assert tensor_hashes(read_run(out)) == tensor_hashes(other) != tensor_hashes(first)
        assert not (out / "checkpoints").exists()


@cases("wishes", [{}, {"resume": True}, {"overwrite": True}])
@cases("thing", ["thesis.tex", "README.md", "config.json", "model.safetensors", ".git"])
def test_a_folder_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, thing: str, wishes: dict[str, bool]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / thing).write_text("years of work")
    with pytest.raises(UsageError, match=rf'is not a run folder: it holds "{thing}"'):
        fit(pictures(), config=recipe(), out=out, **wishes)
    assert names(out) == [thing]
    assert (out / thing).read_text() == "years of work"


@pytest.mark.parametrize("what", ["is a file", "lies under a file", "is read-only"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "file").write_text("x")
        (folder / "locked").mkdir(mode=0o555)
        goal = {"is a file": "file", "lies under a file": "file/run", "is read-only": "locked"}[what]
        kind = DiskError if what == "is read-only" else UsageError
        with unprivileged(), pytest.raises(kind) as error:
            fit(pictures(), config=recipe(), out=folder / goal, on_epoch=lambda row: pytest.fail("it trained"))
        assert str(folder / goal) in str(error.value)
        assert error.value.exit_code == (4 if what == "is read-only" else 2)
        assert names(folder) == ["file", "locked"]


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom permissions bind, where the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_the_run_that_is_replaced_stays_whole_until_the_new_one_is(tmp_path: Path) -> None:
    out, kept = tmp_path / "run", tmp_path / "run" / "replaced"
    first = fit(pictures(), config=recipe(), out=out)
    (out / "evaluation.json").write_text("{}")
    with pytest.raises(NonFiniteError):
        fit(pictures(), config=recipe(lr=1e30), out=out, overwrite=True)
    assert tensor_hashes(read_run(kept)) == tensor_hashes(first)
    assert (kept / "evaluation.json").read_text() == "{}" and not (out / "evaluation.json").exists()
    with pytest.raises(UsageError, match=r"the run that was there before is whole in .*replaced"):
        read_run(out)
    interrupt(pictures(), out, at=2, overwrite=True, resume=False)  # a second try, stopped on its way
    assert tensor_hashes(read_run(kept)) == tensor_hashes(first)
    other = fit(pictures(), config=recipe(), out=out, resume=True)
    assert tensor_hashes(read_run(out)) == tensor_hashes(other)
    assert not kept.exists()


def test_a_file_system_without_links_has_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object, **more: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    first = fit(pictures(), config=recipe(), out=tmp_path)
    with pytest.raises(NonFiniteError):
        fit(pictures(), config=recipe(lr=1e30), out=tmp_path, overwrite=True)
    assert tensor_hashes(read_run(tmp_path / "replaced")) == tensor_hashes(first)


def test_something_else_of_that_name_is_left_alone(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path)
    (tmp_path / "replaced").mkdir()
    (tmp_path / "replaced" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match='"replaced" that provnet did not write'):
        fit(pictures(), config=recipe(), out=tmp_path, overwrite=True)
    assert (tmp_path / "replaced" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("at", range(6))
def test_stopped_while_it_is_put_aside_the_run_is_whole_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    first = fit(pictures(), config=recipe(), out=tmp_path)
    link, calls = os.link, iter(range(100))

    def stopped(source: str, goal: str) -> None:
        if next(calls) == at:
            raise KeyboardInterrupt
        link(source, goal)

    with monkeypatch.context() as patch:
        patch.setattr("os.link", stopped)
        with pytest.raises(KeyboardInterrupt):
            fit(pictures(), config=recipe(seed=1), out=tmp_path, overwrite=True)
    assert tensor_hashes(read_run(tmp_path)) == tensor_hashes(first)
    assert not (tmp_path / "replaced").exists()


def test_what_is_not_of_the_replaced_run_stays(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = fit(pictures(), config=recipe(), out=out)
    (out / "replaced").mkdir()
    (out / "replaced" / "photo.png").write_bytes(b"mine")
    run_folder.clean(out)  # as samples withheld, or a resumed run, do
    assert (out / "replaced" / "photo.png").read_bytes() == b"mine"
    (out / "replaced" / "photo.png").unlink()
    with pytest.raises(NonFiniteError):
        fit(pictures(), config=recipe(lr=1e30), out=out, overwrite=True)
    (out / "replaced" / "debugged").mkdir()
    (out / "replaced" / "debugged" / "decisions.csv").write_text("mine")
    fit(pictures(), config=recipe(), out=out)
    assert names(out / "replaced") == ["debugged", "debugged/decisions.csv"]
    parent = tmp_path / "runs"
    write_run(run, parent / "replaced")
    with pytest.raises(UsageError, match='it holds "replaced" that provnet did not write'):
        fit(pictures(), config=recipe(), out=parent)


@pytest.mark.parametrize("gone", range(len(run_folder.OURS)))
def test_a_replaced_run_whose_removal_was_killed_keeps_nobody_out(tmp_path: Path, gone: int) -> None:
    fit(pictures(), config=recipe(epochs=1), out=tmp_path)
    with pytest.raises(NonFiniteError):
        fit(pictures(), config=recipe(epochs=1, lr=1e30), out=tmp_path, overwrite=True)
    for name in run_folder.OURS[:gone]:
        run_folder.remove(tmp_path / "replaced" / name)
    run_folder.refuse_strangers(tmp_path, overwrite=True)
    run_folder.clean(tmp_path)
    assert not (tmp_path / "replaced").exists()


def test_links_in_place_of_files_are_followed(tmp_path: Path) -> None:
    first = fit(pictures(), config=recipe(), out=tmp_path / "run")
    for path in [one for one in (tmp_path / "run").iterdir() if one.name in run_folder.OURS]:
        path.rename(tmp_path / path.name)
        path.symlink_to(Path("..") / path.name)
    with pytest.raises(NonFiniteError):
        fit(pictures(), config=recipe(lr=1e30), out=tmp_path / "run", overwrite=True)
    assert tensor_hashes(read_run(tmp_path / "run" / "replaced")) == tensor_hashes(first)
