""".npz files with `images` and `labels`, optionally `ids`, `sources`, `class_names`; with `test_` those for testing."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np

from provnet.data.arrays import check_array, converter
from provnet.data.assemble import Opened, assemble, sample_ids, sample_sources
from provnet.data.files import DataWarning, check_memory, shown
from provnet.data.labels import encode_labels
from provnet.data.rules import OpenOptions
from provnet.errors import DataError, MemoryLimitError, UnsafeFileError, UsageError


def npz_has_test(path: Path) -> bool:
    """Whether the file holds a test split."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"test_images.npy", "test_labels.npy"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def open_npz(path: Path, split: str, options: OpenOptions) -> Opened:
    """Pictures or vectors and labels of one split, or of both (`all`); object arrays are never read."""
    arrays, unknown = _load(path)
    if not {"images", "labels"} <= set(arrays):
        found = shown(", ".join(sorted([*arrays, *unknown])))[:200]
        raise DataError(f"{path}: needs the arrays `images` and `labels`, found {found}; save them under these names")
    has_test = {"test_images", "test_labels"} <= set(arrays)
    unused = sorted(unknown if has_test else {*unknown, *(name for name in arrays if name.startswith("test_"))})
    if unused:
        warnings.warn(f"{path}: arrays not used: {shown(', '.join(unused))[:200]}", DataWarning, stacklevel=2)
    if split == "test" and not has_test:
        raise UsageError(f"{path}: no test split (`test_images`, `test_labels`); add them, or use split train or all")
    prefixes = {"train": "", "test": "test_"} if has_test else {"train": ""}
    parts = list(prefixes) if split == "all" else [split]
    given = options.class_names or (_names(arrays["class_names"], path) if "class_names" in arrays else None)
    try:
        answers = [arrays[f"{prefix}labels"] for prefix in prefixes.values()]
        labels, names = encode_labels(np.concatenate(answers), given)  # one numbering for both splits
        ends = np.cumsum([len(one) for one in answers])
        encoded = dict(zip(prefixes, np.split(labels, ends[:-1]), strict=True))
        raw = np.concatenate([arrays[f"{prefixes[p]}images"] for p in parts])
        check_array(raw)
        ids, sources = list[str](), list[str | None]()
        for p in parts:
            count = len(arrays[f"{prefixes[p]}images"])
            ids += sample_ids(arrays.get(f"{prefixes[p]}ids"), p, count)
            sources += sample_sources(arrays.get(f"{prefixes[p]}sources"), count)
        return assemble(
            raw,
            np.concatenate([encoded[p] for p in parts]),
            names,
            ids,
            options=options,
            convert=converter(raw),
            sources=sources,
        )
    except (DataError, ValueError) as error:
        kind = type(error) if isinstance(error, DataError) else DataError
        raise kind(f"{path}: {error}") from error


def _load(path: Path) -> tuple[dict[str, np.ndarray], set[str]]:
    """The arrays that have a meaning here, and the names of all others, which are not read."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_memory(sum(entry.file_size for entry in archive.infolist()), f"the arrays of {path}")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name in _WANTED}, set(file.files) - set(_WANTED)
    except MemoryLimitError:
        raise
    except MemoryError as error:
        raise MemoryLimitError(f"{path}: its arrays do not fit into memory") from error
    except ValueError as error:
        if "pickle" in str(error).lower() or "object" in str(error).lower():
            raise UnsafeFileError(
                f"{path}: holds object arrays, which can run code; save plain numbers or text"
            ) from error
        raise DataError(f"{path}: cannot be read as .npz ({error})") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, SyntaxError, NotImplementedError) as error:
        raise DataError(f"{path}: cannot be read as .npz ({error}); it may be damaged or cut short") from error


def _names(values: np.ndarray, path: Path) -> tuple[str, ...]:
    if values.ndim != 1 or values.dtype.kind != "U":
        raise DataError(f"{path}: class_names must be a list of text, got {values.dtype} of shape {values.shape}")
    return tuple(str(name) for name in values)


_COLUMNS = ("images", "labels", "ids", "sources")  # one entry a sample
_WANTED = ("class_names", *_COLUMNS, *(f"test_{name}" for name in _COLUMNS))
