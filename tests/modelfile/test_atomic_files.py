"""Writing at once or not at all: one file or a folder, failing at every single step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from provnet.base import atomic
from provnet.base.errors import DiskError, ProvnetError, UsageError
from tests.cases import cases
from tests.modelfile.steps import names, steps_of

from .faults import Faults, KilledError

GONE = 999_999_999  # a process number that no system gives


def test_write_bytes_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    for content in (b"one", b"", b"three" * 1000):
        atomic.write_bytes(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert names(tmp_path) == ["file"]


def test_write_bytes_makes_the_folders_it_needs(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a" / "b" / "file", b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


def test_a_full_disk_leaves_no_folder_that_was_made_for_the_file(tmp_path: Path) -> None:
    for step in range(4):
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step, errno=errno.ENOSPC)
            with pytest.raises(DiskError, match="disk full"):
                atomic.write_bytes(tmp_path / "a" / "b" / "file", b"x")
        assert names(tmp_path) == []


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real, **k: (seen.append(_n), _r(*a, **k))[1])
    atomic.write_bytes(tmp_path / "file", b"x")
    assert seen == ["write", "fsync", "replace", "fsync"]


def test_one_file_killed_at_every_step_is_old_or_new(tmp_path: Path) -> None:
    goal = tmp_path / "file"
    total = steps_of(lambda: atomic.write_bytes(goal, b"old"))
    assert total >= 5
    outcomes = set()
    for step in range(total):
        atomic.write_bytes(goal, b"old")
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step)
            with pytest.raises(KilledError):
                atomic.write_bytes(goal, b"new" * 100)
        outcomes.add(goal.read_bytes())
        atomic.sweep(tmp_path)
        assert names(tmp_path) == ["file"]
    assert outcomes == {b"old", b"new" * 100}


def test_a_folder_killed_at_every_step_is_whole_or_absent(tmp_path: Path) -> None:
    files: dict[str, atomic.Content] = {"a": b"1" * 100, "b": lambda path: path.write_bytes(b"2") and None}
    total = steps_of(lambda: atomic.write_files(tmp_path / "first", files))
    outcomes = set()
    for step in range(total):
        goal = tmp_path / f"goal-{step}"
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step)
            with pytest.raises(KilledError):
                atomic.write_files(goal, files)
        outcomes.add(goal.exists())
        if goal.exists():
            assert names(goal) == ["a", "b"]
            assert (goal / "a").read_bytes() == b"1" * 100
    atomic.sweep(tmp_path)
    assert not [name for name in names(tmp_path) if name.startswith(".tmp")]
    assert outcomes == {True, False}


def test_a_folder_that_exists_is_replaced_only_when_asked(tmp_path: Path) -> None:
    atomic.write_files(tmp_path / "f", {"a": b"1"})
    with pytest.raises(UsageError, match="already exists"):
        atomic.write_files(tmp_path / "f", {"b": b"2"})
    atomic.write_files(tmp_path / "f", {"b": b"2"}, replace=True)
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["b"]


def test_sweep_takes_orphans_of_ours_and_nothing_else(tmp_path: Path) -> None:
    living = os.getppid()
    keep = [
        "model.safetensors", ".tmp", ".tmp-x", f".tmp-{living}-0123abcd-file", ".tmp-12-nothex00-a", "tmp-1-0123abcd-a",
        f".tmp-{GONE}-0123abcd", ".next", "x.tmp",
    ]  # fmt: skip
    orphans = [f".tmp-{GONE}-0123abcd-file", f".tmp-{os.getpid()}-0123abcd-a\nb", f".tmp-{GONE}-0123abcd-folder"]
    for name in keep + orphans[:-1]:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / orphans[-1]).mkdir()
    (tmp_path / orphans[-1] / "inside").write_bytes(b"")
    assert atomic.sweep(tmp_path) == sorted(orphans)
    assert names(tmp_path) == sorted(keep)


def test_sweep_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_bytes(b"x")
    (tmp_path / f".tmp-{GONE}-0123abcd-link").symlink_to(tmp_path / "precious")
    atomic.sweep(tmp_path)
    assert names(tmp_path) == ["precious"]
    assert names(tmp_path / "precious") == ["file"]


def test_sweep_leaves_a_temporary_that_is_being_written(tmp_path: Path) -> None:
    def writer(path: Path) -> None:
        path.write_bytes(b"x")
        assert atomic.sweep(tmp_path) == []

    atomic.write_files(tmp_path / "f", {"a": writer})
    assert names(tmp_path / "f") == ["a"]


@cases(
    ("number", "kind", "code", "words"),
    [
        (errno.ENOSPC, DiskError, 4, r"disk full writing .*: needs 3 B, [\d,.]+ [kMG]B free"),
        (errno.EDQUOT, DiskError, 4, "disk full"),
        (errno.EFBIG, DiskError, 4, "disk full"),
        (errno.EIO, DiskError, 4, "cannot write"),
        (errno.EACCES, DiskError, 4, "choose a folder that you may write to"),
        (errno.EROFS, DiskError, 4, "Read-only file system"),
        (errno.ENAMETOOLONG, UsageError, 2, "choose another name"),
    ],
)
def test_what_the_system_refuses_is_one_clear_line(
    tmp_path: Path, number: int, kind: type[ProvnetError], code: int, words: str
) -> None:
    atomic.write_bytes(tmp_path / "file", b"old")
    for step in range(1, 5):  # opening, writing, forcing to the disk, renaming
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step, errno=number)
            with pytest.raises(kind, match=words) as caught:
                atomic.write_bytes(tmp_path / "file", b"new")
        assert caught.value.exit_code == code
        assert names(tmp_path) == ["file"]
        assert (tmp_path / "file").read_bytes() == b"old"
