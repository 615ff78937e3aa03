"""The options of `provnet train` that open a run's data again as they were, for commands that are suggested."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provnet.data.imagedata import DataSpec


def path_word(path: os.PathLike[str] | str) -> str:
    """A path as a word of a command that can be pasted into a shell.

    >>> path_word("my runs/a"), path_word("-dash"), path_word("runs/a")
    ("'my runs/a'", './-dash', 'runs/a')
    """
    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def resumed(arguments: Sequence[str]) -> str:
    """The command that goes on with what these arguments of `provnet` began.

    >>> resumed(["train", "my data", "--out", "runs/a", "--overwrite"])
    "provnet train 'my data' --out runs/a --resume"
    """
    return shlex.join(["provnet", *(word for word in arguments if word not in ("--overwrite", "--resume")), "--resume"])


def data_options(spec: DataSpec, *, samples: bool = True) -> str:
    """What follows DATA, with a blank in front; without `samples` only how pictures are read, not which.

    >>> from provnet.data.imagedata import DataSpec
    >>> spec = DataSpec("pictures", "folder", options={"size": [64, 48], "limit": 100, "holdout": [[0.1, "train"]]})
    >>> data_options(spec), data_options(spec, samples=False)
    (' --size 64x48 --limit 100 --holdout 0.1', ' --size 64x48')
    """
    given = spec.options
    words: list[str] = []
    if given.get("size"):
        words += ["--size", "x".join(str(side) for side in given["size"])]
    if given.get("mode"):
        words += ["--mode", given["mode"]]
    if given.get("background", "white") != "white":
        words += ["--background", given["background"]]
    if given.get("frame") is not None:
        words += ["--frame", str(given["frame"])]
    if given.get("value_range"):
        words += ["--value-range", *(f"{value:g}" for value in given["value_range"])]
    if samples:
        if spec.data_dir is not None:
            words += ["--data-dir", spec.data_dir]
        if given.get("skip_bad"):
            words.append("--skip-bad")
        if given.get("limit"):
            words += ["--limit", str(given["limit"])]
        for share, side in given.get("holdout", ()):
            words += ["--holdout", f"{share:g}"] if side == "train" else []
    return "".join(f" {shlex.quote(word)}" for word in words)
