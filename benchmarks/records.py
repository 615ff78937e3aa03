"""What the page of results is made of: sections of rows, and figures as cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from limits import NONE, Limit

Result = Any  # parsed JSON


@dataclass(frozen=True)
class Row:
    """One figure beside another, its bar and its limit; `value` is in the unit of the limit's value."""

    what: str
    ours: str
    other: str = ""
    ratio: str = ""
    bar: str = ""
    met: bool | None = None
    limit: Limit = NONE
    value: float | None = None


@dataclass(frozen=True)
class Section:
    """One run of one benchmark."""

    title: str
    words: str
    about: Result
    command: str
    rows: list[Row]


def share(found: Result) -> str:
    """A share with its interval and n.

    >>> share({"value": 0.9996, "low": 0.9994, "high": 0.9998, "n": 60_000})
    '99.96 % (99.94 to 99.98, n 60,000)'
    """
    low, high = 100 * found["low"], 100 * found["high"]
    return f"{100 * found['value']:.5g} % ({low:.5g} to {high:.5g}, n {found['n']:,})"


def at_least(what: str, found: Result, bar: float | None, other: str = "") -> Row:
    """A row of a share that shall reach its bar.

    >>> at_least("class", {"value": 0.5, "low": 0.4, "high": 0.6, "n": 100}, 0.9).met
    False
    """
    limit = Limit("100 %", 1.0)
    text, met = ("", None) if bar is None else (f"at least {100 * bar:.4g} %", found["value"] >= bar)
    return Row(what, share(found), other, "", text, met, limit, found["value"])


def at_most(what: str, value: float, bar: float | None, unit: str, limit: Limit = NONE) -> Row:
    """A row of seconds or gigabytes that shall stay under its bar; the limit's value is in the same unit.

    >>> at_most("time", 20.0, 30.0, "s").met
    True
    """
    text, met = ("", None) if bar is None else (f"under {bar:g} {unit}", value < bar)
    return Row(what, f"{value:.4g} {unit}", "", "", text, met, limit, value)
