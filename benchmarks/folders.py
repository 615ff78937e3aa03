"""How long it takes to open an image folder, first and again, with and without the picture cache; prints JSON.

Usage: python benchmarks/folders.py [--small N] [--large N] [--million] [--repeats N] [--place DIR]
Small: N PNG files of 32 x 32 pixels. Large: N JPEG files of 2000 x 1600, opened at 128 x 128. `--million`: the small
files under 1,000,000 names (hard links: the same bytes, but every name is listed, looked up and read by itself).
The pictures are made before the clock starts and lie in the system's memory, so that the disk does not count.
`seconds` is the best of the repeats, which take turns. `parts` are measured one by one in one thread, without the pool.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from machine import machine
from PIL import Image

from provnet.base.files import read_file
from provnet.data.cache import open_cache
from provnet.data.modalities.decode import decode_frame
from provnet.data.rules import OpenOptions, make_options
from provnet.data.sources.folder import _class_folders, _Walk, open_folder, planes
from provnet.samples.identity import hash_bytes, hash_pixels


def make_small(root: Path, count: int) -> None:
    """PNG files of smooth random colours."""
    dice = np.random.default_rng(0)
    for path in _names(root, count, "png"):
        few = dice.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(few).resize((32, 32), Image.Resampling.BILINEAR).save(path)


def make_large(root: Path, count: int) -> None:
    """JPEG files as a camera makes them: smooth, with grain."""
    dice = np.random.default_rng(0)
    for path in _names(root, count, "jpg"):
        few = Image.fromarray(dice.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        smooth = np.asarray(few.resize((2000, 1600), Image.Resampling.BICUBIC)).astype(np.int16)
        grain = dice.integers(-12, 13, (1600, 2000, 1), dtype=np.int16)
        Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).save(path, quality=90)


def make_links(root: Path, source: Path, count: int) -> None:
    """As many names as wanted for the files of another folder."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    for i, path in enumerate(_names(root, count, "png")):
        os.link(files[i % len(files)], path)


def measure(root: Path, cache: Path, size: int, repeats: int) -> dict[str, Any]:
    """Seconds of each kind of opening; that all give the same table is checked."""
    plain, kept = make_options({"size": size}), make_options({"size": size, "cache": cache})
    times: dict[str, list[float]] = {"without_cache": [], "first_with_cache": [], "again_with_cache": []}
    found = set()
    for _ in range(repeats):
        shutil.rmtree(cache, ignore_errors=True)
        for name, options in zip(times, (plain, kept, kept), strict=True):
            seconds, opened = clock(lambda options=options: open_folder(root, "train", options))
            times[name].append(seconds)
            found.add((opened.samples.fingerprint, opened.samples.sample_ids))
            samples, megabytes = len(opened.samples), opened.images.nbytes / 1e6
            del opened
    assert len(found) == 1, "an opening with the cache differs from one without"
    best = {name: min(values) for name, values in times.items()}
    return {
        "pictures": samples,
        "pixels_mb": round(megabytes, 1),
        "cache_mb": round(sum(file.stat().st_size for file in cache.iterdir()) / 1e6, 1),
        "seconds": {name: round(value, 3) for name, value in best.items()},
        "all_seconds": {name: [round(value, 3) for value in values] for name, values in times.items()},
        "again_times_faster": round(best["without_cache"] / best["again_with_cache"], 2),
        "first_costs_more": round(best["first_with_cache"] / best["without_cache"], 3),
    }


def parts(root: Path, cache: Path, options: OpenOptions, most: int = 20_000) -> dict[str, float]:
    """Seconds that each step takes for (at most so many of) the files, in one thread."""
    rule = options.rule
    walk = _Walk(root, skip_bad=False)
    taken: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        taken[name], result = clock(work)
        return result

    paths = step("list", lambda: [path for name in _class_folders(root) for path in walk.files(root / name)])
    files = [root / path for path in paths[:most]]
    step("stat", lambda: [file.stat() for file in files])
    taken |= dict.fromkeys(("read", "sha256_of_bytes", "decode", "sha256_of_pixels"), 0.0)
    for start in range(0, len(files), 100):  # in pieces, so that large ones need not lie in memory at once
        some = files[start : start + 100]
        seconds, blobs = clock(lambda some=some: [read_file(file) for file in some])
        taken["read"] += seconds
        taken["sha256_of_bytes"] += clock(lambda blobs=blobs: [hash_bytes(blob) for blob in blobs])[0]
        seconds, pictures = clock(lambda blobs=blobs: [planes(decode_frame(b, "x", rule).pixels) for b in blobs])
        taken["decode"] += seconds
        taken["sha256_of_pixels"] += clock(lambda pictures=pictures: [hash_pixels(p[None]) for p in pictures])[0]
    opened = step("open_cache", lambda: open_cache(str(cache), root, rule))
    pairs = list(zip(paths, files, strict=False))
    step("find_in_cache", lambda: [opened.find(pairs[i : i + 256]) for i in range(0, len(pairs), 256)])
    return {name: round(seconds, 3) for name, seconds in taken.items()} | {"files": len(files)}


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a piece of work."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _names(root: Path, count: int, ending: str) -> Iterator[Path]:
    for i in range(count):
        path = root / f"{i % 100:02}" / f"{i:07}.{ending}"
        if i < 100:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield path


def main() -> None:
    """Make the folders, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=200)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--place", default=None, help="a folder for the pictures; default: the system's temporary one")
    given = parser.parse_args()
    versions = {"numpy": np.__version__, "pillow": PIL.__version__}
    results = []
    with tempfile.TemporaryDirectory(dir=given.place) as folder:
        place = Path(folder)
        make_small(place / "small", given.small)
        make_large(place / "large", given.large)
        sets = [("small", 32, given.repeats), ("large", 128, given.repeats)]
        if given.million:
            make_links(place / "million", place / "small", 1_000_000)
            sets.append(("million", 32, 1))
        time.sleep(2.5)  # younger files are not kept
        for name, size, repeats in sets:
            cache = place / f"cache-{name}"
            row = {"folder": name, "size": size, **measure(place / name, cache, size, repeats)}
            results.append(row | {"parts": parts(place / name, cache, make_options({"size": size}))})
    print(json.dumps({"machine": {**machine(), **versions}, "results": results}, indent=1))


if __name__ == "__main__":
    main()
