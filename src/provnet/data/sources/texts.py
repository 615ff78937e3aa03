"""Texts with labels: JSON lines, CSV, parquet, folders of .txt files, and Datasets of Hugging Face.

Which column holds the texts and which the labels is told by their names, of Datasets by their types first; `columns`
says it where they do not.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief, read_file, read_start, shown
from provnet.base.processes import is_installed
from provnet.data.assemble import Opened, assemble_items
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.text import Text
from provnet.data.rules import OpenOptions, check_names, encode_labels, encode_text, some
from provnet.data.sources.folder import has_pictures
from provnet.data.sources.rows import is_hugging_face
from provnet.samples.csvfile import separator_advice

TEXTS = ("text", "sentence", "content", "review", "document", "body", "utterance")
LABELS = ("label", "labels", "class", "category", "intent", "sentiment", "target", "y")
IDS, SOURCES = ("id", "sample_id"), ("source", "author", "contributor")
ENDINGS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_PICTURES = {"path", "image", "img", "file", "filename"}  # columns of such a name make it a table of pictures
LARGEST, LONGEST = 2**32, 2**20  # bytes of a file, and of one text
TESTS = ("test", "dev", "val", "valid", "validation")


def open_texts(
    source: Any, labels: Any, modality: Modality, split: str, options: OpenOptions, ids: Any, sources: Any
) -> Opened:
    """Texts by their modality; `labels`, `ids` and `sources` may name columns. Class names are kept."""
    if isinstance(source, Mapping):
        if split not in source:
            names = ", ".join(map(str, source))
            raise UsageError(f"this holds {names}; open one of them, such as source[{min(source)!r}]")
        source = source[split]
    features: Mapping[str, Any] = source.features or {}
    column = _choose(features, "string", TEXTS)
    given = _values(source, labels) if labels is not None else None
    if given is None:
        named = _choose(features, "ClassLabel", LABELS) if _of(features, "ClassLabel") else _by_name(features)
        given, known = _values(source, named), getattr(features[named], "names", None)
        if known is not None and options.class_names is None:
            options = replace(options, class_names=tuple(map(str, known)))
    ids, sources = (_values(source, one) if isinstance(one, str) else one for one in (ids, sources))
    if any(isinstance(label, int) and label < 0 for label in given):
        raise DataError("some labels are below 0, which stands for none; leave these samples out: source.filter(...)")
    return assemble_items(
        _values(source, column), encode_labels(given, options.class_names), modality, split, options, ids, sources
    )


def is_text_dataset(source: Any) -> bool:
    """Whether something is a Dataset of Hugging Face with texts and no pictures, or several of them by split."""
    if isinstance(source, Mapping):
        return bool(source) and all(is_text_dataset(one) for one in source.values())
    if not is_hugging_face(source):
        return False
    return not _of(source.features or {}, "Image") and bool(_of(source.features or {}, "string"))


def _values(source: Any, column: Any) -> list[Any]:
    """One column as Python values, or what was given instead of its name."""
    if not isinstance(column, str):
        return list(column)
    if column not in source.column_names:
        raise UsageError(f"there is no column {brief(column)}; there are {', '.join(map(brief, source.column_names))}")
    return list(source[column])


def _of(features: Mapping[str, Any], kind: str) -> list[str]:
    """The columns of a type: by the name of its class, or of the values."""
    return [name for name, one in features.items() if kind in (type(one).__name__, getattr(one, "dtype", None))]


def _choose(features: Mapping[str, Any], kind: str, usual: Sequence[str]) -> str:
    found = _of(features, kind)
    known = [name for name in usual if name in found]
    if len(found) != 1 and not known:
        listed = ", ".join(f"{brief(name)}: {type(one).__name__}" for name, one in features.items())
        raise UsageError(
            f"{len(found)} columns of type {kind} ({listed}); one is needed: select_columns, or name it {usual[0]}"
        )
    return known[0] if len(found) != 1 else found[0]


def _by_name(features: Mapping[str, Any]) -> str:
    found = next((name for name in LABELS if name in features), None)
    if found is None:
        raise UsageError(f"no column of labels among {', '.join(map(brief, features))}; name it: labels='column'")
    return found


@dataclass
class _Read:
    """What was read so far: one entry per text."""

    texts: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def open_text_files(path: Path, split: str, options: OpenOptions) -> Opened:
    """Texts out of a file with a text in each row, a folder of such files by split, or class folders of .txt files."""
    modality, read = Text(length=options.length), _Read()
    parts = split_files(path)
    files = [file for name, file in parts.items() if split in ("all", name)]
    if path.is_dir() and not parts:
        _read_folder(path, split, modality, read, options)
    for file in files:
        _read_rows(file, modality, read, options)
    where = shown(path.name)
    if not read.texts:
        raise DataError(f"{where}: holds no text{f'; the first left out: {read.bad[0]}' if read.bad else ''}")
    names, ids = options.class_names or _listed_classes(path), _ids(read, split, where)
    if len({isinstance(label, str) for label in read.labels}) > 1:
        raise DataError(f"{where}: labels must be all text or all whole numbers; some are text and some are not")
    encode = encode_text if isinstance(read.labels[0], str) else encode_labels
    opened = assemble_items(
        read.texts,
        encode(read.labels, names),
        modality,
        split,
        options,
        ids,
        read.sources if any(read.sources) else None,
    )
    cut = modality.cut(read.texts)
    note = (
        f"{cut:,} of {len(read.texts):,} texts have more than {modality.most:,} bytes; the network sees their beginning"
    )
    return opened._replace(skipped=tuple(read.bad), notes=(note,) if cut else ())


def _ids(read: _Read, split: str, where: str) -> list[str] | None:
    """The ids of the rows where all of them have one; some without are refused."""
    there = [one is not None for one in read.ids]
    if not any(there):
        return None
    if not all(there):
        raise DataError(f"{where}: text {there.index(False) + 1} has no id and others have; give every text its own")
    return read.ids


def split_files(path: Path) -> dict[str, Path]:
    """The files of a text set by split: the file itself, or train.* and test.* in a folder."""
    if not path.is_dir():
        return {"train": path}
    files = {file.stem.lower(): file for file in sorted(path.iterdir()) if file.suffix.lower() in ENDINGS}
    if "train" not in files:
        return {}
    test = next((files[name] for name in TESTS if name in files), None)
    return {"train": files["train"]} | ({} if test is None else {"test": test})


def texts_have_test(path: Path) -> bool:
    """Whether there is a split for testing."""
    return "test" in split_files(path) or (path.is_dir() and not split_files(path) and len(_text_parts(path)) > 1)


def holds_texts(path: Path, start: bytes, columns: Mapping[str, str]) -> bool:
    """Whether a path holds texts, told by its ending, the header of a CSV file, or .txt files in class folders.

    Where pictures lie below, .txt files are notes, captions or boxes beside them.
    """
    if path.is_dir():
        train = split_files(path).get("train")
        if train is not None and holds_texts(train, read_start(train), columns):
            return True
        unnamed = train is not None and train.suffix.lower() != ".parquet"  # a table that is asked for its columns
        return (unnamed or any(_text_parts(path).values())) and not has_pictures(path)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return True
    if start[:4] == b"PAR1" and is_installed("pyarrow"):
        from pyarrow import parquet

        names = {name.lower() for name in parquet.read_schema(path).names}
        return "text" in columns or ("path" not in columns and not names & _PICTURES and bool(names & set(TEXTS)))
    if "text" in columns or path.suffix.lower() not in (".csv", ".tsv"):
        return "text" in columns
    header = start.split(b"\n")[0].decode("utf-8-sig", "ignore").lower().replace("\t", ",").split(",")
    names = {name.strip().strip('"') for name in header}
    return "path" not in columns and not names & _PICTURES and bool(names & set(TEXTS))


def _text_parts(root: Path) -> dict[str, list[Path]]:
    """Split name -> the class folders that hold .txt files."""
    below = [one for one in sorted(root.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    names = {one.name.lower(): one for one in below}
    test = next((names[name] for name in TESTS if name in names), None)
    parts = {"train": names["train"], "test": test} if "train" in names and test is not None else {"train": root}
    found = {}
    for split, folder in parts.items():
        inside = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
        found[split] = [one for one in inside if next(one.glob("*.txt"), None) is not None]
    return found


def _read_folder(root: Path, split: str, modality: Text, read: _Read, options: OpenOptions) -> None:
    """One file per text, one folder per class; the relative path is the id."""
    for part, folders in _text_parts(root).items():
        for file in sorted(one for folder in folders if split in ("all", part) for one in folder.glob("*.txt")):
            name = file.relative_to(root).as_posix()
            _take(read, options, shown(name), partial(_of_file, file, name, modality))


Row = tuple[Any, Any, Any, Any]  # text, label, id, source


def _of_file(file: Path, name: str, modality: Text) -> Row:
    return modality.read(read_file(file, LONGEST), file.name), file.parent.name, name, None


def _take(read: _Read, options: OpenOptions, name: str, row: Callable[[], Row]) -> None:
    """Keep a row that holds a text and a label; another one is refused by name, or left out and counted."""
    try:
        text, label, own, source = row()
        if not isinstance(text, str):
            raise DataError(f"the text is {type(text).__name__}; it must be text")
        if len(text) > LONGEST:
            raise DataError(f"the text has {len(text):,} characters, at most {LONGEST:,} are allowed; split it")
        Text().content(text)
        if label is None or (isinstance(label, str) and not label.strip()):
            raise DataError("there is no label; give one, or leave the row out")
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise DataError(f"the label is {type(label).__name__} ({label!r:.40}); it must be text or a whole number")
    except DataError as error:
        if not options.skip_bad:
            raise DataError(
                f"{name}: {str(error).removeprefix(f'{name}: ')}; --skip-bad leaves such texts out"
            ) from None
        read.bad.append(f"{name}: {error}")
        return
    for kept, value in zip((read.texts, read.labels, read.ids, read.sources), (text, label, own, source), strict=True):
        kept.append(value)


def _read_rows(file: Path, modality: Text, read: _Read, options: OpenOptions) -> None:
    """The rows of one file."""
    raw, name = read_file(file, LARGEST), shown(file.name)
    if raw[:4] == b"PAR1":
        _take_all(_parquet_rows(file), read, options, name)
        return
    lines = file.suffix.lower() in (".jsonl", ".ndjson") or raw[:1] == b"{"
    _take_all(_json_rows(raw, name, modality) if lines else _csv_rows(raw, name, modality), read, options, name)


def _take_all(
    rows: Iterator[tuple[int, Callable[[], dict[str, Any]]]], read: _Read, options: OpenOptions, name: str
) -> None:
    """Keep the rows of a file; the first one says which columns there are."""
    chosen: dict[str, str] = {}
    for number, make in rows:

        def row(make: Callable[[], Mapping[str, Any]] = make) -> Row:
            made = make()
            if not chosen:
                chosen.update(_columns(list(made), options, name))
            if chosen["text"] not in made or chosen["label"] not in made:
                raise DataError(f"has no {chosen['text']} and {chosen['label']}, it has {some(made)}")
            return (
                made[chosen["text"]],
                made[chosen["label"]],
                made.get(chosen["id"]) or None,
                made.get(chosen["source"]),
            )

        _take(read, options, f"{name} row {number}", row)


def _columns(names: Sequence[str], options: OpenOptions, where: str) -> dict[str, str]:
    """Which columns hold text, label, id and source: as asked, else by their usual names."""
    asked, found = dict(options.manifest_columns or ()), {}
    for what, usual in (("text", TEXTS), ("label", LABELS), ("id", IDS), ("source", SOURCES)):
        if asked.get(what, names[0] if names else "") not in names:
            raise UsageError(f"{where}: no column {brief(asked[what])} for {what} (--columns); there are {some(names)}")
        known = [name for wanted in usual for name in names if name.lower() == wanted]
        found[what] = asked.get(what) or (known[0] if known else "")
    if not found["text"] or not found["label"]:
        what = "texts" if not found["text"] else "labels"
        raise UsageError(
            f"{where}: which column holds the {what}? There are {some(names)}; say it with columns "
            "(--columns text=COLUMN,label=COLUMN)"
        )
    return found


def _json_rows(raw: bytes, name: str, modality: Text) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            yield number, partial(_json_row, line, f"{name} row {number}", modality)


def _json_row(line: bytes, name: str, modality: Text) -> dict[str, Any]:
    try:
        found = json.loads(modality.read(line, name))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: cannot be read as JSON ({error})") from None
    if not isinstance(found, dict):
        raise DataError(f'{name}: a row is an object such as {{"text": ..., "label": ...}}; got {type(found).__name__}')
    return found


def _parquet_rows(file: Path) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    from pyarrow import ArrowException, parquet

    try:
        rows = parquet.read_table(file).to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{shown(file.name)}: cannot be read as parquet ({brief(str(error))})") from error
    for number, row in enumerate(rows, 1):
        yield number, partial(dict[str, Any], row)


def _csv_rows(raw: bytes, name: str, modality: Text) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
    text = modality.read(raw, name)
    csv.field_size_limit(2 * LONGEST)
    try:
        records = list(
            csv.reader(
                io.StringIO(text, newline=""), "excel-tab" if name.lower().endswith(".tsv") else "excel", strict=True
            )
        )
    except csv.Error as error:
        raise DataError(
            f"{name}: cannot be parsed as CSV ({error}); put texts with quotes or newlines in quotes"
        ) from None
    header = [one.strip() for one in records[0]] if records else []
    if len(set(header)) != len(header) or len(header) < 2:
        raise DataError(
            f"{name} row 1: the header must name columns for text and label, each once; got {some(header)}"
            f"{separator_advice(header)}"
        )
    for number, cells in enumerate(records[1:], 2):
        if cells:
            yield number, partial(_csv_row, header, cells, f"{name} row {number}")


def _csv_row(header: Sequence[str], cells: Sequence[str], name: str) -> dict[str, Any]:
    if len(cells) != len(header):
        raise DataError(f"{name}: {len(cells)} cells, the header has {len(header)}; quote commas in cells")
    return dict(zip(header, cells, strict=True))


def _listed_classes(path: Path) -> tuple[str, ...] | None:
    """The class names in classes.txt beside the files, one per line, for labels that are numbers."""
    file = path / "classes.txt"
    if not path.is_dir() or not file.is_file():
        return None
    return check_names(
        [line.strip() for line in Text().read(read_file(file, LONGEST), file.name).splitlines() if line.strip()]
    )
