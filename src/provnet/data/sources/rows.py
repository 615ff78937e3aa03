"""Tables with pictures in them: parquet, folders saved by Hugging Face datasets, and their Datasets in memory.

Which column holds pictures and which labels is told by their types, else by their names; `columns` says it where they
do not. Class names are those of the source. Rows are read when they are needed, a group of them at a time.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief, read_file, shown
from provnet.data.assemble import Opened, sample_ids, sample_sources
from provnet.data.modalities.decode import whole_array
from provnet.data.pictures import Entry, load_pictures
from provnet.data.rules import OpenOptions, check_names, encode_labels, encode_text, some


@dataclass(frozen=True)
class Columns:
    """What the columns of a table hold; `names` are the classes that numbers stand for, if the source says them."""

    path: str
    label: str
    id: str | None = None
    source: str | None = None
    names: tuple[str, ...] | None = None


def choose_columns(
    kinds: Mapping[str, str], options: OpenOptions, where: str, names: Mapping[str, Sequence[str]] | None = None
) -> Columns:
    """The columns with pictures and labels, by `kinds`: `image` (surely), `bytes`, `class` (surely) or anything else.

    >>> choose_columns({"img": "image", "fine": "class", "n": "int"}, OpenOptions(), "x")
    Columns(path='img', label='fine', id=None, source=None, names=None)
    """
    asked = dict(options.manifest_columns or ())
    for what, name in asked.items():
        if name not in kinds:
            raise UsageError(f'{where}: no column "{shown(name)}" for {what} (--columns); there are {some(kinds)}')
    path = asked.get("path") or _find_column(kinds, ("image", "bytes"), _IMAGE)
    label = asked.get("label") or _find_column({n: k for n, k in kinds.items() if n != path}, ("class",), _LABEL)
    if path is None or label is None:
        what = "pictures" if path is None else "labels"
        raise UsageError(
            f"{where}: which column holds the {what}? There are {some(kinds)}; say it with columns (--columns "
            f"path=COLUMN,label=COLUMN)"
        )
    classes = (names or {}).get(label)
    return Columns(path, label, asked.get("id"), asked.get("source"), None if classes is None else tuple(classes))


def _find_column(kinds: Mapping[str, str], wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The one column of a kind that is wanted, else the one that is called so."""
    for kind in wanted:
        found = [name for name, own in kinds.items() if own == kind]
        if len(found) == 1:
            return found[0]
    found = [name for name in kinds if name.lower() in names]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Rows:
    """Pictures that are read one by one, with labels as text or numbers; `names` are all classes, if they are known."""

    read: Sequence[Callable[[], Any]]
    labels: Sequence[Any]
    ids: Any = None
    sources: Any = None
    names: tuple[str, ...] | None = None


def open_rows(rows: Rows, split: str, options: OpenOptions) -> Opened:
    """The pictures of rows as data; what has no label is refused."""
    labels = list(rows.labels)
    missing = next((i for i, label in enumerate(labels) if label is None or label == -1), None)
    if missing is not None:
        raise DataError(f"row {missing} has no label; leave such rows out, or give a split that has labels")
    names = options.class_names or rows.names
    if all(isinstance(label, str) for label in labels):
        answers, classes = encode_text(labels, names)
    else:
        answers, classes = encode_labels(labels, names)
    named, givers = sample_ids(rows.ids, split, len(labels)), sample_sources(rows.sources, len(labels))
    entries = [
        Entry(None, name, name, int(label), source, one)
        for one, label, name, source in zip(rows.read, answers, named, givers, strict=True)
    ]
    if not entries:
        raise UsageError(f"there are no rows in split {split}; at least one sample is needed")
    return load_pictures(entries, classes, options)


def is_hugging_face(source: Any) -> bool:
    """Whether something is a Dataset of Hugging Face, or several of them by split."""
    if isinstance(source, Mapping):
        return bool(source) and all(is_hugging_face(one) for one in source.values())
    return hasattr(source, "features") and hasattr(source, "column_names") and hasattr(source, "cast_column")


def open_hugging_face(source: Any, split: str, options: OpenOptions) -> Opened:
    """A Dataset, or a split of a DatasetDict."""
    dataset = _split_of(source, split) if isinstance(source, Mapping) else source
    if not hasattr(dataset, "__len__"):
        raise UsageError("an IterableDataset cannot be read by row; load it without streaming=True")
    features = dataset.features or {}
    kinds = {name: _feature_kind(type(one).__name__) for name, one in features.items()}
    names = {name: one.names for name, one in features.items() if type(one).__name__ == "ClassLabel"}
    chosen = choose_columns(kinds, options, "the Dataset", names)
    if kinds[chosen.path] == "image":
        dataset = dataset.cast_column(chosen.path, type(features[chosen.path])(decode=False))
    beside = {
        what: list(dataset.select_columns([name])[name])
        for what, name in (("label", chosen.label), ("id", chosen.id), ("source", chosen.source))
        if name is not None
    }
    read = [partial(_of_dataset, dataset, chosen.path, i, options) for i in range(len(dataset))]
    labels = _named(beside["label"], chosen.names)
    return open_rows(Rows(read, labels, beside.get("id"), beside.get("source"), chosen.names), split, options)


def _split_of(source: Mapping[str, Any], split: str) -> Any:
    wanted = _TEST if split == "test" else ("train",)
    name = next((one for one in wanted if one in source), None)
    if name is None and len(source) == 1 and split != "test":
        name = next(iter(source))
    if split == "all" or name is None:
        raise UsageError(
            f"a DatasetDict is opened one split at a time, train or test; there are {some(source)}: give one of them, "
            "such as dataset['train']"
        )
    return source[name]


def _of_dataset(dataset: Any, column: str, row: int, options: OpenOptions) -> bytes | np.ndarray:
    return as_picture(dataset[row][column], f"row {row}", options)


def as_picture(value: Any, name: str, options: OpenOptions) -> bytes | np.ndarray:
    """The bytes of a picture file, or pixels, out of what a table holds."""
    if isinstance(value, Mapping):
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        if value.get("path"):
            return read_file(Path(str(value["path"])), options.rule.max_bytes, name)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "getexif"):  # of PIL
        return whole_array(value, name, options.rule)
    if value is None:
        raise DataError(f"{name}: there is no picture in it; leave the row out")
    raise DataError(f"{name}: {type(value).__name__} is no picture; give the bytes of a file (--columns path=COLUMN)")


def _named(labels: Sequence[Any], names: tuple[str, ...] | None) -> list[Any]:
    """Labels as text where the source names its classes."""
    if names is None:
        return list(labels)
    known = check_names(names)
    return [known[label] if isinstance(label, int) and 0 <= label < len(known) else None for label in labels]


def _feature_kind(name: str) -> str:
    return {"Image": "image", "ClassLabel": "class"}.get(name, name.lower())


def find_shards(path: Path) -> dict[str, list[Path]]:
    """The files of a table by split: parquet files in a folder or below data/, or the parts of a saved Dataset."""
    if path.is_file():
        return {"train": [path]}
    if (path / _DICT).is_file():
        names = _json(path / _DICT).get("splits", [])
        return {name: _saved_files(path / str(name)) for name in names}
    if (path / _STATE).is_file():
        return {"train": _saved_files(path)}
    files = sorted(path.glob("*.parquet")) or sorted((path / "data").glob("*.parquet"))
    found: dict[str, list[Path]] = {}
    for file in files:
        name = re.match(r"(train|test|validation|val|valid)\b", re.sub(r"[-_.]", " ", file.name.lower()))
        found.setdefault(name[1] if name else "train", []).append(file)
    return found


def is_table(path: Path) -> bool:
    """Whether a folder holds a saved Dataset or parquet files."""
    if any((path / name).is_file() for name in (_DICT, _STATE)):
        return True
    return any(path.glob("*.parquet")) or any((path / "data").glob("*.parquet"))


def table_has_test(path: Path) -> bool:
    """Whether there is a split for testing."""
    return any(name in find_shards(path) for name in _TEST)


def open_table(path: Path, split: str, options: OpenOptions) -> Opened:
    """Pictures as bytes in the rows of parquet or Arrow files."""
    shards = find_shards(path)
    if split == "all":
        files = [file for part in shards.values() for file in part]
    else:
        files = shards[next(name for name in (_TEST if split == "test" else ("train", *shards)) if name in shards)]
    tables = [_Parquet(file) if file.suffix == ".parquet" else _Arrow(file) for file in files]
    where = shown(path.name)
    features = _features(path, tables[0])
    kinds = {name: features.get(name, {}).get("_type", kind) for name, kind in tables[0].kinds.items()}
    kinds = {name: _feature_kind(kind) for name, kind in kinds.items()}
    names = {name: one["names"] for name, one in features.items() if "names" in one}
    chosen = choose_columns(kinds, options, where, names)
    read: list[Callable[[], Any]] = []
    beside: dict[str, list[Any]] = {"label": [], "id": [], "source": []}
    for table in tables:
        read += [partial(_of_table, table, chosen.path, i, options) for i in range(table.count)]
        for what, column in (("label", chosen.label), ("id", chosen.id), ("source", chosen.source)):
            beside[what] += [] if column is None else table.column(column)
    ids, sources = beside["id"] or None, beside["source"] or None
    return open_rows(Rows(read, _named(beside["label"], chosen.names), ids, sources, chosen.names), split, options)


def _of_table(table: _Parquet | _Arrow, column: str, row: int, options: OpenOptions) -> bytes | np.ndarray:
    return as_picture(table.value(column, row), f"{shown(table.path.name)} row {row}", options)


class _Parquet:
    """A parquet file; the groups of rows that were read last are kept."""

    def __init__(self, path: Path) -> None:
        from pyarrow import ArrowException
        from pyarrow import parquet as pq

        self.path = path
        try:
            self.file = pq.ParquetFile(path)
        except (ArrowException, OSError) as error:
            raise DataError(f"{shown(path.name)}: cannot be read as parquet ({brief(str(error))})") from error
        self.count = int(self.file.metadata.num_rows)
        self.kinds = _kinds(self.file.schema_arrow)
        self.schema = self.file.schema_arrow
        sizes = [self.file.metadata.row_group(i).num_rows for i in range(self.file.metadata.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        return list(self.file.read(columns=[name]).column(name).to_pylist())

    def value(self, name: str, row: int) -> Any:
        """One value."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        with self._lock:
            found = self._kept.get((name, group))
            if found is None:
                found = self.file.read_row_group(group, columns=[name]).column(name)
                self._kept[name, group] = found
                while len(self._kept) > GROUPS:
                    self._kept.popitem(last=False)
        return found[row - int(self._starts[group])].as_py()


class _Arrow:
    """An Arrow file of a saved Dataset, mapped into memory."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        try:
            self.table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{shown(path.name)}: cannot be read as Arrow ({brief(str(error))})") from error
        self.count, self.kinds, self.schema = self.table.num_rows, _kinds(self.table.schema), self.table.schema

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        return list(self.table.column(name).to_pylist())

    def value(self, name: str, row: int) -> Any:
        """One value."""
        return self.table.column(name)[row].as_py()


def _kinds(schema: Any) -> dict[str, str]:
    """What the columns may hold, by their types: a struct of bytes and path is how pictures are kept."""
    from pyarrow import types

    found = {}
    for one in schema:
        is_image = types.is_struct(one.type) and one.type.get_field_index("bytes") >= 0
        is_bytes = types.is_binary(one.type) or types.is_large_binary(one.type)
        found[str(one.name)] = "image" if is_image else "bytes" if is_bytes else str(one.type)
    return found


def _features(path: Path, table: _Parquet | _Arrow) -> dict[str, dict[str, Any]]:
    """What Hugging Face datasets says of the columns, beside the file or in it."""
    for folder in (path, table.path.parent):
        if (folder / _INFO).is_file():
            return dict(_json(folder / _INFO).get("features") or {})
    kept = (table.schema.metadata or {}).get(b"huggingface")
    try:
        found = json.loads(kept)["info"]["features"] if kept else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: one for name, one in found.items() if isinstance(one, dict)}


def _saved_files(folder: Path) -> list[Path]:
    """The files of a saved Dataset, in order; names that lead elsewhere are refused."""
    names = [str(one.get("filename", "")) for one in _json(folder / _STATE).get("_data_files", [])]
    if not names or any(Path(name).name != name for name in names):
        raise DataError(f"{shown(str(folder / _STATE))}: names no files beside it; save the Dataset again")
    return [folder / name for name in names]


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_file(path, 2**24))
    except ValueError as error:
        raise DataError(f"{shown(str(path))}: cannot be read as JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{shown(str(path))}: must be a JSON object")
    return found


GROUPS = 3  # of rows, kept of each parquet file
_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_TEST = ("test", "validation", "val", "valid")
_IMAGE = ("image", "img", "picture", "photo", "jpg", "png", "path", "file", "filename", "file_name")
_LABEL = ("label", "labels", "class", "category", "target", "y", "cls", "fine_label")
