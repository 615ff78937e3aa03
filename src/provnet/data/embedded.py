"""The two data sets that need no download: 5,000 MNIST digits inside provnet, and scikit-learn's digits."""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from pathlib import Path

import numpy as np

from provnet.data.assemble import Opened, assemble
from provnet.data.files import read_file
from provnet.data.labels import check_names
from provnet.data.rules import OpenOptions
from provnet.errors import IntegrityError


def open_embedded(split: str, options: OpenOptions) -> Opened:
    """5,000 real MNIST digits, 500 a class: 4,000 for training, 1,000 for testing."""
    values = np.frombuffer(_content(), np.uint8)
    raw, labels = values[: N * SIDE * SIDE].reshape(N, SIDE, SIDE), values[N * SIDE * SIDE :].astype(np.int64)
    rows = {"train": slice(0, TRAIN), "test": slice(TRAIN, N), "all": slice(0, N)}[split]
    ids = [f"train/{i}" for i in range(TRAIN)] + [f"test/{i}" for i in range(N - TRAIN)]
    names = check_names(options.class_names or DIGITS)
    return assemble(raw[rows], labels[rows], names, ids[rows], options=options, convert=lambda pixels: pixels[:, None])


@cache
def _content() -> bytes:
    """What mnist5k.xz holds, 4 MB: kept, as unpacking takes longer than everything else."""
    blob = read_file(Path(__file__).parent / "embedded" / "mnist5k.xz")
    try:
        content = lzma.decompress(blob)
    except lzma.LZMAError:
        content = b""
    if hashlib.sha256(content).hexdigest() != CONTENT_SHA256:
        raise IntegrityError("the embedded data set mnist5k.xz is damaged; install provnet again")
    return content


def open_digits(split: str, options: OpenOptions) -> Opened:
    """scikit-learn's 1,797 digits of 8 x 8 pixels; 0..16 becomes 0..255. A fifth, chosen by hash, is for testing."""
    from sklearn.datasets import load_digits

    found = load_digits()
    raw = found.images.astype(np.uint8)
    labels = found.target.astype(np.int64)
    held = np.array([hashlib.sha256(picture.tobytes()).digest()[0] < 51 for picture in raw])  # 51/256: a fifth
    keep = {"train": ~held, "test": held, "all": np.ones(len(raw), dtype=bool)}[split]
    ids = [f"digits/{i}" for i in np.flatnonzero(keep)]
    names = check_names(options.class_names or DIGITS)
    return assemble(raw[keep], labels[keep], names, ids, options=options, convert=_stretch)


def _stretch(pixels: np.ndarray) -> np.ndarray:
    return ((pixels.astype(np.uint16) * 255 + 8) // 16).astype(np.uint8)[:, None]


N, TRAIN, SIDE = 5000, 4000, 28
DIGITS = tuple(str(digit) for digit in range(10))
CONTENT_SHA256 = "06b69b713aaf414129f7ba158b56a0e5f2d4d970d46113e5405ad59e5f9095df"
