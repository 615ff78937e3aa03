"""What a command says: results on stdout, everything else on stderr, names of others made harmless."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from provnet.base.errors import UsageError
from provnet.base.files import shown
from provnet.base.processes import rank
from provnet.report.records import percent

BACKBONE: ContextVar[Any] = ContextVar("backbone", default=None)  # the module that `main` was given, and functions


def console(*, stderr: bool = False) -> Console:
    """Where text goes: as wide as the terminal, or wide enough for a file that nobody wants to see broken at 80."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def is_first_process() -> bool:
    """Whether this process speaks: of several that train together only the first one does.

    >>> is_first_process()
    True
    """
    return rank() == 0


def say(text: str = "", style: str = "") -> None:
    """One line of result on stdout; control characters are escaped, long lines are not broken."""
    if is_first_process():
        console().print(Text(shown(text), style=style), soft_wrap=True)


def show(thing: Any) -> None:
    """A table or a text of rich on stdout."""
    if is_first_process():
        console().print(thing)


def note(text: str, kind: str = "note") -> None:
    """One line beside the result, on stderr."""
    if is_first_process():
        _line(text, kind)


def error_line(text: str) -> None:
    """The one line of an error, on stderr, from every process."""
    _line(text.strip(), "error")


def _line(text: str, kind: str) -> None:
    styles = {"note": "cyan", "warning": "yellow", "error": "bold red"}
    console(stderr=True).print(Text.assemble((f"{kind}: ", styles[kind]), shown(text)), soft_wrap=True)


def emit_json(value: Any) -> None:
    """The whole of stdout as one JSON document, ASCII so that any name survives any terminal.

    >>> emit_json({"a": 1})
    {
      "a": 1
    }
    """
    if is_first_process():
        sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def facts(rows: Iterable[tuple[str, str]], title: str | None = None) -> Table:
    """Two columns, name and value, without lines."""
    table = Table.grid(padding=(0, 2))
    table.title = None if title is None else Text(title, style="bold")
    table.title_justify = "left"
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(shown(name), shown(value))
    return table


def interval_cells(figure: Mapping[str, Any], digits: int = 2) -> tuple[str, str, str]:
    """Value, 95 % interval and n of a rate, as people read them.

    >>> interval_cells({"value": 0.95, "n": 100, "low": 0.8882, "high": 0.9785})
    ('95.00 %', '88.82 to 97.85', '100')
    """
    value, low, high, n = (figure[part] for part in ("value", "low", "high", "n"))
    if value is None:
        return "-", "nothing measured", "0"
    ends = ["-" if end is None else percent(end, digits).removesuffix(" %") for end in (low, high)]
    return percent(value, digits), " to ".join(ends), "-" if n is None else f"{n:,}"


def refuse_file(out: Path | None) -> None:
    """Refuse a file where --out names a folder; the folder may be there or not."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; --out names a folder")
