"""What an experiment is made of: cells that are run once a seed, and how large a run is."""

from __future__ import annotations

import csv
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from provnet.base.errors import UsageError
from provnet.base.stats import Interval, wilson

HEADINGS = ("Claim", "Command", "Expected", "Device", "Time")
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

    @property
    def full(self) -> bool:
        """Whether this is the size of the paper."""
        return self.name == "full"


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

    Attributes:
        name: unique within its experiment, from the large to the small: `mnist/single-0`.
        config: everything that decides the result beside the seed; a kept result of another config is not used.
        run: does it.
        seconds: about how long it takes on an H200 at full scale, for the order of work and the time left.
        missing: says what is not there (data, a package) and how to get it, or None.
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
class Experiment:
    """A table or figure of the paper, or of ours.

    `about` is the docstring of its file: a title, then claim, command, expected result, device and time. `cells` gives
    the cells of a scale; `section` the lines of Markdown and `figures` PNGs, both made of kept results alone. The
    figure under "" becomes NAME.png, one under "x" NAME-x.png. `compared` are more lines, where its results are laid
    beside those of the experiment `other`; `headline` its key figures, where rows of claims.csv do not say them.
    """

    name: str
    about: str
    cells: Callable[[Scale], list[Cell]]
    section: Callable[[Results], list[str]]
    figures: Callable[[Results], dict[str, bytes]]
    other: str | None = None
    compared: Callable[[Results, Results], list[str]] = lambda results, other: []
    headline: Callable[[Results], str] = lambda results: ""

    @property
    def title(self) -> str:
        """The first line of the file."""
        return self.about.strip().splitlines()[0].rstrip(".")

    @property
    def settings(self) -> list[str]:
        """How it was done: what follows the headings, a paragraph each with a blank line after it."""
        last = self.about.split("\nTime: ")[-1].split("\n\n")[1:]
        return [line for text in last if text.strip() for line in (text.strip(), "")]

    @property
    def headings(self) -> dict[str, str]:
        """Claim, Command, Expected, Device and Time, each as one line."""
        return headings(self.about)


def headings(about: str) -> dict[str, str]:
    """The paragraphs of a docstring that begin with one of HEADINGS.

    >>> headings("A title.\\n\\nClaim: it works,\\n    always.\\nCommand: x\\n\\nMore.")
    {'Claim': 'it works, always.', 'Command': 'x'}
    """
    parts = re.split(rf"^({'|'.join(HEADINGS)}): ", about, flags=re.MULTILINE)[1:]
    first = [text.split("\n\n")[0] for text in parts[1::2]]
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], first, strict=True)}


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


MET, WITHIN, MISSED, NOT_RUN, NOT_COMPARED = "met", "within the interval", "missed", "not run", "not compared"


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


@dataclass(frozen=True)
class Standing:
    """Our result beside a number of the paper.

    Attributes:
        mean, std: over seeds; std is None for one seed.
        seeds: how many.
        n: samples that each rate was counted on.
        interval: 95 % Wilson interval of the mean on n samples: how sure one such test set can be.
        verdict: met (at or above the paper), within the interval (below by no more than the half-width of the Wilson
            interval of the paper's number on n samples), missed, not run, or not compared (not at full scale).
        won: strictly above the paper.
    """

    mean: float | None
    std: float | None
    seeds: int
    n: int
    interval: Interval
    verdict: str
    won: bool = False


@cache
def printed(table: str = "2") -> tuple[Printed, ...]:
    """All numbers of a table, in its order.

    >>> len(printed("2")), printed("2")[0]
    (50, Printed(data='mnist', setting='class-conditional', figure='class_accuracy', text='99.08'))
    """
    with Path(__file__).with_name("paper.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    return tuple(Printed(row["data"], row["setting"], row["figure"], row["percent"]) for row in rows)


def standing(paper: float | None, ours: Iterable[Figure], *, compared: bool = True) -> Standing:
    """How the rates of some seeds stand beside a number of the paper.

    >>> standing(0.9908, [(0.991, 10_000), (0.990, 10_000)]).verdict
    'within the interval'
    """
    found = list(ours)
    if not found:
        return Standing(None, None, 0, 0, wilson(0, 0), NOT_RUN)
    values = [value for value, _ in found]
    n = min(count for _, count in found)
    mean = statistics.fmean(values)
    std = statistics.stdev(values) if len(values) > 1 else None
    interval = wilson(min(mean * n, n), n)
    if paper is None or not compared:
        return Standing(mean, std, len(found), n, interval, NOT_COMPARED)
    verdict = MET if mean >= paper else WITHIN if mean >= paper - half_width(paper, n) else MISSED
    return Standing(mean, std, len(found), n, interval, verdict, mean > paper)


def half_width(rate: float, n: int) -> float:
    """Half of the Wilson interval of a rate on n samples.

    >>> round(half_width(0.9908, 10_000), 5)
    0.00188
    """
    found = wilson(rate * n, n)
    assert found.low is not None and found.high is not None
    return (found.high - found.low) / 2
