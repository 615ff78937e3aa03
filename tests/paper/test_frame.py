"""Cells are run once, resumed, bounded in time, and chosen by name."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import UsageError
from provnet_paper import frame
from provnet_paper.frame import EXPERIMENTS, Event, Plan, reproduce, waiting
from provnet_paper.records import Cell, Job, Told, chosen
from provnet_paper.store import read_results, results_file

from .made import swift

Log = list[tuple[str, int]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What the experiment `swift` has run."""
    found: Log = []
    monkeypatch.setitem(EXPERIMENTS, "swift", swift(found))
    return found


def plan(out: Path, **more: Any) -> Plan:
    return Plan("swift", "tiny", **{"seeds": 2, "out": out, **more})


def test_each_cell_is_run_once_a_seed_and_a_seed_is_finished_before_the_next(tmp_path: Path, log: Log) -> None:
    found = reproduce(plan(tmp_path))
    assert log == [(cell, seed) for seed in (0, 1) for cell in ("a/x", "a/y", "b")]
    assert {cell: sorted(seeds) for cell, seeds in found.cells.items()} == {"a/x": [0, 1], "a/y": [0, 1], "b": [0, 1]}
    assert found.cells["b"][1].figures == {"rate": (0.1, 10)}
    assert found.cells["b"][1].origin["source_sha256"]
    log.clear()
    assert reproduce(plan(tmp_path)) == found
    assert log == []
    reproduce(plan(tmp_path, seeds=3))
    assert log == [("a/x", 2), ("a/y", 2), ("b", 2)]


def test_the_one_file_alone_is_enough_to_go_on(tmp_path: Path, log: Log) -> None:
    reproduce(plan(tmp_path / "first"))
    there = results_file(tmp_path / "second", "swift", "tiny")
    there.parent.mkdir(parents=True)
    there.write_bytes(results_file(tmp_path / "first", "swift", "tiny").read_bytes())
    assert waiting(plan(tmp_path / "second")) == ([], {})


def test_a_changed_recipe_is_run_again(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(plan(tmp_path))
    log.clear()
    monkeypatch.setitem(EXPERIMENTS, "swift", swift(log, config=2))
    reproduce(plan(tmp_path, seeds=1))
    assert [cell for cell, _ in log] == ["a/x", "a/y", "b"]


def test_only_some_cells(tmp_path: Path, log: Log) -> None:
    reproduce(plan(tmp_path, seeds=1, only=("a",)))
    assert log == [("a/x", 0), ("a/y", 0)]
    with pytest.raises(UsageError, match='no cell "c" here; allowed: a/x, a/y, b'):
        reproduce(plan(tmp_path, only=("c",)))
    assert chosen([], None) == []


def test_what_is_absent_is_said_and_left_out(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "swift", swift(log, absent="get b from somewhere"))
    found = reproduce(plan(tmp_path, seeds=1))
    assert "b" not in found.cells
    assert found.absent == {"b": "get b from somewhere"}


def test_past_its_time_a_cell_ends_without_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(job: Job) -> Told:
        time.sleep(0.05)
        job.tell(0.5)
        return {"figures": {}}

    made = replace(swift([]), cells=lambda scale: [Cell("slow", {}, slow, seconds=0.01)])
    monkeypatch.setitem(EXPERIMENTS, "swift", made)
    events: list[Event] = []
    found = reproduce(plan(tmp_path, seeds=1, seconds=0.03), events.append)
    assert found.cells == {}
    assert [event.what for event in events] == ["doing", "doing", "stopped"]
    assert "slow" in reproduce(plan(tmp_path, seeds=1)).cells


def test_a_cell_for_which_there_is_no_time_is_not_begun(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "swift", swift(log, seconds=1e9))
    events: list[Event] = []
    reproduce(plan(tmp_path, seeds=1, seconds=60.0), events.append)
    assert log == []
    assert {event.what for event in events} == {"no time"}
    reproduce(plan(tmp_path, seeds=1))  # measured now, and swift
    log.clear()
    reproduce(plan(tmp_path, seeds=2, seconds=60.0))
    assert log == [("a/x", 1), ("a/y", 1), ("b", 1)]


def test_times_with_other_jobs_beside_do_not_count(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "swift", swift(log, seconds=1e9))
    reproduce(plan(tmp_path, seeds=1))
    alone, _ = waiting(plan(tmp_path, seeds=2))
    beside, _ = waiting(plan(tmp_path, seeds=2, jobs=3))
    assert all(one.seconds < 10 for one in alone)
    guessed, _ = waiting(plan(tmp_path / "other", seeds=1))
    assert {one.seconds for one in beside} == {3 * one.seconds for one in guessed}  # three on one device: all slower
    assert all(one.seconds > 10 for one in guessed)


def test_when_a_cell_ran_is_kept(tmp_path: Path, log: Log) -> None:
    before = time.time()
    found = reproduce(plan(tmp_path, seeds=1))
    for seeds in found.cells.values():
        begun, ended = seeds[0].told["at"]
        assert before - 1 <= begun <= ended <= time.time() + 1


def test_several_at_a_time_run_each_cell_once(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = lambda jobs, mp_context: ThreadPoolExecutor(jobs)  # noqa: E731  another process would not see `log`
    monkeypatch.setattr(frame, "ProcessPoolExecutor", threads)
    events: list[Event] = []
    found = reproduce(plan(tmp_path, jobs=2), events.append)
    assert sorted(log) == [(cell, seed) for cell in ("a/x", "a/y", "b") for seed in (0, 1)]
    assert found.cells == reproduce(plan(tmp_path)).cells
    assert sum(event.what == "done" for event in events) == 6
    begun = [event.what for event in events]
    assert all(begun[:n].count("doing") - begun[:n].count("done") <= 2 for n in range(len(begun) + 1))


def test_a_process_of_its_own_gives_the_same(tmp_path: Path) -> None:
    def run(out: Path, jobs: int) -> Any:
        cells = ("mnist/class-independent",)
        found = reproduce(Plan("table2-ours", "tiny", 1, cells, out=out, jobs=jobs, device="cpu"))
        return found.cells["mnist/class-independent"][0].figures

    assert run(tmp_path / "apart", 2) == run(tmp_path / "here", 1)


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"jobs": 0}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan(tmp_path, **wrong)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_fails_does_not_keep_the_others_from_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jobs: int
) -> None:
    def fails(job: Job) -> Told:
        raise RuntimeError("no memory")

    log: Log = []
    whole = swift(log)
    with_one = replace(whole, cells=lambda scale: [Cell("first", {}, fails, 0.01), *whole.cells(scale)])
    monkeypatch.setitem(EXPERIMENTS, "swift", with_one)
    monkeypatch.setattr(frame, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    with pytest.raises(RuntimeError, match="no memory") as error:
        reproduce(plan(tmp_path, seeds=1, jobs=jobs))
    assert "first with seed 0" in error.value.__notes__[0]
    assert caplog.messages == ["first with seed 0 failed, the other cells go on"]
    assert sorted(log) == [("a/x", 0), ("a/y", 0), ("b", 0)]
    assert sorted(read_results(results_file(tmp_path, "swift", "tiny")).cells) == ["a/x", "a/y", "b"]
