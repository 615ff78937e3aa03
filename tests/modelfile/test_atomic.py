"""Writing a run at once or not at all, failing at every single step."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provnet.base.errors import DiskError, UsageError
from provnet.runs.run import Run, has_run, prepare_run_folder, read_run, write_run
from tests.cases import cases
from tests.counts import count, grows
from tests.modelfile.steps import names, steps_of

from .faults import Faults, KilledError
from .made import make_run, weights_digest


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
    code = f"from tests.modelfile.made import *\nfrom provnet.runs.run import *\nimport os, sys\n{script}"
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
    from provnet.runs import fileset

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


@cases(
    "files",
    [
        ["manifest.json"],
        ["manifest.json", "README.md"],
        ["model.safetensors"],
        ["samples.safetensors", "config.json"],
        [".next/manifest.json"],
        [".next/build-manifest.json"],
    ],
    ids=" ".join,
)
def test_files_of_a_run_s_names_that_are_not_ours_stay(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"format_version": 1, "files": {}}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="that provnet did not write; choose another folder") as error:
        write_run(make_run(), tmp_path)
    assert all(name.split("/")[0] in str(error.value) for name in files)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_next_folder_of_somebody_else_beside_a_run_stays(tmp_path: Path) -> None:
    write_run(make_run(seed=1), tmp_path)
    (tmp_path / ".next").mkdir()
    (tmp_path / ".next" / "build.js").write_text("mine")
    with pytest.raises(UsageError, match=r"holds \.next that provnet did not write"):
        write_run(make_run(seed=2), tmp_path)
    assert (tmp_path / ".next" / "build.js").read_text() == "mine"


@pytest.mark.parametrize("damaged", ["manifest.json", "samples.safetensors"])
def test_a_damaged_run_of_ours_may_be_replaced(tmp_path: Path, damaged: str) -> None:
    write_run(make_run(seed=1), tmp_path)
    (tmp_path / damaged).write_bytes(b"{}")
    new = make_run(seed=2)
    write_run(new, tmp_path)
    assert weights_digest(read_run(tmp_path)) == weights_digest(new)


def test_a_file_in_place_of_the_folder_is_a_wrong_argument(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="cannot write"):
            write_run(make_run(), folder)
