"""Image folders: one folder a class, optionally below train/ and test/ (or val/)."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from provnet.base.errors import DataError, UsageError
from provnet.base.files import DataWarning, clean_text, shown
from provnet.data.assemble import Opened
from provnet.data.modalities.decode import sniff
from provnet.data.pictures import SKIP, Entry, bar, load_pictures
from provnet.data.rules import OpenOptions, check_names, class_order, warn_alike
from provnet.data.sources.layouts import refuse_layout, refuse_part


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
                self._refuse(Path(entry.path), f"cannot be read ({error.strerror}); remove or repair it")
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


def has_pictures(root: Path) -> bool:
    """Whether a picture, told by its name, lies anywhere below a folder; hidden ones are not looked at."""
    for _, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".")]
        if any(name.lower().endswith(ENDINGS) for name in names if not name.startswith(".")):
            return True
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
    looked = f"looked for {', '.join(ENDINGS)} in one folder per class"
    if not has_classes and loose_pictures(root):
        refuse_part(root)
        raise UsageError(
            f"{shown(str(root))}: the pictures have no labels, as they lie in no class folder. To train, put them into "
            "a folder for each class, such as cat/1.png, or list them in a CSV of path,label; a command that needs no "
            "labels takes them within one folder of any name"
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
        _warn(
            f"train/ and {others[0]}/ are read as classes, not as splits, because other folders lie beside them: {more}"
        )


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
