"""CSV manifests: `path,label[,id,source]`, paths relative to the folder of the CSV file, or to `root`."""

from __future__ import annotations

import csv
import io
import os
import posixpath
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from provnet.base.errors import DataError
from provnet.base.files import DataWarning, read_file, shown
from provnet.data.assemble import Opened
from provnet.data.pictures import SKIP, Entry, load_pictures
from provnet.data.rules import OpenOptions, encode_text, some
from provnet.samples.csvfile import refuse_nul_byte, separator_advice, unquoted


class Row(NamedTuple):
    """One line of the manifest; `number` counts from 1, the header."""

    number: int
    path: str
    label: str
    sample_id: str
    source: str | None


def open_manifest(path: Path, split: str, options: OpenOptions) -> Opened:
    """The pictures that a manifest names, in its order; labels are text, whatever they look like."""
    del split  # a manifest is one list: all of it is for training
    file = shown(path.name)
    folder = path.parent if options.root is None else Path(options.root)
    rows, bad = [], []
    for row in read_rows(path, dict(options.manifest_columns or ())):
        problem = _outside(folder, row.path)
        if problem is None:
            rows.append(row)
            continue
        message = f"{file} row {row.number}: {shown(row.path)} {problem}"
        if not options.skip_bad:
            raise DataError(f"{message}; {SKIP}")
        bad.append(message)
    _refuse_missing(rows, file, options.class_names or ())
    if not rows:
        raise DataError(f"{file}: names no pictures" + (f"; the first left out: {bad[0]}" if bad else ""))
    labels, names = encode_text([row.label for row in rows], options.class_names)
    entries = [
        Entry(folder / row.path, row.path, row.sample_id, int(label), row.source)
        for row, label in zip(rows, labels, strict=True)
    ]
    opened = load_pictures(entries, names, options)
    return opened._replace(skipped=(*bad, *opened.skipped))


def read_rows(path: Path, named: Mapping[str, str] = MappingProxyType({})) -> list[Row]:
    """The rows of a manifest, checked: header, columns, ids; an error names the row.

    `named` says which columns hold path, label, id and source, where they are called otherwise.
    """
    file = shown(path.name)
    blob = read_file(path, limit=2**30)
    try:
        text = blob.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = blob[: error.start].count(b"\n") + 1
        raise DataError(f"{file} row {row}: not UTF-8 text; save the file as CSV UTF-8") from error
    refuse_nul_byte(text, file)
    records = _records(text, file)
    _, header = next(records, (1, []))
    columns = _columns([name.strip() for name in header], named, file)
    if not {"path", "label"} <= set(columns) or len(set(columns)) != len(columns):
        raise DataError(
            f"{file} row 1: the header must be path,label[,id,source], got {shown(','.join(header))[:200]!r}"
            f"{_guess([name.strip() for name in header])}{separator_advice(columns)}"
        )
    extra = sorted(set(columns) - {"path", "label", "id", "source"})
    if extra:
        warnings.warn(f"{file}: columns not used: {shown(', '.join(extra))[:200]}", DataWarning, stacklevel=3)
    return _checked(records, columns, file)


def _columns(header: Sequence[str], named: Mapping[str, str], file: str) -> list[str]:
    """The names of the columns as they are used here; one that was asked for goes before one that is called so."""
    for what, name in named.items():
        if name not in header:
            raise DataError(f'{file} row 1: no column "{shown(name)}" for {what} (--columns); there are {some(header)}')
    own = {name: what for what, name in named.items()}
    return [own.get(name, f"{name} (as found)" if name.lower() in named else name.lower()) for name in header]


def _guess(columns: Sequence[str]) -> str:
    """How to say which columns hold what."""
    path = next((name for name in columns if name.lower() in _PATHS), "COLUMN")
    label = next((name for name in columns if name.lower() in _LABELS), "COLUMN")
    return f"; other names: --columns path={shown(path)},label={shown(label)}"


def _checked(records: Iterator[tuple[int, list[str]]], columns: list[str], file: str) -> list[Row]:
    rows: list[Row] = []
    paths: dict[str, int] = {}
    ids: dict[str, int] = {}
    for number, cells in records:
        if len(cells) != len(columns):
            raise DataError(
                f"{file} row {number}: {len(cells)} cells, the header has {len(columns)}; quote commas in cells"
            )
        cell = {name: text if name == "path" else unquoted(text) for name, text in zip(columns, cells, strict=True)}
        if not cell["path"] or not cell["label"]:
            raise DataError(f"{file} row {number}: path and label must not be empty")
        path = posixpath.normpath(cell["path"])
        sample_id = cell.get("id") or path
        for seen, what, value in ((paths, "file", path), (ids, "id", sample_id)):
            if value in seen:
                raise DataError(f"{file} row {number}: the {what} {shown(value)} stands in row {seen[value]} already")
            seen[value] = number
        rows.append(Row(number, path, cell["label"], sample_id, cell.get("source") or None))
    return rows


def _refuse_missing(rows: Sequence[Row], file: str, class_names: Sequence[str]) -> None:
    """Refuse the label that an empty cell becomes where a table is made into text, unless it is given as a class."""
    for row in rows:
        if row.label.strip().lower() == "nan" and row.label not in class_names:
            raise DataError(
                f'{file} row {row.number}: the label "{shown(row.label)}" stands for a missing value; give a label, or '
                "leave the row out (rename a class that is really called that)"
            )


def _records(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    """Records with their number; blank lines are passed over, a cell of more than 128 KiB is refused."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{file} row {number}: cannot be parsed as CSV ({error})") from error
        if cells:
            yield number, cells


def _outside(folder: Path, relative: str) -> str | None:
    """Why a path cannot be used, or None."""
    if posixpath.isabs(relative) or Path(relative).is_absolute():
        return "is an absolute path; paths must be relative to the folder of the CSV file (or to root)"
    if relative == ".." or relative.startswith("../"):
        return "leads out of the folder of the CSV file"
    root = os.path.realpath(folder)
    if not os.path.realpath(folder / relative).startswith(root + os.sep):
        return "leads out of the folder of the CSV file, through a link"
    if not (folder / relative).is_file():
        return f"is not a file in {shown(str(folder))}; root (train --root DIR) says what paths are relative to"
    return None


_PATHS = ("path", "image", "img", "file", "filename", "file_name", "filepath", "image_path", "picture", "photo", "name")
_LABELS = ("label", "class", "category", "target", "y", "labels", "class_name", "breed", "species")
