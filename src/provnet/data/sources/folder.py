"""Image folders: one folder a class, optionally below train/ and test/ (or val/)."""

from __future__ import annotations

import hashlib
import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from provnet.base.errors import DataError, UsageError
from provnet.base.files import DataWarning, check_memory, clean_text, read_file, shown
from provnet.data.assemble import Opened, evenly
from provnet.data.cache import Picture, PictureCache, open_cache, read_stamped
from provnet.data.modalities.decode import decode_frame, sniff
from provnet.data.modalities.image import planes
from provnet.data.rules import DecodeRule, OpenOptions, check_names, class_order, warn_alike
from provnet.data.sources.layouts import refuse_layout, refuse_part
from provnet.samples.identity import SampleTable, hash_bytes, hash_pixels


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


def folder_has_test(root: Path) -> bool:
    """Whether the folder is laid out as train/ and test/ (or val/)."""
    return "test" in _parts(root)


def open_folder(root: Path, split: str, options: OpenOptions) -> Opened:
    """Every picture below the class folders, in the order of their relative paths (compared as bytes)."""
    refuse_inside(root, options.cache, "cache")
    refuse_layout(root)
    parts = _parts(root)
    chosen = list(parts) if split == "all" else [split]
    classes = {part: _class_folders(parts[part]) for part in parts}
    clean = unique_names([name for part in parts for name in classes[part]])
    names = class_order(clean.values()) if options.class_names is None else check_names(options.class_names)
    if options.class_names is None:
        warn_alike(names)
    _warn_parts(root, parts)
    walk = _Walk(root, options.skip_bad)
    walk.look_beside(dict.fromkeys([root, *(parts[part] for part in chosen)]))
    entries: list[Entry] = []
    with bar("listing pictures", None, options.progress) as advance:
        for part in chosen:
            for folder in classes[part]:
                name = clean[folder]
                if name not in names:
                    raise DataError(
                        f"class folder {shown(folder)} is not among the class names given ({', '.join(names)})"
                    )
                label = names.index(name)
                for path in walk.files(parts[part] / folder):
                    entries.append(Entry(root / path, path, path, label))
                    advance()
    entries.sort(key=lambda entry: os.fsencode(entry.relative))
    _refuse_none(root, entries, any(classes.values()), walk)
    walk.warn()
    _warn_case(entries)
    _warn_empty(names, entries, split)
    ids = unique_names(entry.relative for entry in entries)
    named = [entry._replace(sample_id=ids[entry.relative]) for entry in entries]
    opened = load_pictures(named, names, options)
    return opened._replace(skipped=(*walk.bad, *opened.skipped))


def unique_names(names: Iterable[str]) -> dict[str, str]:
    r"""Clean UTF-8 for each name; two that would look the same are told apart by a piece of their own hash.

    >>> unique_names(["a.png"])
    {'a.png': 'a.png'}
    """
    clean: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names), key=lambda n: (clean_text(n) != n, os.fsencode(n))):
        text = clean_text(name)
        if text in taken:
            digest = hashlib.sha256(os.fsencode(name)).hexdigest()
            longer = (f"{text}~{digest[:size]}" for size in range(8, 65, 8))
            text = next(each for each in longer if each not in taken)  # a file may be called like that by itself
        taken.add(text)
        clean[name] = text
    return clean


class _Walk:
    """Lists picture files below a root and keeps what it met on the way."""

    def __init__(self, root: Path, skip_bad: bool) -> None:
        self.root = root
        self.real_root = os.path.realpath(root)
        self.skip_bad = skip_bad
        self.bad: list[str] = []
        self.special: list[str] = []
        self.other: list[str] = []
        self.beside: list[str] = []
        self.hidden: list[str] = []

    def files(self, folder: Path, above: tuple[str, ...] = ()) -> Iterator[str]:
        """Relative paths of the pictures in a folder and in those below it."""
        here = os.path.realpath(folder)
        if here in above:
            self._refuse(folder, "the links go in a circle; remove the link")
            return
        below = folder.relative_to(self.root).as_posix()
        for entry in self._visible(
            folder
        ):  # what the folder itself says of them: no question a file, for a million files
            try:
                if entry.is_symlink() and not self._inside(Path(entry.path)):
                    continue
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError as error:
                self._refuse(Path(entry.path), f"cannot be read ({error.strerror}); remove or mend it")
                continue
            if is_folder:
                yield from self.files(folder / entry.name, (*above, here))
            elif not is_file:
                self.special.append(shown(f"{below}/{entry.name}"))
            elif _is_picture(entry.path):
                yield f"{below}/{entry.name}"
            else:
                self.other.append(shown(f"{below}/{entry.name}"))

    def look_beside(self, folders: Iterable[Path]) -> None:
        """Keep the pictures and other files that lie beside class folders, in none of them."""
        for folder in folders:
            for entry in filter(_is_file, self._visible(folder)):
                kept = self.beside if _is_picture(entry.path) else self.other
                kept.append(self._name(folder / entry.name))

    def _visible(self, folder: Path) -> list[os.DirEntry[str]]:
        """What is looked at in a folder; hidden pictures, and hidden folders that hold some, are kept to be said."""
        hidden: list[os.DirEntry[str]] = []
        found = _entries(folder, hidden)
        self.hidden += [self._name(folder / entry.name) for entry in hidden if _hides_pictures(entry)]
        return found

    def warn(self) -> None:
        """Say what was left out without being an error."""
        for found, what in (
            (self.beside, "pictures beside the class folders, in none of them"),
            (self.hidden, "hidden, as their names begin with a dot"),
            (self.special, "not regular files (pipes, devices, sockets)"),
            (self.other, "not pictures"),
        ):
            if found:
                more = ", ..." if len(found) > 3 else ""
                _warn(f"{len(found)} left out, {what}: {', '.join(found[:3])}{more}")

    def _inside(self, path: Path) -> bool:
        target = os.path.realpath(path, strict=True)
        if target == self.real_root or target.startswith(self.real_root + os.sep):
            return True
        self._refuse(path, "the link leads out of the data folder; copy the file into it")
        return False

    def _refuse(self, path: Path, why: str) -> None:
        message = f"{self._name(path)}: {why}"
        if not self.skip_bad:
            raise DataError(f"{message}; {SKIP}")
        self.bad.append(message)

    def _name(self, path: Path) -> str:
        return shown(path.relative_to(self.root).as_posix())


def _parts(root: Path) -> dict[str, Path]:
    """Split name -> the folder that holds its class folders."""
    below = {name for name in _listing(root) if (root / name).is_dir()}
    if "train" in below and below <= {"train", *_TEST} and _class_folders(root / "train"):
        test = next((name for name in _TEST if name in below), None)
        return {"train": root / "train"} | ({"test": root / test} if test else {})
    return {"train": root}


def _class_folders(folder: Path) -> list[str]:
    return [name for name in _listing(folder) if (folder / name).is_dir()]


def _listing(folder: Path) -> list[str]:
    """Names in a folder in the order of their bytes; hidden ones are left out."""
    return [entry.name for entry in _entries(folder)]


def _entries(folder: Path, hidden: list[os.DirEntry[str]] | None = None) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        if hidden is not None:
            hidden += [entry for entry in entries if entry.name.startswith(".")]
        return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{shown(str(folder))}: the folder cannot be read ({error.strerror})") from error


def _hides_pictures(entry: os.DirEntry[str]) -> bool:
    """Whether a hidden entry is a picture, or a folder with pictures in it, by their names."""
    try:
        names = os.listdir(entry.path) if entry.is_dir() else [entry.name]  # noqa: PTH208 - a million times
    except OSError:
        return False
    return any(name.lower().endswith(ENDINGS) for name in names)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _is_picture(path: str) -> bool:
    if path.rstrip(". ").lower().endswith(ENDINGS):
        return True
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a million times: without a Path's detour
            return sniff(file.read(16)) in ("PNG", "JPEG", "WEBP", "GIF", "TIFF")  # signatures that text cannot have
    except OSError:
        return False


def loose_pictures(root: Path) -> list[Path]:
    """The pictures of a folder without class folders, in the order of their names; none where it has such folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.png", "a.png", "notes.txt"):
    ...         _ = Path(folder, name).write_bytes(b"")
    ...     [path.name for path in loose_pictures(Path(folder))]
    ['a.png', 'b.png']
    """
    if _class_folders(root):
        return []
    return [root / entry.name for entry in _entries(root) if _is_file(entry) and _is_picture(entry.path)]


def refuse_inside(root: Path, place: str | Path | None, what: str) -> None:
    """Refuse to write among the pictures: a cache or a run there would be a class of its own the next time.

    >>> refuse_inside(Path("pictures"), "runs/1", "run")
    >>> refuse_inside(Path("pictures"), "pictures/run", "run")
    Traceback (most recent call last):
    provnet.base.errors.UsageError: the run pictures/run lies in the data folder; choose a folder outside pictures
    """
    if place is None:
        return
    inside = Path(os.path.relpath(os.path.realpath(place), os.path.realpath(root))).parts
    if inside and not any(name.startswith(".") for name in inside):  # hidden folders are not listed, ".." is outside
        raise UsageError(
            f"the {what} {shown(str(place))} lies in the data folder; choose a folder outside {shown(str(root))}"
        )


def _refuse_none(root: Path, entries: list[Entry], has_classes: bool, walk: _Walk) -> None:
    if entries:
        return
    looked = f"looked for {', '.join(ENDINGS)} in one folder a class"
    if not has_classes and loose_pictures(root):
        refuse_part(root)
        raise UsageError(
            f"{shown(str(root))}: the pictures lie in no class folder; {looked}, such as cat/1.png; "
            "where no label is asked for, one folder of any name around them will do"
        )
    bad = f"; left out: {walk.bad[0]}" if walk.bad else ""
    raise UsageError(f"no pictures found under {shown(str(root))}; {looked}{bad}")


def _warn_parts(root: Path, parts: dict[str, Path]) -> None:
    """Say which of several folders is the test split, and where train/ is taken for a class."""
    below = _class_folders(root)
    others = [name for name in _TEST if name in below]
    if "test" in parts and len(others) > 1:
        used = parts["test"].name
        rest = ", ".join(f"{name}/" for name in others if name != used)
        _warn(f"{rest} left out: the test split is {used}/")
    if parts["train"] == root and "train" in below and others and _class_folders(root / "train"):
        more = ", ".join(f"{shown(name)}/" for name in below if name not in ("train", *_TEST))
        _warn(f"train/ and {others[0]}/ are taken for classes, no splits, as other folders lie beside them: {more}")


def _warn_case(entries: list[Entry]) -> None:
    seen: dict[str, str] = {}
    for entry in entries:
        other = seen.setdefault(entry.relative.lower(), entry.relative)
        if other != entry.relative:
            _warn(f"names that differ in case only, kept as two samples: {shown(other)} and {shown(entry.relative)}")
            return


def _warn_empty(names: tuple[str, ...], entries: list[Entry], split: str) -> None:
    used = {entry.label for entry in entries}
    empty = [shown(name) for label, name in enumerate(names) if label not in used]
    if empty:
        more = ", ..." if len(empty) > 3 else ""
        _warn(f"{len(empty)} classes without pictures in split {split}, kept as classes: {', '.join(empty[:3])}{more}")


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=4)


ENDINGS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm", ".pnm")
_TEST = ("test", "val", "valid", "validation")
