"""The run that --overwrite replaces: it stays whole, in a folder of its own, until the new one is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from provnet.atomic import explain_disk, in_use, remove, sync_folder, temporary_name
from provnet.modelfile import has_run, is_run
from provnet.training.lock import NAME as LOCK

NAME = "replaced"


def set_aside(folder: Path, names: Sequence[str]) -> None:
    """Put the run in a folder into `replaced` as well; what is there already of an earlier one makes room for it.

    Where no whole run is in the folder, `replaced` stays as it is: it holds the last one that was whole. Files are
    linked, and copied only where the file system has no links.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     set_aside(Path(folder), ["manifest.json"])
    ...     is_there(Path(folder))
    False
    """
    if not has_run(folder):
        return
    goal = folder / NAME
    temp = temporary_name(goal)
    with explain_disk(goal, 0), in_use(temp):
        try:
            temp.mkdir()
            for name in names:
                _twin(folder / name, temp / name)
            sync_folder(temp)
            drop(folder, names)
            temp.replace(goal)
            sync_folder(folder)
        finally:
            remove(temp)


def is_there(folder: Path) -> bool:
    """Whether a run that is being replaced is kept in this folder."""
    return has_run(folder / NAME)


def is_strange(place: Path) -> bool:
    """Whether something of this name is not what `set_aside` makes."""
    return place.is_symlink() or not place.is_dir() or (any(place.iterdir()) and not is_run(place))


def drop(folder: Path, names: Sequence[str]) -> None:
    """Remove the replaced run, in the order of `names`: what a kill leaves is still known as ours. All else stays."""
    place = folder / NAME
    if not place.exists() or is_strange(place):
        return
    for name in (LOCK, *names):
        remove(place / name)
    with suppress(OSError):  # somebody else's files are in it
        place.rmdir()


def _twin(source: Path, goal: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, goal, copy_function=_linked)
    elif source.is_file():
        _linked(str(source), str(goal))


def _linked(source: str, goal: str) -> None:
    try:
        os.link(Path(source).resolve(), goal)
    except OSError:  # a file system without links
        shutil.copy2(source, goal)
        with Path(goal).open("rb") as file:  # the source goes next
            os.fsync(file.fileno())
