"""What a command says: results on stdout, everything else on stderr, names of others made harmless."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from provnet.base.errors import UsageError, one_of
from provnet.base.files import shown
from provnet.base.processes import rank


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


def note_undrawn(names: Sequence[str], instead: str) -> None:
    """Names that a drawn picture cannot show are told apart elsewhere."""
    from provnet.report.sheet import undrawn

    if count := undrawn(names):
        what = "1 class name has" if count == 1 else f"{count:,} class names have"
        note(f"{what} signs that no font here can draw; the picture has ? for them, {instead}")


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
    from provnet.report.text import percent

    value, low, high, n = (figure[part] for part in ("value", "low", "high", "n"))
    if value is None:
        return "-", "nothing measured", "0"
    ends = ["-" if end is None else percent(end, digits).removesuffix(" %") for end in (low, high)]
    return percent(value, digits), " to ".join(ends), "-" if n is None else f"{n:,}"


def folder_name(text: str | Path) -> Path:
    """The folder that --out names; an empty name, which would mean the folder that one is in, is refused.

    >>> folder_name("runs/1").parts
    ('runs', '1')
    """
    if text == "":
        raise typer.BadParameter("the name of the folder is empty; give one, or . for the folder that you are in")
    return Path(text)


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as train wrote it.", show_default=False)]
DataDir = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder that data set names resolve under. Default: $PROVNET_DATA, else ./data."),
]
TrainingData = Annotated[
    str | None, typer.Option(metavar="DATA", help="Where the training data are now. Default: where they were.")
]
NewRun = Annotated[
    Path,
    typer.Option("--out", "-o", parser=folder_name, metavar="RUN", help="Folder of the run.", show_default=False),
]
BatchSize = Annotated[
    int | None, typer.Option(help="2 to 1,000,000. Default: by preset.", rich_help_panel="Network and recipe")
]
Device = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda", help="Where to compute. Default: auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]


def parse_size(text: str | None) -> tuple[int, int] | None:
    """`64` or `64x48` (height x width).

    >>> parse_size("64"), parse_size("64x48")
    ((64, 64), (64, 48))
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isascii() and side.isdigit() for side in sides):
        raise UsageError(f'--size takes a number of pixels or HEIGHTxWIDTH, such as 64 or 64x48; got "{text}"')
    return int(sides[0]), int(sides[-1])


def check_seed(seed: int) -> int:
    """A seed in the range that training takes too.

    >>> check_seed(7)
    7
    """
    if not 0 <= seed < 2**63:
        raise UsageError(f"--seed must lie in 0..2^63-1, got {seed}")
    return seed


def refuse_file(out: Path | None) -> None:
    """Refuse a file where --out names a folder; the folder may be there or not."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; --out names a folder")


def pick_device(name: str | None) -> str:
    """`cpu` or `cuda`, whatever was asked for."""
    import torch

    from provnet.training.setup import DEVICES

    wanted = one_of("device", name or "auto", DEVICES)
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError('device "cuda" was asked for, but no GPU is visible; use --device cpu')
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
