"""CIFAR-10 and CIFAR-100 in their binary form: one record a picture, label bytes first, then 3 x 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from provnet.data.assemble import Opened, assemble
from provnet.data.files import read_file
from provnet.data.labels import check_names
from provnet.data.rules import OpenOptions
from provnet.errors import DataError, UsageError


def is_cifar10(folder: Path) -> bool:
    """Whether the folder holds the CIFAR-10 training batches."""
    return (folder / "data_batch_1.bin").is_file()


def is_cifar100(folder: Path) -> bool:
    """Whether the folder holds the CIFAR-100 training file."""
    return (folder / "train.bin").is_file()


def cifar_has_test(folder: Path) -> bool:
    """Whether the test batch lies beside the training batches."""
    return any((folder / name).is_file() for name in ("test_batch.bin", "test.bin"))


def open_cifar10(folder: Path, split: str, options: OpenOptions) -> Opened:
    """The 50,000 training pictures, the 10,000 test pictures, or all; names from batches.meta.txt."""
    return _open(folder, split, options, _CIFAR10)


def open_cifar100(folder: Path, split: str, options: OpenOptions) -> Opened:
    """The same for CIFAR-100 with its 100 fine labels; names from fine_label_names.txt."""
    return _open(folder, split, options, _CIFAR100)


class _Layout(NamedTuple):
    files: Mapping[str, tuple[str, ...]]
    names_file: str
    label_bytes: int
    classes: int


def _open(folder: Path, split: str, options: OpenOptions, layout: _Layout) -> Opened:
    files, names_file, label_bytes, classes = layout
    records, ids = [], []
    for part in ("train", "test") if split == "all" else (split,):
        batches = [_records(folder / name, label_bytes) for name in files[part]]
        records += batches
        ids += [f"{part}/{i}" for i in range(sum(len(batch) for batch in batches))]
    table = np.concatenate(records)
    labels = table[:, label_bytes - 1].astype(np.int64)  # the fine label comes last
    if int(labels.max()) >= classes:
        raise DataError(f"{folder}: label {int(labels.max())} found, labels must lie in 0..{classes - 1}")
    names = check_names(options.class_names or _names(folder / names_file, classes))
    if len(names) < classes:
        raise DataError(f"{folder}: {classes} classes, but {len(names)} class names")
    return assemble(table[:, label_bytes:], labels, names, ids, options=options, convert=_planes)


def _records(path: Path, label_bytes: int) -> np.ndarray:
    if not path.is_file():
        raise UsageError(f"{path.parent}: no {path.name}; unpack the binary version of the data set there")
    blob = np.frombuffer(read_file(path), np.uint8)
    width = label_bytes + 3 * 32 * 32
    if len(blob) == 0 or len(blob) % width:
        raise DataError(
            f"{path}: {len(blob):,} bytes are not a whole number of {width}-byte records; download it again"
        )
    return blob.reshape(-1, width)


def _planes(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, 3, 32, 32)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(i) for i in range(classes))
    lines = read_file(path, limit=2**20).decode("utf-8", "replace").split("\n")
    return tuple(line.strip() for line in lines if line.strip())


_CIFAR10 = _Layout(
    {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}, "batches.meta.txt", 1, 10
)
_CIFAR100 = _Layout({"train": ("train.bin",), "test": ("test.bin",)}, "fine_label_names.txt", 2, 100)
