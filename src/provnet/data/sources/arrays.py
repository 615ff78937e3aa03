"""numpy and torch arrays, and any map-style torch Dataset, as data with identity.

Pictures of bytes, (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3, become uint8 (N, C, H, W). Where both
readings are possible, channels first is taken. Whole numbers 0..255 of another type count as bytes, booleans as 0 and
255. Other numbers become float32; a 2-D array is vectors (N, F), float32. Pictures of other numbers may have any number
of channels, first; where they look like channels last they are refused, as 32 channels of 32 x 4 are no 4 of 32 x 32.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from provnet.base.batches import is_column
from provnet.base.errors import DataError, MemoryLimitError, NonFiniteError, ProvnetError, UnsafeFileError, UsageError
from provnet.base.files import DataWarning, check_memory, shown
from provnet.data.assemble import Opened, assemble, assemble_items, sample_ids, sample_sources
from provnet.data.modalities.decode import picture_array, whole_array
from provnet.data.modalities.image import converter
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.table import learn, take
from provnet.data.pictures import Entry, load_pictures
from provnet.data.rules import DecodeRule, OpenOptions, encode_labels


def open_arrays(
    images: Any, labels: Any, split: str, options: OpenOptions, ids: Any = None, sources: Any = None
) -> Opened:
    """Samples, each hashed by its own bytes and named by its id, else `split/position`; they may have no labels."""
    pictures = _pictures(images, options.values)
    raw = np.empty(0) if pictures else to_numpy(images, options.values)
    if not pictures:
        check_array(raw)
    answers, names = _encoded(labels, len(pictures) or len(raw), options)
    if pictures:
        opened = _loaded(pictures, answers, names, split, options, ids, sources)
    else:
        opened = _assemble_arrays(raw, answers, names, split, options, ids, sources)
    return opened if labels is not None else _without_labels(opened)


def _encoded(labels: Any, n: int, options: OpenOptions) -> tuple[np.ndarray, tuple[str, ...]]:
    """(n,) int64 and the names of the classes; one class stands for all while samples without labels are opened."""
    if labels is None:
        return np.zeros(n, np.int64), ("",)
    given = labels if isinstance(labels, list | tuple) else to_numpy(labels)
    return encode_labels(given, options.class_names)


def _without_labels(opened: Opened) -> Opened:
    return opened._replace(samples=replace(opened.samples, grouping=None))


def _pictures(images: Any, rule: DecodeRule) -> list[np.ndarray]:
    """The pictures of a list that holds PIL images, or bytes (H, W) and (H, W, 3) of several sizes; else none."""
    if not isinstance(images, list | tuple) or not images:
        return []
    arrays = [one for one in images if isinstance(one, np.ndarray) and one.dtype == np.uint8]
    several = len(arrays) == len(images) and len({one.shape for one in arrays}) > 1
    if not several and not all(isinstance(one, Image.Image) for one in images):
        return []
    found = [_whole(one, f"picture {i}", rule) for i, one in enumerate(images)]
    return found if all(one.ndim == 2 or (one.ndim == 3 and one.shape[2] == 3) for one in found) else []


def _whole(one: Any, name: str, rule: DecodeRule) -> np.ndarray:
    return whole_array(one, name, rule) if isinstance(one, Image.Image) else np.asarray(one)


def _loaded(
    pictures: list[np.ndarray],
    labels: np.ndarray,
    names: tuple[str, ...],
    split: str,
    options: OpenOptions,
    ids: Any,
    sources: Any,
) -> Opened:
    """Pictures in memory, of one size or of several."""
    if len(pictures) != len(labels):
        raise DataError(f"{len(pictures)} images but {len(labels)} labels; give one label per picture")
    named, givers = sample_ids(ids, split, len(pictures)), sample_sources(sources, len(pictures))
    entries = [
        Entry(None, name, name, int(label), source, partial(np.asarray, picture))
        for picture, label, name, source in zip(pictures, labels, named, givers, strict=True)
    ]
    return load_pictures(entries, names, options)


def open_frame(
    frame: Any, labels: Any, split: str, options: OpenOptions, ids: Any = None, sources: Any = None
) -> Opened:
    """Rows of a DataFrame; labels, ids and sources are columns, by name, or one value a row."""
    beside, given = [], {"labels": labels, "ids": ids, "sources": sources}
    for what, value in given.items():
        if isinstance(value, str):
            beside.append(value)
            given[what] = take(frame, value, what)
    if given["labels"] is None:
        raise UsageError(
            "a DataFrame needs labels, the name of a column or one label per row: open_data(frame, labels='income')"
        )
    if any(one is None for one in given["labels"]):
        raise DataError("labels are missing in some rows; leave these rows out")
    table, rows = learn(frame, beside)
    answers = given["labels"] if isinstance(given["labels"], list | tuple) else to_numpy(given["labels"])
    encoded = encode_labels(answers, options.class_names)
    return assemble_items(rows, encoded, table, split, options, given["ids"], given["sources"])


def open_items(
    items: Any, labels: Any, modality: Modality, split: str, options: OpenOptions, ids: Any = None, sources: Any = None
) -> Opened:
    """Samples of a modality that was given, such as texts in a list; they may have no labels."""
    found = list(items)
    encoded = _encoded(labels, len(found), options)
    opened = assemble_items(found, encoded, modality, split, options, ids, sources)
    return opened if labels is not None else _without_labels(opened)


def open_dataset(dataset: Any, split: str, options: OpenOptions, ids: Any = None, sources: Any = None) -> Opened:
    """A map-style Dataset of (picture, label) pairs; pictures are PIL images, arrays or tensors of one shape."""
    pictures, labels, are_whole = [], [], True
    for i in range(len(dataset)):
        try:
            item = dataset[i]
        except ProvnetError:
            raise
        except Exception as error:  # whatever the code of others raises
            raise DataError(f"item {i} of the Dataset cannot be read ({type(error).__name__}: {error})") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {i} of the Dataset must be a pair (image, label), got {type(item).__name__}")
        picture, label = item
        is_picture = isinstance(picture, Image.Image)
        pictures.append(whole_array(picture, f"item {i}", options.rule) if is_picture else to_numpy(picture))
        are_whole = are_whole and is_picture
        labels.append(label.item() if hasattr(label, "item") else label)
    if not pictures:
        raise UsageError("the Dataset is empty; at least one sample is needed")
    known = getattr(dataset, "classes", None)
    if options.class_names is None and known is not None and all(isinstance(label, int) for label in labels):
        answers, names = encode_labels(labels, tuple(str(name) for name in known))
    else:
        answers, names = encode_labels(labels, options.class_names)
    if are_whole:
        return _loaded(pictures, answers, names, split, options, ids, sources)
    shapes = Counter(f"{picture.dtype} {picture.shape}" for picture in pictures)
    if len(shapes) > 1:
        listed = ", ".join(f"{shape}: {n}" for shape, n in shapes.most_common(8))
        raise DataError(f"the items of the Dataset differ in type or shape ({listed}); bring them to one size and mode")
    raw = np.stack(pictures)
    check_array(raw)
    return _assemble_arrays(raw, answers, names, split, options, ids, sources)


def _assemble_arrays(
    raw: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    split: str,
    options: OpenOptions,
    ids: Any,
    sources: Any,
) -> Opened:
    named, givers = sample_ids(ids, split, len(raw)), sample_sources(sources, len(raw))
    return assemble(raw, labels, names, named, options=options, convert=converter(raw), sources=givers)


def to_numpy(values: Any, rule: DecodeRule | None = None) -> np.ndarray:
    """A numpy view or copy of an array, tensor or list; what cannot be one is refused in words.

    PIL images in a list are read as files are: as an array a palette would be its numbers, not its colours.

    >>> to_numpy(torch.zeros(2, 3)).shape, to_numpy([Image.new("P", (4, 3))]).shape
    ((2, 3), (1, 3, 4, 3))
    """
    if isinstance(values, torch.Tensor):
        dense = values.detach().to_dense() if values.is_sparse else values.detach()
        return np.asarray((dense.float() if dense.dtype == torch.bfloat16 else dense).cpu().numpy())
    if isinstance(values, Dataset | DataLoader):  # numpy would call its items samples of different shapes
        way = "loader.dataset" if isinstance(values, DataLoader) else "..."
        raise UsageError(f"expected arrays, got {type(values).__name__}; open it first: provnet.open_data({way})")
    if np.ma.is_masked(values):
        count = int(np.ma.getmaskarray(values).sum())
        raise DataError(
            f"{count:,} values are masked, so they are missing; fill them first, or leave their samples out"
        )
    if isinstance(values, list | tuple) and any(isinstance(one, Image.Image) for one in values):
        values = [
            picture_array(one, f"picture {i}", rule or DecodeRule()) if isinstance(one, Image.Image) else one
            for i, one in enumerate(values)
        ]
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"the values do not form an array: all samples must have the same shape ({error})") from None


def check_array(values: np.ndarray) -> None:
    """Refuse what cannot be samples: text, objects, complex numbers, wrong rank, nothing, NaN or infinity."""
    if values.dtype.kind not in "biuf":
        what = {"O": "Python objects", "c": "Complex data", "U": "text", "S": "text"}.get(
            values.dtype.kind, "this type"
        )
        raise DataError(f"{what} not supported (dtype {values.dtype}); give numbers: uint8 pictures or floats")
    if values.ndim not in (2, 3, 4):
        raise DataError(
            f"Expected 2D array (vectors) or images (N, H, W), (N, H, W, C), (N, C, H, W); got {values.ndim}D array "
            f"of shape {values.shape}. Reshape your data"
        )
    if 0 in values.shape:
        raise DataError(
            f"Found array with 0 sample(s) or 0 feature(s) (shape {values.shape}); at least one is required"
        )
    if values.dtype.kind == "f":
        single = float(np.finfo(np.float32).max)
        low, high = float(values.min()), float(values.max())  # NaN and infinity show in either
        if np.isnan(low) or np.isnan(high):
            first = int(np.argwhere(np.isnan(values))[0][0])
            raise NonFiniteError(
                f"Input X contains NaN, first in row {first}; every value must be a finite number: leave such samples "
                "out, or fill them in"
            )
        if low < -single or high > single:
            raise NonFiniteError(f"Input X contains infinity or a value too large for float32 ({low:g}..{high:g})")


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
    if not is_column(values) or values.dtype.kind != "U":
        raise DataError(f"{path}: class_names must be a list of text, got {values.dtype} of shape {values.shape}")
    return tuple(str(name) for name in values)


_COLUMNS = ("images", "labels", "ids", "sources")  # one entry a sample
_WANTED = ("class_names", *_COLUMNS, *(f"test_{name}" for name in _COLUMNS))
