"""Data sets that the tests make: pictures, folders, idx, CIFAR and PNG files with known content."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encode(picture: np.ndarray | Image.Image, kind: str = "PNG", **options: object) -> bytes:
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_folder(root: Path, files: Mapping[str, np.ndarray | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else encode(content))
    return root


def pictures(*names: str, shape: tuple[int, ...] = (6, 5)) -> dict[str, np.ndarray]:
    return {name: noise(shape, seed) for seed, name in enumerate(names)}


def idx_bytes(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(folder: Path, train: int = 20, test: int = 10, packed: bool = False) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for stem, n, seed in (("train", train, 1), ("t10k", test, 2)):
        made[f"{stem}-images-idx3-ubyte"] = noise((n, 28, 28), seed)
        made[f"{stem}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
    for name, values in made.items():
        blob = idx_bytes(values)
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(blob) if packed else blob)
    return made


def write_cifar10(folder: Path, per_batch: int = 4) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    everything = []
    for seed, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        records = noise((per_batch, 3073), seed)
        records[:, 0] = (np.arange(per_batch) + seed) % 10
        (folder / name).write_bytes(records.tobytes())
        everything.append(records)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    return np.concatenate(everything)


def write_cifar100(folder: Path, n: int = 6) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    everything = []
    for seed, name in enumerate(("train.bin", "test.bin")):
        records = noise((n, 3074), seed)
        records[:, 0] = 3  # the coarse label
        records[:, 1] = np.arange(n) * 7 % 100
        (folder / name).write_bytes(records.tobytes())
        everything.append(records)
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine{i}" for i in range(100)) + "\n")
    return np.concatenate(everything)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(
    width: int,
    height: int,
    *,
    rows: bytes | None = None,
    before: bytes = b"",
    after: bytes = b"",
    depth: int = 8,
    colour: int = 0,
    interlaced: int = 0,
) -> bytes:
    """A PNG made by hand; without `rows` at most 50 rows of grey 16, whatever the height says."""
    raw = rows if rows is not None else (b"\x00" + b"\x10" * width) * min(height, 50)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + before
        + chunk(b"IDAT", zlib.compress(raw))
        + after
        + chunk(b"IEND", b"")
    )
