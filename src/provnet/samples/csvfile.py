"""CSV files that people write about samples: a header that names columns, then rows of as many cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from provnet.base.errors import DataError
from provnet.base.files import read_file, shown

LARGEST = 2**30  # bytes
_END = "\r\n"
_FORMULA = re.compile(r"'*[=+\-@\x00-\x1f\x7f]")  # what has a quote already gets another one


def quoted(text: str) -> str:
    """A text that no spreadsheet takes for a formula: a quote is put before it, which `unquoted` takes away again.

    >>> quoted("=1+1"), quoted("'=1+1"), quoted("cat"), quoted("")
    ("'=1+1", "''=1+1", 'cat', '')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unquoted(text: str) -> str:
    """The text that `quoted` was given; what people wrote without a quote stays as it is.

    >>> unquoted("'=1+1"), unquoted("''=1+1"), unquoted("=1+1"), unquoted("'tis")
    ('=1+1', "'=1+1", '=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    r"""Rows as CSV, a line each; a cell with any end of line in it is put in quotes, so that it stays one cell.

    Before Python 3.13 csv leaves a carriage return as it is unless lines end in one, and reading breaks the row there.

    >>> csv_text([["a\rb", 1], ["c", "d"]])
    '"a\rb",1\nc,d\n'
    """
    lines = _Lines()
    csv.writer(lines, lineterminator=_END).writerows(rows)
    return "".join(lines)


class _Lines(list[str]):
    """What a csv.writer writes: whole lines, which get a plain end."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_END) + "\n")


def separator_advice(columns: Sequence[str]) -> str:
    """What to say of a header that a spreadsheet wrote with semicolons or tabs, as some do in Europe; else nothing.

    >>> separator_advice(["path;label"]), separator_advice(["path", "label"])
    ('; save the file with commas between the cells', '')
    """
    other = len(columns) == 1 and any(mark in columns[0] for mark in ";\t")
    return "; save the file with commas between the cells" if other else ""


def refuse_nul_byte(text: str, file: str) -> None:
    """Refuse a NUL anywhere in a file of text, with the line that it stands in."""
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{file} row {row}: holds a NUL byte; save it as CSV UTF-8")


def read_rows(path: Path, needed: Sequence[str], more: str = "") -> Iterator[tuple[int, dict[str, str]]]:
    """Each row as (its line's number, column -> cell); the header is row 1, empty rows are passed over.

    A header that lacks a needed column or names one twice, and a row of another length, are refused. `more` is said of
    the header beside what is needed. Quotes that `quoted` put before cells are taken away.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "sources.csv")
    ...     _ = place.write_text("Sample_ID,contributor\\ntrain/3,Ann\\n")
    ...     list(read_rows(place, ("sample_id",)))
    [(2, {'sample_id': 'train/3', 'contributor': 'Ann'})]
    """
    file = shown(path.name)
    try:
        text = read_file(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{file}: not UTF-8 text; save the file as CSV UTF-8") from None
    refuse_nul_byte(text, file)
    try:
        records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise DataError(f"{file}: cannot be parsed as CSV ({error})") from None
    columns = [name.strip().lower() for name in records[0]] if records else []
    if not set(needed) <= set(columns) or len(set(columns)) != len(columns):
        given = f"{shown(','.join(columns))[:200]!r}{separator_advice(columns)}"
        raise DataError(f"{file} row 1: the header must name {', '.join(needed)} once each{more}; got {given}")
    for number, cells in enumerate(records[1:], 2):
        if not cells:
            continue
        if len(cells) != len(columns):
            raise DataError(f"{file} row {number}: {len(cells)} cells, the header has {len(columns)}; quote commas")
        yield number, dict(zip(columns, map(unquoted, cells), strict=True))
