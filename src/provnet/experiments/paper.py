"""The paper's numbers (paper.csv), and how ours stand beside them."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from provnet.experiments.records import Figure
from provnet.stats import Interval, wilson

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
