"""Pictures that were decoded and hashed once, kept on disk for the next opening of the same folder.

Decoding takes nearly all the time of an opening and the two SHA-256 a few per cent of it, so what is kept is the pixels
(as the network receives them) beside the hashes. A kept picture is used only if all of this holds:
- path, size, modification time, change time, inode and device of its file are the same. Programs can set the time of
  modification back, but not the time of change;
- it was decoded by the same rule, the same source code and the same Pillow (all part of the cache file's name);
- its pixels have the SHA-256 that stands beside them, computed again at every opening.
A file that was changed less than two seconds before it was read is not kept: the next edit could get the same time.
The SHA-256 of the file's bytes is the one thing taken on trust, which is why a file is hashed again before its picture
is shown as evidence. Whoever can write to the cache can change what it says: it belongs into a folder of one's own.

Each opening that met new pictures adds one safetensors file; after a while they are joined into one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import secrets
import stat
import time
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.features
from PIL import ImageFile
from safetensors import SafetensorError, safe_open

from provnet.base import atomic
from provnet.base.batches import is_matrix
from provnet.base.errors import ProvnetError
from provnet.base.files import DataWarning, read_file, shown
from provnet.data.rules import DecodeRule
from provnet.samples.identity import hash_pixels


class Part(NamedTuple):
    """One file of the cache: row i of each belongs to one picture."""

    file: Path
    paths: list[str]
    records: np.ndarray
    pixels: np.ndarray  # uint8 (n, C, H, W), on disk


def read_part(path: Path, key: str) -> Part | None:
    """A file of the cache, checked; None with a warning where it is damaged or not what its name says."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            rows, names = file.get_tensor("rows"), file.get_tensor("paths")
            pixels = file.get_slice("pixels")
            shape = tuple(pixels.get_shape())
            types = rows.dtype, names.dtype, pixels.get_dtype()
        if types != (np.uint8, np.uint8, "U8") or not is_matrix(rows) or rows.shape[1] != RECORD.itemsize:
            raise ValueError("it holds something else")
        if about.get("sha256") != _digest(key, shape, rows, names):
            raise ValueError("its SHA-256 is another")
        paths = os.fsdecode(names.tobytes()).split("\0")
        if not len(paths) == len(rows) == shape[0]:
            raise ValueError(f"{len(paths)} paths, {len(rows)} rows, {shape[0]} pictures")
        mapped = np.memmap(path, np.uint8, "r", path.stat().st_size - math.prod(shape), shape)
        return Part(path, paths, rows.view(RECORD)[:, 0], np.asarray(mapped))
    except FileNotFoundError:
        return None  # another process joined the files meanwhile
    except (OSError, ValueError, KeyError, IndexError, SafetensorError) as error:
        why = shown(" ".join(str(error).split()))
        message = f"{shown(str(path))} is no picture cache that can be used ({why}); the pictures are read anew"
        warnings.warn(message, DataWarning, stacklevel=6)
        return None


def write_part(
    goal: Path,
    key: str,
    paths: Sequence[str],
    records: np.ndarray,
    sides: tuple[int, ...],
    pixels: Iterable[np.ndarray],
) -> None:
    """Write one file of the cache, whole or not at all; the pixels come last, so that they can be mapped."""
    shape = (len(paths), *sides)
    rows = records.view(np.uint8).reshape(len(records), -1)
    names = np.frombuffer(b"\0".join(os.fsencode(path) for path in paths), dtype=np.uint8)
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, "sha256": _digest(key, shape, rows, names)}}
    end = 0
    for name, extent in (("rows", rows.shape), ("paths", names.shape), ("pixels", shape)):
        start, end = end, end + math.prod(extent)
        header[name] = {"dtype": "U8", "shape": extent, "data_offsets": (start, end)}
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    with atomic.explain_disk(goal, end):
        goal.parent.mkdir(parents=True, exist_ok=True)
        atomic.sweep(goal.parent)
        temp = atomic.temporary_name(goal)
        with atomic.in_use(temp):
            try:
                with temp.open("xb") as file:
                    file.write(len(text).to_bytes(8, "little") + text)
                    for block in chain((rows, names), pixels):
                        file.write(np.ascontiguousarray(block).data)
                    file.flush()
                    os.fsync(file.fileno())
                temp.replace(goal)
                atomic.sync_folder(goal.parent)
            finally:
                atomic.remove(temp)


def _digest(key: str, shape: tuple[int, ...], rows: np.ndarray, names: np.ndarray) -> str:
    """SHA-256 of everything in a file but the pixels, which have their own."""
    digest = hashlib.sha256(f"{FORMAT} {key} {shape}\n".encode())
    digest.update(np.ascontiguousarray(rows).data)
    digest.update(np.ascontiguousarray(names).data)
    return digest.hexdigest()


FORMAT = "provnet pictures 2"
RECORD = np.dtype(
    [
        *(("stamp", "<u8", 5), ("sha256", "u1", 32), ("pixel_sha256", "u1", 32), ("view_sha256", "u1", 32)),
        *(("shape", "<i8", 3), ("frames", "<i8")),
    ]
)


Stamp = tuple[int, int, int, int, int]  # size, modified, changed (ns), inode, device; as unsigned 64-bit


class Picture(NamedTuple):
    """One decoded picture with everything that is kept of it; `stamp` is None where its file must not be kept.

    `pixels` (C, H, W) are those that the network receives, `shape` is that of the whole picture.
    """

    pixels: np.ndarray
    sha256: np.ndarray
    pixel_sha256: np.ndarray
    view_sha256: np.ndarray
    shape: tuple[int, ...]
    frames: int
    stamp: Stamp | None = None


def read_stamped(path: Path, limit: int, name: str) -> tuple[bytes, Stamp | None]:
    """The bytes of a file and the stamp they belong to, or None where the file is too young or changed meanwhile."""
    start = time.time_ns()
    try:
        with open(path, "rb", opener=_without_waiting) as file:  # one descriptor for bytes and stamp
            before = os.fstat(file.fileno())
            if stat.S_ISREG(before.st_mode) and before.st_size <= limit:
                blob, stamp = file.read(), stamp_of(before)
                same = stamp_of(os.fstat(file.fileno())) == stamp and len(blob) == before.st_size
                old = start - max(before.st_mtime_ns, before.st_ctime_ns) >= YOUNG
                return blob, stamp if same and old else None
    except OSError:
        pass
    return read_file(path, limit, name), None  # says what is wrong with it


def stamp_of(found: os.stat_result) -> Stamp:
    """What tells that a file is the one that was read: any edit changes at least the time of change."""
    values = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
    size, modified, changed, inode, device = (value % 2**64 for value in values)
    return size, modified, changed, inode, device


def open_cache(folder: str | None, root: Path, rule: DecodeRule) -> PictureCache | None:
    """The cache for the pictures below a root under a rule, or None where there is to be none."""
    if folder is None:
        return None
    if os.name == "nt":  # what Windows calls the time of change is that of creation
        _warn("the picture cache needs a system that keeps the time of a file's change; this one does not")
        return None
    return PictureCache(Path(folder), root, _key(root, rule))


class PictureCache:
    """The kept pictures of one root and rule: `find` gives those that still hold, `save` adds new ones."""

    def __init__(self, folder: Path, root: Path, key: str) -> None:
        self.folder, self.root, self.key = folder, root, key
        self.damaged = 0
        self._files = sorted(path for path in folder.glob(f"{key}-*.safetensors") if path.is_file())
        self._parts = [part for path in self._files if (part := read_part(path, key)) is not None]
        self._starts = np.cumsum([0, *(len(part.records) for part in self._parts)])
        self._records = np.concatenate([np.empty(0, RECORD), *(part.records for part in self._parts)])
        paths = [path for part in self._parts for path in part.paths]
        self._rows = {path: row for row, path in enumerate(paths)}  # counted through all parts; later ones win

    def find(self, files: Sequence[tuple[str, Path]]) -> list[Picture | None]:
        """For each (path from the root, file): its picture, or None where it is not kept or does not hold any more."""
        found: list[Picture | None] = [None] * len(files)
        places, rows = self._matching(files)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            pixels = self._parts[number].pixels[rows[here] - self._starts[number]]  # a copy: what is checked is used
            records = self._records[rows[here]]
            good = (hash_pixels(pixels) == records["view_sha256"]).all(1)
            self.damaged += int((~good).sum())
            for i in np.flatnonzero(good).tolist():
                record = records[i]
                raw, whole, view = (record[name] for name in ("sha256", "pixel_sha256", "view_sha256"))
                shape = tuple(record["shape"].tolist())
                found[places[here[i]]] = Picture(pixels[i], raw, whole, view, shape, int(record["frames"]))
        return found

    def save(self, fresh: Sequence[tuple[int, str, Picture]], images: np.ndarray) -> None:
        """Add pictures that were read anew, as (row of `images`, path, picture); a failure is a warning, no error."""
        if self.damaged:
            _warn(f"{self.damaged:,} pictures of the cache in {shown(str(self.folder))} were damaged and read anew")
        if not fresh:
            return
        old = np.empty(0, np.int64)
        new = {path for _, path, _ in fresh}
        join = len(self._parts) >= PARTS or len(self._records) + len(new) > 2 * len(self._rows.keys() | new)
        if join:  # what still holds goes into the new file as well, and the old files go
            _, old = self._matching([(path, self.root / path) for path in self._rows if path not in new])
            old = old[[self._pixels(row).shape == images.shape[1:] for row in old.tolist()]]
        added = np.empty(len(fresh), RECORD)
        for name in RECORD.fields or ():
            added[name] = np.array([getattr(picture, name) for _, _, picture in fresh], RECORD[name].base)
        names = {row: path for path, row in self._rows.items()}
        goal = self.folder / f"{self.key}-{time.time_ns():020}-{secrets.token_hex(4)}.safetensors"
        try:
            write_part(
                goal,
                self.key,
                [*(names[row] for row in old.tolist()), *(path for _, path, _ in fresh)],
                np.concatenate([self._records[old], added]),
                images.shape[1:],
                chain((self._pixels(row) for row in old.tolist()), (images[place] for place, _, _ in fresh)),
            )
        except ProvnetError as error:
            _warn(f"the picture cache was not written: {error}")
            return
        useful = {part.file for part in self._parts}
        for path in self._files:
            if join or path not in useful:
                atomic.remove(path)

    def _matching(self, files: Sequence[tuple[str, Path]]) -> tuple[list[int], np.ndarray]:
        """Which of the files are kept under the stamp that they have now, and in which row."""
        places, rows, stamps = [], [], []
        for place, (path, file) in enumerate(files):
            row = self._rows.get(path)
            if row is None:
                continue
            try:
                stamps.append(stamp_of(os.stat(file)))  # noqa: PTH116 - a million times: without a Path's detour
            except OSError:
                continue  # reading it will say what is wrong
            places.append(place)
            rows.append(row)
        found = np.array(rows, dtype=np.int64)
        same = (np.array(stamps, dtype=np.uint64).reshape(-1, 5) == self._records["stamp"][found]).all(1)
        return [place for place, holds in zip(places, same.tolist(), strict=True) if holds], found[same]

    def _pixels(self, row: int) -> np.ndarray:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return np.asarray(self._parts[number].pixels[row - self._starts[number]])


def _key(root: Path, rule: DecodeRule) -> str:
    """Names the pictures below one root, decoded in one way."""
    facts = (FORMAT, os.path.realpath(root), rule, _decoder(), ImageFile.LOAD_TRUNCATED_IMAGES)
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


@cache
def _decoder() -> tuple[str, ...]:
    """What turns files into pixels here: our own source, Pillow and its libraries."""
    folder = Path(__file__).parent
    source = b"".join((folder / name).read_bytes() for name in _SOURCES)
    parts = [f"{name} {PIL.features.version(name)}" for name in ("pil", "jpg", "zlib", "webp", "libtiff")]
    return hashlib.sha256(source).hexdigest(), np.__version__, platform.machine(), *parts


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=5)


YOUNG = 2_000_000_000  # ns
PARTS = 8  # files of the cache before they are joined into one
_SOURCES = ("modalities/decode.py", "pictures.py", "rules.py", "../samples/identity.py")
