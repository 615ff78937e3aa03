"""idx files, the format of MNIST and FashionMNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from provnet.base.errors import DataError, UsageError
from provnet.base.files import read_file
from provnet.data.assemble import Opened, assemble
from provnet.data.modalities.image import channels_first
from provnet.data.rules import OpenOptions, check_names


def find_idx(folder: Path) -> Path | None:
    """The folder that holds the four idx files: the one given, or `raw` inside it.

    >>> find_idx(Path("/nonexistent")) is None
    True
    """
    return next((place for place in (folder, folder / "raw") if _part(place, "train", "images")), None)


def idx_has_test(folder: Path) -> bool:
    """Whether the files of the test split lie beside those of the training split."""
    return _part(folder, "test", "images") is not None and _part(folder, "test", "labels") is not None


def read_idx(path: Path) -> np.ndarray:
    """One idx file of bytes as an array; magic, sizes and length are checked, nothing larger is unpacked."""
    blob = read_file(path)
    packed = blob[:2] == b"\x1f\x8b"
    try:
        stream = gzip.GzipFile(fileobj=io.BytesIO(blob)) if packed else io.BytesIO(blob)
        magic = stream.read(4)
        if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or not 1 <= magic[3] <= 4:
            raise DataError(f"{path}: not an idx file of bytes (it begins with 00 00 08 and its number of dimensions)")
        header = stream.read(4 * magic[3])
        if len(header) < 4 * magic[3]:
            raise DataError(f"{path}: cut short within its header; download it again")
        shape = tuple(int(side) for side in np.frombuffer(header, ">u4"))
        expected = math.prod(shape)
        most = len(blob) * (_GZIP_RATIO if packed else 1)
        content = stream.read(min(expected, most) + 1)  # one more, to notice what is too long
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged or cut short ({error}); download it again") from error
    if len(content) != expected:
        found = f"{len(content):,}" if len(content) < expected else "more"
        raise DataError(
            f"{path}: the header promises {shape}, {expected:,} bytes, there are {found}; download it again"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def open_idx(folder: Path, split: str, options: OpenOptions) -> Opened:
    """Pictures and labels of one split, or of both (`all`)."""
    wanted = ("train", "test") if split == "all" else (split,)
    images, labels, ids = [], [], []
    for part in wanted:
        pixels, answers = (read_idx(_need(folder, part, kind)) for kind in ("images", "labels"))
        if pixels.ndim not in (3, 4) or answers.ndim != 1 or len(pixels) != len(answers):
            raise DataError(
                f"{folder}: images of shape {pixels.shape} and labels of shape {answers.shape} do not match"
            )
        images.append(pixels)
        labels.append(answers)
        ids += [f"{part}/{i}" for i in range(len(pixels))]
    if len({pixels.shape[1:] for pixels in images}) > 1:
        raise DataError(f"{folder}: training and test pictures differ in size: {[p.shape[1:] for p in images]}")
    raw = images[0] if len(images) == 1 else np.concatenate(images)
    answers = np.concatenate(labels).astype(np.int64)
    highest = int(answers.max()) if len(answers) else 0
    numbers = tuple(str(i) for i in range(max(10, highest + 1)))
    own = folder.parent if folder.name == "raw" else folder  # the files themselves hold no names
    usual = FASHION_NAMES if "fashion" in own.name.lower() else numbers
    names = check_names(options.class_names or usual)
    if highest >= len(names):
        raise DataError(f"{folder}: label {highest} found, but only {len(names)} class names")
    return assemble(raw, answers, names, ids, options=options, convert=_channels)


def _channels(pixels: np.ndarray) -> np.ndarray:
    return channels_first(pixels)


def _part(folder: Path, split: str, kind: str) -> Path | None:
    stem = {"train": "train", "test": "t10k"}[split]
    rank = {"images": 3, "labels": 1}[kind]
    names = (f"{stem}-{kind}{dot}idx{rank}-ubyte{end}" for dot in "-." for end in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _need(folder: Path, split: str, kind: str) -> Path:
    found = _part(folder, split, kind)
    if found is None:
        stem = {"train": "train", "test": "t10k"}[split]
        rank = {"images": 3, "labels": 1}[kind]
        raise UsageError(f"{folder}: no {stem}-{kind}-idx{rank}-ubyte (plain or .gz), which the {split} split needs")
    return found


FASHION_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_GZIP_RATIO = 1040  # deflate packs at most so well


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
