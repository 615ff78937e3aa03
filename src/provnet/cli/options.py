"""Options that several commands share, and values of options taken apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from provnet.errors import UsageError, one_of


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
