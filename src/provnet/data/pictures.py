"""Read, hash and decode many picture files into one array: shared by image folders and manifests."""

from __future__ import annotations

import io
import os
import time
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
from provnet.data.hashcache import Picture, PictureCache, open_cache, read_stamped
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


def load_pictures(entries: Sequence[Entry], class_names: Sequence[str], options: OpenOptions) -> Opened:
    """Decode the files in their order; bad ones are refused by name, or left out and listed (`skip_bad`)."""
    rows = evenly(np.array([entry.label for entry in entries], dtype=np.int64), options.limit)
    wanted = [entries[i] for i in rows]
    rule = options.rule
    cache = open_cache(options.cache, _root(wanted[0]), rule)
    kept: list[Entry] = []
    loaded: list[Picture] = []
    skipped: list[str] = []
    images = np.empty(0, dtype=np.uint8)
    try:
        with bar("reading pictures", len(wanted), options.progress) as advance, ThreadPoolExecutor(_WORKERS) as pool:
            for start in range(0, len(wanted), _WINDOW):
                window = wanted[start : start + _WINDOW]
                for entry, found in zip(window, _read(window, rule, cache, pool), strict=True):
                    advance()
                    if isinstance(found, DataError):
                        if not options.skip_bad:
                            raise type(found)(f"{found}; {SKIP}") from found
                        skipped.append(left_out(found))
                        continue
                    if not loaded:
                        shape = (len(wanted), *found.pixels.shape)
                        check_memory(int(np.prod(shape)), f"{shape[0]:,} pictures of {shape[2]} x {shape[3]}")
                        images = np.empty(shape, dtype=np.uint8)
                    elif images.shape[1:] != found.pixels.shape:
                        raise _mixed(wanted, rule, pool)
                    images[len(kept)] = found.pixels
                    kept.append(entry)
                    loaded.append(found._replace(pixels=_NOTHING))  # the pixels are in `images` now
    finally:  # a bad file among a million must not cost the work done on the others
        if cache is not None:
            cache.save([(i, kept[i].relative, found) for i, found in enumerate(loaded) if found.stamp], images)
    if not loaded:
        raise DataError(f"all {len(wanted)} pictures are bad; the first: {skipped[0]}")
    samples = SampleTable(
        sample_ids=tuple(_sample_id(entry, found.frames, rule) for entry, found in zip(kept, loaded, strict=True)),
        sha256=np.stack([found.sha256 for found in loaded]),
        pixel_sha256=np.stack([found.pixel_sha256 for found in loaded]),
        labels=np.array([entry.label for entry in kept], dtype=np.int64),
        class_names=tuple(class_names),
        paths=tuple(entry.relative for entry in kept),
        sources=tuple(entry.source for entry in kept),
    )
    return Opened(torch.from_numpy(images[: len(kept)]), samples, tuple(skipped))


def left_out(error: DataError | str) -> str:
    """Why a file was left out, without the advice to do so.

    >>> left_out("a.png: the file is empty; leave it out or replace it")
    'a.png: the file is empty'
    """
    return str(error).removesuffix("; leave it out or replace it").removesuffix("; replace it")


def planes(pixels: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, 3) as (C, H, W).

    >>> planes(np.zeros((2, 5), np.uint8)).shape
    (1, 2, 5)
    """
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _read(
    window: Sequence[Entry], rule: DecodeRule, cache: PictureCache | None, pool: ThreadPoolExecutor
) -> Iterator[Picture | DataError]:
    """The pictures of some files in their order: out of the cache where they hold there, else decoded."""
    if cache is None:
        return pool.map(lambda entry: _attempt(entry, rule, stamped=False), window)
    known = cache.find([(entry.relative, entry.file) for entry in window])
    missing = [entry for entry, found in zip(window, known, strict=True) if found is None]
    rest = pool.map(lambda entry: _attempt(entry, rule, stamped=True), missing)
    return (next(rest) if found is None else found for found in known)


def _attempt(entry: Entry, rule: DecodeRule, *, stamped: bool) -> Picture | DataError:
    name = shown(entry.relative)
    try:
        read = read_stamped if stamped else _unstamped
        blob, stamp = read(entry.file, rule.max_bytes, name)
        pixels, frames = decode_frame(blob, name, rule)
    except DataError as error:
        return error
    channels = planes(pixels)
    return Picture(channels, hash_bytes(blob), hash_pixels(channels[None])[0], frames, stamp)


def _unstamped(path: Path, limit: int, name: str) -> tuple[bytes, None]:
    return read_file(path, limit, name), None


def _sample_id(entry: Entry, frames: int, rule: DecodeRule) -> str:
    return entry.sample_id if frames == 1 else f"{entry.sample_id}#{rule.frame}"


def _root(entry: Entry) -> Path:
    """The folder that relative paths count from."""
    return entry.file.parents[entry.relative.count("/")]


def _mixed(entries: Sequence[Entry], rule: DecodeRule, pool: ThreadPoolExecutor) -> DataError:
    """The error for pictures that differ in size or mode, with counts; headers tell, nothing is decoded."""
    headers = pool.map(lambda e: _header(e, rule), entries)
    found = [(entry.relative, header) for entry, header in zip(entries, headers, strict=True) if header is not None]
    sizes = [(name, f"{height} x {width}") for name, (height, width, _) in found]
    modes = [(name, mode) for name, (_, _, mode) in found]
    facts = []
    if len({mode for _, mode in modes}) > 1 and rule.mode is None:
        facts.append(f"grey and colour are mixed ({_counts(modes)}); pass mode (train --mode), grey or rgb")
    if len({size for _, size in sizes}) > 1 and rule.size is None:
        facts.append(f"the pictures differ in size, height x width ({_counts(sizes)}); pass size (train --size)")
    words = ". Also, ".join(facts) or "the pictures differ in size or mode; pass size and mode (train --size, --mode)"
    return DataError(f"{words}. {_FOR_A_RUN}")


def _header(entry: Entry, rule: DecodeRule) -> tuple[int, int, str] | None:
    try:
        blob = read_file(entry.file, rule.max_bytes)
        with Image.open(io.BytesIO(blob)) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            sides = image.size if turned else image.size[::-1]
            return *sides, "grey" if image.mode in _GREY else "colour"
    except Exception:
        return None  # the error to come is about sizes; a bad file has its turn once those agree


def _counts(found: Sequence[tuple[str, str]], most: int = 8) -> str:
    """How many files are of each kind; of the rarest one is named, as it may be a stray."""
    counter = Counter(kind for _, kind in found)
    listed = ", ".join(f"{kind}: {count:,}" for kind, count in counter.most_common(most))
    rarest = counter.most_common()[-1][0]
    stray = next(name for name, kind in found if kind == rarest)
    return f"{listed}{f', ... {len(counter):,} in all' if len(counter) > most else ''}; the rarest: {shown(stray)}"


@contextmanager
def bar(what: str, total: int | None, wanted: bool) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr where there is much to do, else nothing; without a total it counts what was found.

    >>> with bar("listing pictures", None, wanted=False) as advance:
    ...     advance()
    """
    if not wanted or (total is not None and total < _LONG):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    counts = (
        (TextColumn("{task.completed:,} found"),) if total is None else (MofNCompleteColumn(), TimeRemainingColumn())
    )
    columns = (TextColumn("{task.description}"), BarColumn(), *counts)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(what, total=total)
    done, shown_at = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, shown_at
        done += 1
        if time.monotonic() - shown_at >= _REDRAW:  # rich is slow: not for each of a million files
            progress.update(task, completed=done)
            progress.start()
            shown_at = time.monotonic()

    try:
        if total is not None:
            progress.start()
        yield advance
    finally:
        progress.stop()


SKIP = "skip_bad (train --skip-bad) leaves all bad files out"
_WORKERS = min(8, os.cpu_count() or 1)
_WINDOW = 256  # files under way at once, so that memory stays bounded
_LONG = 500  # files; fewer are done before a bar could be read
_REDRAW = 0.1  # seconds
_FOR_A_RUN = "Pictures for a run that is trained must have its shape (provnet info RUN): resize them first"
_NOTHING = np.empty(0, dtype=np.uint8)
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
