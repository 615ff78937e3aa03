"""One file of the picture cache: safetensors with paths, stamps, hashes and pixels, checked in full when it is read."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from provnet import atomic
from provnet.data.files import DataWarning, shown


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
        if types != (np.uint8, np.uint8, "U8") or rows.ndim != 2 or rows.shape[1] != RECORD.itemsize:
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


FORMAT = "provnet pictures 1"
RECORD = np.dtype([("stamp", "<u8", 5), ("sha256", "u1", 32), ("pixel_sha256", "u1", 32), ("frames", "<i8")])
