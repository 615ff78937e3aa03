"""reproduce: run the cells of an experiment that are not kept yet, one after the other or several at a time.

EXPERIMENTS is what `provnet reproduce` knows by name. A new one is a file that ends with its EXPERIMENT, a line there
and its prose in prose.toml. A cell's `run(job)` returns JSON values; `figures` among them are name -> (rate, n), the
rest (curves, counts, times) is kept as it is. The paper's numbers go to paper.csv, its sentences and how each is tested
to claims.csv, remarks on single numbers to remarks.csv.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from provnet.base.errors import UsageError
from provnet_paper import (
    cost,
    debugging,
    embeddings,
    instance,
    membership,
    mixing,
    robustness,
    sharing,
    subsets,
    table2,
    vae,
)
from provnet_paper.records import SCALES, Cell, Experiment, Job, OutOfTimeError, Result, Results, chosen
from provnet_paper.store import free_memory, keep, kept_cells, origin, resolve_device, write_results

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        table2.EXPERIMENT,
        table2.OURS,
        *(room.EXPERIMENT for room in (cost, mixing, subsets, sharing, robustness)),
        *(room.EXPERIMENT for room in (membership, debugging, embeddings, vae, instance)),
    )
}


@dataclass(frozen=True)
class Plan:
    """What is to be run, and how."""

    name: str
    scale: str = "full"
    seeds: int = 3
    only: tuple[str, ...] = ()
    data_dir: str | None = None
    device: str = "auto"
    out: Path = Path("results")
    jobs: int = 1
    seconds: float | None = None
    networks: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("jobs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise UsageError(f"seconds must be above 0, got {self.seconds}")


@dataclass(frozen=True)
class Event:
    """What happened: a cell goes on (`share` of it is done), is done, was stopped or not begun for lack of time.

    `took` are its seconds; of one that was not begun, those that it would take.
    """

    cell: str
    seed: int
    what: str  # doing, done, stopped, no time
    share: float = 0.0
    took: float = 0.0


@dataclass(frozen=True)
class Todo:
    """Work that is left, and about how many seconds it takes: as measured with another seed, else a guess."""

    cell: Cell
    seed: int
    seconds: float


Failed = tuple[Todo, Exception]
LOG = logging.getLogger(__name__)


def reproduce(plan: Plan, on_event: Callable[[Event], None] = lambda event: None) -> Results:
    """Run what is not kept yet within the time given; return all that is kept, also written to NAME.json.

    A cell that fails does not keep the others from being run; its error is raised at the end.
    """
    left, _ = waiting(plan)
    deadline = float("inf") if plan.seconds is None else time.monotonic() + plan.seconds
    failed = _run_all(plan, left, deadline, on_event)
    cells = EXPERIMENTS[plan.name].cells(SCALES[plan.scale])
    found = write_results(plan.out, plan.name, plan.scale, cells, _absent(plan, cells))
    if failed:
        names = ", ".join(f"{one.cell.name} with seed {one.seed}" for one, _ in failed)
        error = failed[0][1]
        error.add_note(f"failed: {names}; what else was asked for was run and is kept")
        raise error
    return found


def waiting(plan: Plan) -> tuple[list[Todo], dict[str, str]]:
    """What is left to run of what was asked for, and what cannot be run with the reason."""
    cells = chosen(EXPERIMENTS[plan.name].cells(SCALES[plan.scale]), list(plan.only))
    absent = _absent(plan, cells)
    return _todo(plan, [cell for cell in cells if cell.name not in absent]), absent


def _absent(plan: Plan, cells: list[Cell]) -> dict[str, str]:
    return {cell.name: why for cell in cells if (why := cell.missing(plan.data_dir)) is not None}


def _todo(plan: Plan, cells: list[Cell]) -> list[Todo]:
    """What is not kept, seed by seed; times of other seeds, with as many jobs, correct what a cell is said to take.

    Cells say what they take alone: where nothing is measured, several on one device are taken to be slower by as much.
    """
    there = kept_cells(plan.out, plan.name, plan.scale, cells)
    took = {
        name: [float(one.told["seconds"]["all"]) for one in seeds.values() if one.origin["jobs"] == plan.jobs]
        for name, seeds in there.items()
    }
    measured = {cell.name: max(took[cell.name]) for cell in cells if took[cell.name]}
    said = sum(cell.seconds for cell in cells if cell.name in measured)
    ratio = sum(measured.values()) / said if said else SCALES[plan.scale].share * plan.jobs
    return [
        Todo(cell, seed, measured.get(cell.name, cell.seconds * ratio))
        for seed in range(plan.seeds)
        for cell in cells
        if seed not in there[cell.name]
    ]


def run_cell(plan: Plan, cell_name: str, seed: int, deadline: float, on_progress: Callable[[float], None]) -> float:
    """Run one cell and keep its result; returns its seconds."""
    (cell,) = (one for one in EXPERIMENTS[plan.name].cells(SCALES[plan.scale]) if one.name == cell_name)
    job = Job(SCALES[plan.scale], seed, plan.data_dir, plan.device, plan.networks, deadline, on_progress)
    began, since = time.monotonic(), time.time()
    told = cell.run(job)
    took = time.monotonic() - began
    figures = told.pop("figures")
    told["at"] = [round(since, 1), round(since + took, 1)]
    told["seconds"] = {**told.get("seconds", {}), "all": round(took, 2)}
    result = Result(figures, told, {**origin(resolve_device(plan.device)), "jobs": plan.jobs})
    keep(plan.out, plan.name, plan.scale, cell, seed, result)
    free_memory()
    return took


def _run_all(plan: Plan, left: list[Todo], deadline: float, on_event: Callable[[Event], None]) -> list[Failed]:
    """One after the other here, or several in processes of their own: a small network does not fill a GPU."""
    failed: list[Failed] = []

    def end(one: Todo, get: Callable[[], float | None]) -> None:
        """Tell how a piece of work ended; at once, as the end of all may be hours away."""
        try:
            took = get()
        except Exception as error:  # hours of other cells may be left
            LOG.error("%s with seed %d failed, the other cells go on", one.cell.name, one.seed, exc_info=error)
            traceback.clear_frames(error.__traceback__)  # which hold the network
            failed.append((one, error))
            free_memory()
        else:
            on_event(Event(one.cell.name, one.seed, "stopped" if took is None else "done", 1.0, took or 0.0))

    def fitting() -> Iterator[Todo]:
        """The pieces of work for which there is time, by what is known or guessed."""
        for one in left:
            fits = time.monotonic() + one.seconds < deadline
            on_event(Event(one.cell.name, one.seed, *(("doing",) if fits else ("no time", 0.0, one.seconds))))
            if fits:
                yield one

    def remaining() -> Plan:
        """Clocks of processes differ: each counts for itself."""
        return plan if plan.seconds is None else replace(plan, seconds=max(deadline - time.monotonic(), 0.001))

    if plan.jobs == 1:
        for one in fitting():
            name, seed = one.cell.name, one.seed

            def tell(share: float, name: str = name, seed: int = seed) -> None:
                on_event(Event(name, seed, "doing", share))

            end(one, partial(_within, remaining(), name, seed, tell))
        return failed
    later = fitting()
    with ProcessPoolExecutor(plan.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[float | None], Todo] = {}

        def begin() -> None:
            if (one := next(later, None)) is not None:
                running[pool.submit(_within, remaining(), one.cell.name, one.seed)] = one

        for _ in range(plan.jobs):
            begin()
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                end(running.pop(future), future.result)
                begin()
    return failed


def _silent(share: float) -> None:
    """What a process of its own tells."""


def _within(plan: Plan, cell: str, seed: int, tell: Callable[[float], None] = _silent) -> float | None:
    """Run a cell in the seconds of the plan; None where the time was over."""
    deadline = float("inf") if plan.seconds is None else time.monotonic() + plan.seconds
    try:
        return run_cell(plan, cell, seed, deadline, tell)
    except OutOfTimeError:
        return None
