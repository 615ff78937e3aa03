"""CSV files that people write about samples: a header that names columns, then rows of as many cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from provnet.data.files import read_file, shown
from provnet.errors import DataError

LARGEST = 2**30  # bytes


def read_rows(path: Path, needed: Sequence[str], more: str = "") -> Iterator[tuple[int, dict[str, str]]]:
    """Each row as (its line's number, column -> cell); the header is row 1, empty rows are passed over.

    A header that lacks a needed column or names one twice, and a row of another length, are refused. `more` is said of
    the header beside what is needed.

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
    try:
        records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise DataError(f"{file}: cannot be parsed as CSV ({error})") from None
    columns = [name.strip().lower() for name in records[0]] if records else []
    if not set(needed) <= set(columns) or len(set(columns)) != len(columns):
        given = shown(",".join(columns))[:200]
        raise DataError(f"{file} row 1: the header must name {', '.join(needed)} once each{more}; got {given!r}")
    for number, cells in enumerate(records[1:], 2):
        if not cells:
            continue
        if len(cells) != len(columns):
            raise DataError(f"{file} row {number}: {len(cells)} cells, the header has {len(columns)}; quote commas")
        yield number, dict(zip(columns, cells, strict=True))
