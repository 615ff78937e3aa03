"""SHA-256 of samples: of their raw content and of the decoded picture."""

from __future__ import annotations

import hashlib

import numpy as np


def hash_bytes(blob: bytes) -> np.ndarray:
    """SHA-256 of one file's bytes, as (32,) uint8.

    >>> hash_bytes(b"")[:2].tolist()
    [227, 176]
    """
    return np.frombuffer(hashlib.sha256(blob).digest(), dtype=np.uint8)


def hash_rows(rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
    """SHA-256 of each row's bytes (C order, little-endian), as (N, 32) uint8.

    >>> bool((hash_rows(np.zeros((1, 3), np.uint8))[0] == hash_bytes(bytes(3))).all())
    True
    """
    little = rows.astype(rows.dtype.newbyteorder("<"), copy=False)
    flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    count = len(rows)
    width = len(flat) // count if count else 0
    view = flat.data
    start = hashlib.sha256(prefix)
    out = bytearray()
    for offset in range(0, count * width, width) if width else [0] * count:
        digest = start.copy()
        digest.update(view[offset : offset + width])
        out += digest.digest()
    return np.frombuffer(bytes(out), dtype=np.uint8).reshape(count, 32)


def hash_pixels(images: np.ndarray) -> np.ndarray:
    """SHA-256 of each picture as the network receives it, (N, C, H, W) or (N, F); type and shape count too.

    >>> a, b = np.zeros((1, 1, 2, 3), np.uint8), np.zeros((1, 1, 3, 2), np.uint8)
    >>> bool((hash_pixels(a) == hash_pixels(b)).all())
    False
    """
    header = f"{images.dtype.name} {'x'.join(str(side) for side in images.shape[1:])}\n"
    return hash_rows(images, header.encode("ascii"))
