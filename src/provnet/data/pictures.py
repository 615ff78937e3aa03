"""Read, hash and decode many picture files into one array: shared by image folders and manifests."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from provnet.data.assemble import Opened, evenly
from provnet.data.files import check_memory, read_file, shown
from provnet.data.hashing import hash_bytes, hash_pixels
from provnet.data.identity import SampleTable
from provnet.data.images import decode_frame
from provnet.data.rules import DecodeRule, OpenOptions
from provnet.errors import DataError


class Entry(NamedTuple):
    """One picture file that was listed.

    Attributes:
        file: where it lies.
        relative: its path from the root, posix form, undecodable bytes as surrogates.
        sample_id: its name, valid UTF-8.
        label: position of its class.
        source: who contributed it, or None.
    """

    file: Path
    relative: str
    sample_id: str
    label: int
    source: str | None = None


class _Loaded(NamedTuple):
    pixels: np.ndarray  # (C, H, W)
    sha256: np.ndarray
    pixel_sha256: np.ndarray
    sample_id: str


def load_pictures(entries: Sequence[Entry], class_names: Sequence[str], options: OpenOptions) -> Opened:
    """Decode the files in their order; bad ones are refused by name, or left out and listed (`skip_bad`)."""
    rows = evenly(np.array([entry.label for entry in entries], dtype=np.int64), options.limit)
    wanted = [entries[i] for i in rows]
    rule = options.rule
    kept: list[Entry] = []
    loaded: list[_Loaded] = []
    skipped: list[str] = []
    images: np.ndarray | None = None
    with _bar(len(wanted), options.progress) as advance, ThreadPoolExecutor(_WORKERS) as pool:
        for start in range(0, len(wanted), _WINDOW):
            window = wanted[start : start + _WINDOW]
            for entry, found in zip(window, pool.map(lambda e: _attempt(e, rule), window), strict=True):
                advance()
                if isinstance(found, DataError):
                    if not options.skip_bad:
                        raise found
                    skipped.append(str(found))
                    continue
                if images is None:
                    shape = (len(wanted), *found.pixels.shape)
                    check_memory(int(np.prod(shape)), f"{shape[0]:,} pictures of {shape[2]} x {shape[3]}")
                    images = np.empty(shape, dtype=np.uint8)
                elif images.shape[1:] != found.pixels.shape:
                    raise _mixed(wanted, rule, pool)
                images[len(kept)] = found.pixels
                kept.append(entry)
                loaded.append(found._replace(pixels=_NOTHING))  # the pixels are in `images` now
    if images is None:
        raise DataError(f"all {len(wanted)} pictures are bad; the first: {skipped[0]}")
    samples = SampleTable(
        sample_ids=tuple(found.sample_id for found in loaded),
        sha256=np.stack([found.sha256 for found in loaded]),
        pixel_sha256=np.stack([found.pixel_sha256 for found in loaded]),
        labels=np.array([entry.label for entry in kept], dtype=np.int64),
        class_names=tuple(class_names),
        paths=tuple(entry.relative for entry in kept),
        sources=tuple(entry.source for entry in kept),
    )
    return Opened(torch.from_numpy(images[: len(kept)]), samples, tuple(skipped))


def planes(pixels: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, 3) as (C, H, W).

    >>> planes(np.zeros((2, 5), np.uint8)).shape
    (1, 2, 5)
    """
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _attempt(entry: Entry, rule: DecodeRule) -> _Loaded | DataError:
    name = shown(entry.relative)
    try:
        blob = read_file(entry.file, rule.max_bytes, name)
        pixels, frames = decode_frame(blob, name, rule)
    except DataError as error:
        return error
    channels = planes(pixels)
    sample_id = entry.sample_id if frames == 1 else f"{entry.sample_id}#{rule.frame}"
    return _Loaded(channels, hash_bytes(blob), hash_pixels(channels[None])[0], sample_id)


def _mixed(entries: Sequence[Entry], rule: DecodeRule, pool: ThreadPoolExecutor) -> DataError:
    """The error for pictures that differ in size or mode, with counts; headers tell, nothing is decoded."""
    found = [header for header in pool.map(lambda e: _header(e, rule), entries) if header is not None]
    sizes = Counter(f"{height} x {width}" for height, width, _ in found)
    modes = Counter(mode for _, _, mode in found)
    facts = []
    if len(modes) > 1 and rule.mode is None:
        facts.append(f"grey and colour are mixed ({_counts(modes)}); pass mode grey or rgb")
    if len(sizes) > 1 and rule.size is None:
        facts.append(f"the pictures differ in size, height x width ({_counts(sizes)}); pass size")
    return DataError(" and ".join(facts) or "the pictures differ in size or mode; pass size and mode")


def _header(entry: Entry, rule: DecodeRule) -> tuple[int, int, str] | None:
    try:
        blob = read_file(entry.file, rule.max_bytes)
        with Image.open(io.BytesIO(blob)) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            sides = image.size if turned else image.size[::-1]
            return *sides, "grey" if image.mode in _GREY else "colour"
    except Exception:
        return None  # the error to come is about sizes; a bad file has its turn once those agree


def _counts(counter: Counter[str], most: int = 8) -> str:
    listed = ", ".join(f"{name}: {count:,}" for name, count in counter.most_common(most))
    return listed + (f", ... {len(counter):,} in all" if len(counter) > most else "")


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr where there is much to do, else nothing."""
    if not wanted or total < _LONG:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading pictures", total=total)
        yield lambda: progress.advance(task)


_WORKERS = min(8, os.cpu_count() or 1)
_WINDOW = 256  # files under way at once, so that memory stays bounded
_LONG = 500
_NOTHING = np.empty(0, dtype=np.uint8)
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
