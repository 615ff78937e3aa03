"""What an experiment is made of: cells that are run once a seed, and how large a run is."""

from __future__ import annotations

import csv
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from provnet.base.errors import UsageError

Told = dict[str, Any]  # what a cell found: JSON values; `figures` holds name -> [rate, n] or name -> number
Figure = tuple[float, int]  # a rate and how many samples it was counted on; n = 0 for what is no rate


class OutOfTimeError(Exception):
    """The bound on the seconds of this call was reached within a cell."""


@dataclass(frozen=True)
class Scale:
    """How large a run is. `tiny` and `small` show that everything works; only `full` is compared with the paper."""

    name: str
    train: int | None = None  # at most so many training samples
    test: int | None = None
    epochs: int | None = None  # None: as the recipe says
    share: float = 1.0  # about how much of the time of the whole it takes
    seeds: int = 3  # how many, where nobody says


@dataclass(frozen=True)
class Job:
    """One cell with one seed, and where it runs."""

    scale: Scale
    seed: int
    data_dir: str | None = None
    device: str = "auto"
    networks: Path | None = None  # a shelf of trained networks, see `shelf`
    deadline: float = float("inf")  # of time.monotonic()
    on_progress: Callable[[float], None] = lambda share: None

    def tell(self, share: float) -> None:
        """Say which share of the cell is done; past the deadline the cell ends here, without a result."""
        self.on_progress(share)
        if time.monotonic() > self.deadline:
            raise OutOfTimeError


@dataclass(frozen=True)
class Cell:
    """A part of an experiment that is run, kept and drawn by itself.

    Names go from the large to the small: `mnist/single-0`. `config` is everything that decides the result beside the
    seed; a kept result of another one is not used. `seconds` is about how long it takes on an H200 at full scale.
    `missing` says what is not there (data, a package) and how to get it, or None.
    """

    name: str
    config: Mapping[str, Any]
    run: Callable[[Job], Told]
    seconds: float = 60.0
    missing: Callable[[str | None], str | None] = lambda data_dir: None


@dataclass(frozen=True)
class Result:
    """What one cell gave with one seed."""

    figures: Mapping[str, Figure]
    told: Told = field(default_factory=dict)  # seconds, parameters and whatever else the cell says
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """All kept results of an experiment: cell -> seed -> result; `absent` says why a cell could not be run."""

    name: str
    scale: str
    cells: Mapping[str, Mapping[int, Result]]
    configs: Mapping[str, Mapping[str, Any]]
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the page of an experiment, once for each data set: which figure of which cell stands where.

    `cell` and `figure` are templates of {data}, {row} and {column}; `brief` leaves the intervals out.
    """

    data: Mapping[str, str]
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    head: str = ""
    cell: str = "{data}/{row}"
    figure: str = "{column}"
    brief: bool = False


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or of ours.

    `cells` gives the cells of a scale; `figures` PNGs, made of kept results alone: the one under "" becomes NAME.png,
    one under "x" NAME-x.png. `read` adds figures that are computed from what a cell kept; `printed` is its table in
    paper.csv.
    """

    name: str
    cells: Callable[[Scale], list[Cell]]
    figures: Callable[[Results], dict[str, bytes]]
    tables: tuple[Table, ...]
    read: Callable[[Result], Result] = lambda result: result
    printed: str = ""

    @property
    def prose(self) -> Mapping[str, str]:
        """What prose.toml says of it: title, claim, command, expected, device, time, settings, perhaps notes."""
        found: Mapping[str, str] = _prose()[self.name]
        return found

    @property
    def title(self) -> str:
        """The heading of its page."""
        return self.prose["title"]

    def measured(self, results: Results) -> Results:
        """The results with all figures of each cell: those kept, those computed by `read`, its size and its time."""

        def whole(kept: Result) -> Result:
            sizes = {"parameters": kept.told.get("parameters"), "seconds": kept.told.get("seconds", {}).get("all")}
            plain = {name: (float(value), 0) for name, value in sizes.items() if value is not None}
            one = self.read(kept)
            return replace(one, figures={**plain, **one.figures})

        cells = {cell: {seed: whole(one) for seed, one in seeds.items()} for cell, seeds in results.cells.items()}
        return replace(results, cells=cells)


@cache
def _prose() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("prose.toml").read_text("utf-8"))


def chosen(cells: list[Cell], only: list[str] | None) -> list[Cell]:
    """The cells that were asked for: one by its name, or all whose names begin with it up to a slash or a dash.

    >>> cells = [Cell(name, {}, lambda job: {}) for name in ("mnist/large-1", "mnist/large-1-again", "mnist/large-2")]
    >>> [len(chosen(cells, [name])) for name in ("mnist", "mnist/large", "mnist/large-1")]
    [3, 3, 1]
    """
    if not only:
        return cells
    names = [cell.name for cell in cells]
    meant: set[str] = set()
    for wish in only:
        found = [wish] if wish in names else [name for name in names if name.startswith((f"{wish}/", f"{wish}-"))]
        if not found:
            known = ", ".join(names)
            raise UsageError(f'no cell "{wish}" here; allowed: {known}, or the part of a name before a slash or a dash')
        meant.update(found)
    return [cell for cell in cells if cell.name in meant]


SCALES: dict[str, Scale] = {
    "tiny": Scale("tiny", train=100, test=50, epochs=1, share=0.01, seeds=1),
    "small": Scale("small", train=5_000, test=1_000, epochs=10, share=0.05),
    "full": Scale("full"),
}


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it."""

    data: str
    setting: str
    figure: str
    text: str

    @property
    def value(self) -> float:
        """As a share; 99.08 is 0.9908 to the last bit that a float has."""
        return float(Decimal(self.text) / 100)


@cache
def printed_numbers(table: str = "2") -> tuple[Printed, ...]:
    """All numbers of a table, in its order.

    >>> len(printed_numbers("2")), printed_numbers("2")[0]
    (50, Printed(data='mnist', setting='class-conditional', figure='class_accuracy', text='99.08'))
    """
    with Path(__file__).with_name("paper.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    return tuple(Printed(row["data"], row["setting"], row["figure"], row["percent"]) for row in rows)


@cache
def _remarks(experiment: str) -> dict[tuple[str, str, str], str]:
    with Path(__file__).with_name("remarks.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    return {(row["data"], row["setting"], row["figure"]): row["remark"] for row in rows}


def remarks(experiment: str, number: Printed, *, missed: bool = False) -> str:
    """All sentences of remarks.csv on a number; those on a whole data set only where it is missed."""
    known = _remarks(experiment)
    keys = [
        (number.data, number.setting, number.figure),
        (number.data, number.setting, "*"),
        (number.data, "*", number.figure),
        ("*", number.setting, number.figure),
    ]
    found = " ".join(known[key] for key in keys if key in known)
    return found or (known.get((number.data, "*", "*"), "") if missed else "")
