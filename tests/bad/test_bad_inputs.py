"""The table of bad inputs: each is refused in one line with the right exit code and nothing written, or read rightly.

The numbers are those of the list of 90 bad inputs; rows 37 to 39 and 78 to 90, of the server, are in tests/app;
64 and 67 belong to archives, which are not here. Row 68 (killed at any moment) has one kill here and many in
tests/training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import ProvnetError
from tests.cases import Failures

from . import (
    rows_arrays,
    rows_changed,
    rows_disk,
    rows_files,
    rows_folders,
    rows_forged,
    rows_names,
    rows_pictures,
    rows_runs,
    rows_tables,
)
from .entry import Entry, Place, Said, tree

PICTURES = (rows_pictures, rows_folders, rows_names)
MODULES = (*PICTURES, rows_tables, rows_arrays, rows_changed, rows_files, rows_forged, rows_runs, rows_disk)
TABLE: list[Entry] = [entry for module in MODULES for entry in module.ROWS]
REQUIRED = {*range(1, 37), *range(40, 64), 65, 66, *range(68, 78)}


@pytest.mark.parametrize("row", sorted({entry.row for entry in TABLE}))
def test_bad_input(row: int, places: Callable[[str], AbstractContextManager[Place]]) -> None:
    failures = Failures()
    for number, entry in enumerate(TABLE):
        if entry.row == row:
            with failures.of(f"{row}: {entry.words}"), places(str(number)) as place:
                _refused_or_read(entry, place)
    failures.report()


def _refused_or_read(entry: Entry, place: Place) -> None:
    given = entry.given(place)
    before = tree(place.tmp)
    said = _library(given, entry) if callable(given) else place.call(*given)
    place.stack.close()
    place.patch.undo()
    assert said.code == entry.code, f"{said.out}\n{said.err}"
    _check_lines(said, "" if callable(given) else str(given[0]))
    heard = said.errors[0] if said.errors else said.out + said.err
    assert [word for word in entry.says if word not in heard] == [], heard
    _check_files(entry, before, tree(place.tmp))
    if entry.after is not None:
        entry.after(place, said)


def _library(call: Callable[[], Any], entry: Entry) -> Said:
    """A function of the library: what it raises must be one line, and a ValueError for those who catch that."""
    if entry.code == 0:
        return Said(0, value=call())
    with pytest.raises(ValueError) as caught:
        call()
    line = str(caught.value).splitlines()[0]  # scikit-learn gives advice on further lines
    if isinstance(caught.value, ProvnetError):
        assert caught.value.exit_code == entry.code
        assert str(caught.value) == line
    return Said(entry.code, err=f"error: {line}\n")


BESIDE = ("error: ", "warning: ", "note: ", "training ", "calibration ", "evaluating ")  # how lines on stderr begin


def _check_lines(said: Said, command: str) -> None:
    """One line of error at the end, or none where it is no error; beside it notes, warnings and the progress bar."""
    assert "Traceback" not in said.out + said.err
    lines = said.err.splitlines()
    assert [line for line in lines if not line.startswith(BESIDE)] == []
    assert all(line.isprintable() for line in lines)
    reports = command == "verify" and said.code in (6, 7) and not said.errors  # its report on stdout is the answer
    assert len(said.errors) == (0 if said.code == 0 or reports else 1)
    assert not said.errors or lines[-1] == said.errors[0]
    if said.errors:
        assert "internal error" not in said.errors[0]


def _check_files(entry: Entry, before: dict[str, str], now: dict[str, str]) -> None:
    """Inputs are never touched; a refused command writes nothing; nobody leaves temporary files."""
    assert [name for name in now if Path(name).name.startswith(".tmp-") or Path(name).name == ".next"] == []
    new = {name for name in now if now[name] != before.get(name)}
    gone = set(before) - set(now)
    allowed = entry.code == 0 or entry.leaves
    assert [name for name in new | gone if not (allowed and Path(name).parts[0].startswith("out"))] == []


def test_every_row_of_the_list_is_in_the_table() -> None:
    assert REQUIRED - {entry.row for entry in TABLE} == set()
    twice = [key for key, n in Counter((entry.row, entry.words) for entry in TABLE).items() if n > 1]
    assert twice == []
