"""Openings with and without a cache, compared, and changes that files undergo."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from PIL import Image

from provnet.data.assemble import Opened
from provnet.data.rules import make_options
from provnet.data.sources.folder import open_folder
from tests.data.made import encode

TICK = 25_000_000  # ns; longer than the steps of any file system's clock here


def aged(place: Path) -> Path:
    time.sleep(1.2 * TICK / 1e9)
    return place


def opened(root: Path, cache: Path | None, **options: object) -> Opened:
    return open_folder(root, "train", make_options({**options, "cache": False if cache is None else cache}))


def assert_equal(one: Opened, two: Opened) -> None:
    for name in ("sample_ids", "class_names", "paths", "sources"):
        assert getattr(one.samples, name) == getattr(two.samples, name)
    for name in ("sha256", "pixel_sha256", "labels"):
        assert np.array_equal(getattr(one.samples, name), getattr(two.samples, name)), name
    assert np.array_equal(one.images.numpy(), two.images.numpy())
    assert one.skipped == two.skipped


def files(kept: Path) -> list[Path]:
    return sorted(kept.iterdir()) if kept.exists() else []


def sneak(path: Path) -> None:
    """Other pixels in as many bytes, and the old time of modification."""
    before = path.stat()
    with Image.open(path) as image:
        pixels = np.array(image)
    path.write_bytes(encode(pixels ^ 1, compress_level=0)[: before.st_size].ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def restore(path: Path, before: os.stat_result) -> None:
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
