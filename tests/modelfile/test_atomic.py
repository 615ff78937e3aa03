"""Writing at once or not at all: one file, a folder, and a run, failing at every single step."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from provnet import atomic
from provnet.errors import DiskError, ProvnetError, UsageError
from provnet.modelfile import Run, has_run, prepare_run_folder, read_run, write_run
from tests.counts import count, grows

from .faults import Faults, KilledError
from .made import make_run, weights_digest

GONE = 999_999_999  # a process number that no system gives


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def steps_of(action: Callable[[], object]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, at=None)
        action()
        return faults.steps


def test_write_bytes_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    for content in (b"one", b"", b"three" * 1000):
        atomic.write_bytes(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert names(tmp_path) == ["file"]


def test_write_bytes_makes_the_folders_it_needs(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a" / "b" / "file", b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


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
    with pytest.raises(UsageError, match="exists already"):
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


@pytest.mark.parametrize(
    ("number", "kind", "code", "words"),
    [
        (errno.ENOSPC, DiskError, 4, r"disk full writing .*: needs 0\.0 MB, [\d,.]+ MB free"),
        (errno.EDQUOT, DiskError, 4, "disk full"),
        (errno.EFBIG, DiskError, 4, "disk full"),
        (errno.EIO, DiskError, 4, "cannot write"),
        (errno.EACCES, UsageError, 2, "choose a folder that you may write to"),
        (errno.EROFS, UsageError, 2, "Read-only file system"),
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


@pytest.fixture(scope="module")
def old() -> Run:
    return make_run("class-conditional", seed=1)


@pytest.fixture(scope="module")
def new() -> Run:
    run = make_run("single", seed=2, n=9)  # another network, other samples, and no history
    return Run(run.network, run.config, run.samples)


def state(folder: Path, old: Run, new: Run) -> str:
    """`old` or `new`; anything else fails."""
    run = read_run(folder)
    for name, one in (("old", old), ("new", new)):
        if weights_digest(run) == weights_digest(one):
            assert run.samples.sample_ids == one.samples.sample_ids
            assert run.config == one.config
            assert (run.history is None) == (one.history is None)
            return name
    raise AssertionError("neither the old run nor the new one")


def test_a_run_killed_at_every_step_is_old_or_new(tmp_path: Path, old: Run, new: Run) -> None:
    write_run(old, tmp_path)
    (tmp_path / "log.jsonl").write_text("kept")
    total = steps_of(lambda: write_run(new, tmp_path))
    assert total > 25
    outcomes = []
    for step in range(total):
        write_run(old, tmp_path)  # also finishes what the last kill left
        assert names(tmp_path) == [
            "README.md", "config.json", "history.safetensors", "log.jsonl", "manifest.json", "model.safetensors",
            "samples.safetensors",
        ]  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, at=step)
            with pytest.raises(KilledError):
                write_run(new, tmp_path)
            assert faults.dead
        outcomes.append(state(tmp_path, old, new))
        assert (tmp_path / "log.jsonl").read_text() == "kept"
    change = outcomes.index("new")  # one moment, not two
    assert outcomes == ["old"] * change + ["new"] * (total - change)
    assert 5 < change < total - 5


@grows
def test_two_kills_in_a_row_are_no_worse(tmp_path: Path, old: Run, new: Run) -> None:
    write_run(old, tmp_path / "count")
    total = steps_of(lambda: write_run(new, tmp_path / "count"))
    for first in range(total - 12, total, count(4, 1)):
        for second in range(0, total, count(7, 3)):
            folder = tmp_path / f"{first}-{second}"
            write_run(old, folder)
            killed = []
            for run, step in ((new, first), (old, second)):
                with pytest.MonkeyPatch.context() as patch:
                    faults = Faults(patch, at=step)
                    with contextlib.suppress(KilledError):
                        write_run(run, folder)
                    killed.append(faults.dead)
            assert killed[0]  # the second writer may have fewer steps to go
            state(folder, old, new)


@grows
def test_the_first_run_killed_at_every_step_is_absent_or_whole(tmp_path: Path, new: Run) -> None:
    total = steps_of(lambda: write_run(new, tmp_path / "count"))
    seen = set()
    for step in range(0, total, count(3, 1)):
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step)
            with pytest.raises(KilledError):
                write_run(new, folder)
        seen.add(has_run(folder))
        if has_run(folder):
            assert weights_digest(read_run(folder)) == weights_digest(new)
        else:
            with pytest.raises(UsageError):
                read_run(folder)
        write_run(new, folder)
        assert len(names(folder)) == 5
    assert seen == {True, False}


@grows
def test_a_full_disk_at_every_step_leaves_old_or_new_and_no_temporary(tmp_path: Path, old: Run, new: Run) -> None:
    write_run(old, tmp_path)
    total = steps_of(lambda: write_run(new, tmp_path))
    refusals, steps = 0, range(0, total, count(3, 1))
    for step in steps:
        write_run(old, tmp_path)
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at=step, errno=errno.ENOSPC)
            try:
                write_run(new, tmp_path)
            except DiskError as error:
                assert "disk full writing" in str(error)
                refusals += 1
        state(tmp_path, old, new)
        # Where the removal itself failed, the temporary stays for the next sweep; nothing else may.
        assert len([name for name in names(tmp_path) if name.startswith(".tmp")]) <= 1
    assert refusals > len(steps) // 2
    write_run(old, tmp_path)
    assert not [name for name in names(tmp_path) if name.startswith((".tmp", ".next"))]


def in_a_process(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    code = f"from tests.modelfile.made import *\nfrom provnet.modelfile import *\nimport os, sys\n{script}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=False, capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip


@grows
def test_a_process_that_dies_in_the_middle_leaves_old_or_new(tmp_path: Path) -> None:
    """The same with real processes that end at once, without any clean-up, at each rename and each fsync."""
    script = """
folder, old, new, step = sys.argv[1], make_run(seed=1), make_run(seed=2), 0
while True:
    write_run(old, folder)
    child = os.fork()
    if child == 0:
        left = [step]
        def dying(real):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return real(*args, **kwargs)
            return call
        os.replace, os.fsync = dying(os.replace), dying(os.fsync)
        write_run(new, folder)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(step, code, [weights_digest(r) for r in (old, new)].index(weights_digest(read_run(folder))))
    if code == 0:
        break
    step += int(sys.argv[2])
"""
    done = in_a_process(script, tmp_path / "run", count(3, 1))
    assert done.returncode == 0, done.stderr
    rows = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(rows) > count(5, 15)
    assert [row[1] for row in rows] == [9] * (len(rows) - 1) + [0]
    assert sorted(row[2] for row in rows) == [row[2] for row in rows]
    assert {row[2] for row in rows} == {0, 1}


def test_a_file_size_limit_of_the_system_is_a_full_disk(tmp_path: Path, old: Run) -> None:
    write_run(old, tmp_path)
    script = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_run(make_run(seed=2), sys.argv[1])
except Exception as error:
    print(error.exit_code, error)
"""
    done = in_a_process(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 disk full writing"), done.stdout
    assert weights_digest(read_run(tmp_path)) == weights_digest(old)
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_a_reader_that_meets_a_writer_gets_one_of_the_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make_run(seed=1), make_run(seed=2)
    write_run(old, tmp_path)
    from provnet import fileset

    real, opened = fileset.open_checked, []

    def meanwhile(path: Path, **kwargs: int) -> object:
        opened.append(path)
        if len(opened) == 3:  # the manifest and one file have been read
            write_run(new, tmp_path)
        return real(path, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(fileset, "open_checked", meanwhile)
    assert weights_digest(read_run(tmp_path)) == weights_digest(new)


def test_a_rotten_staged_set_does_not_stand_in_the_way_of_a_new_run(tmp_path: Path) -> None:
    write_run(make_run(seed=1), tmp_path)
    (tmp_path / ".next").mkdir()
    (tmp_path / ".next" / "manifest.json").write_bytes(b"{}")
    new = make_run(seed=2)
    write_run(new, tmp_path)
    assert weights_digest(read_run(tmp_path)) == weights_digest(new)
    assert ".next" not in names(tmp_path)


def test_every_file_of_a_run_may_be_read_by_those_the_umask_allows(tmp_path: Path, new: Run) -> None:
    write_run(new, tmp_path / "run")
    (tmp_path / "plain").touch()
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "run").iterdir()}
    assert set(modes.values()) == {(tmp_path / "plain").stat().st_mode}, modes


def test_files_of_somebody_else_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("my project")
    for action in (prepare_run_folder, lambda folder: write_run(make_run(), folder)):
        with pytest.raises(UsageError, match=r"README\.md that provnet did not write"):
            action(tmp_path)
    assert names(tmp_path) == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "my project"


def test_a_file_in_place_of_the_folder_is_a_wrong_argument(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="cannot write"):
            write_run(make_run(), folder)
