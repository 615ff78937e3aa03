"""Pictures in tar files, as webdataset keeps them: `KEY.jpg` beside `KEY.cls`, `KEY.txt` or `KEY.json`.

A sample is named by its key. Its label is what `KEY.cls` says, else `label`, `cls` or `class` of `KEY.json`, else the
folder that its key begins with. Names of the classes are taken from `classnames.txt` or `classes.txt` beside the files.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief, read_file, shown
from provnet.data.assemble import Opened
from provnet.data.rules import OpenOptions
from provnet.data.sources.rows import Rows, open_rows


def find_tars(path: Path) -> dict[str, list[Path]]:
    """The tar files of a folder by split, told by their names or the folder that they lie in; a file by itself."""
    if path.is_file():
        return {"train": [path]}
    found: dict[str, list[Path]] = {}
    for file in sorted([*path.glob("*.tar"), *path.glob("*/*.tar")]):
        words = re.split(r"[^a-z]+", f"{file.parent.name if file.parent != path else ''} {file.name}".lower())
        found.setdefault("test" if set(words) & _TEST else "train", []).append(file)
    return found


def tar_has_test(path: Path) -> bool:
    """Whether there is a split for testing."""
    return "test" in find_tars(path)


def open_tars(path: Path, split: str, options: OpenOptions) -> Opened:
    """The pictures of tar files, in their order."""
    shards = find_tars(path)
    files = [file for part in shards.values() for file in part] if split == "all" else shards.get(split, [])
    if not files:
        raise UsageError(f"{shown(str(path))}: no tar files for split {split}")
    wanted = dict(options.manifest_columns or ()).get("label")
    keys, read, labels, several = list[str](), list[Any](), list[Any](), len(files) > 1
    for file in files:
        for key, members in _samples(file):
            picture = next((one for ending, one in members.items() if ending in _PICTURES), None)
            if picture is None:
                continue
            keys.append(f"{file.stem}/{key}" if several else key)
            read.append(partial(_bytes, file, picture, options.rule.max_bytes))
            labels.append(_label(file, key, members, wanted))
    if not keys:
        raise UsageError(f"{shown(str(path))}: no pictures in it; looked for KEY.jpg, KEY.png and the like")
    unlabelled = next((key for key, label in zip(keys, labels, strict=True) if label is None), None)
    if unlabelled is not None:
        raise UsageError(
            f"{shown(str(path))}: {shown(unlabelled)} has no label; a label is KEY.cls, or label in KEY.json (another "
            "name: --columns label=NAME), or the folder that the key begins with"
        )
    names = _class_names(path if path.is_dir() else path.parent)
    if names is not None:
        labels = [names[one] if isinstance(one, int) and 0 <= one < len(names) else one for one in labels]
    if len({type(label) for label in labels}) > 1:
        labels = [str(label) for label in labels]
    return open_rows(Rows(read, labels, keys), split, options)


def _samples(path: Path) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Keys and their members by ending, in the order of the file; what is no plain file is passed over."""
    found: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                stem, dot, ending = name.partition(".")
                if member.isreg() and dot and stem:
                    key = f"{folder.removeprefix('./')}/{stem}".lstrip("/").removeprefix("./")
                    found.setdefault(key, {})[ending.lower()] = member
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(
            f"{shown(path.name)}: cannot be read as a tar file ({brief(str(error))}); packed ones (.tar.gz) must be "
            "unpacked to .tar first"
        ) from error
    yield from found.items()


def _bytes(path: Path, member: tarfile.TarInfo, limit: int) -> bytes:
    name = f"{shown(path.name)}:{shown(member.name)}"
    if member.size > limit:
        raise DataError(f"{name}: the file has {member.size:,} bytes, at most {limit:,} are allowed")
    try:
        with path.open("rb") as file:
            file.seek(member.offset_data)
            found = file.read(member.size)
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})") from error
    if len(found) < member.size:
        raise DataError(f"{name}: the tar file is truncated; copy or download it again")
    return found


def _label(path: Path, key: str, members: dict[str, tarfile.TarInfo], wanted: str | None) -> Any:
    for ending in (wanted,) if wanted in members else ("cls", "cls.txt", "label"):
        if ending is not None and ending in members:
            text = _bytes(path, members[ending], _SMALL).decode("utf-8", "replace").strip()
            return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text or None
    if "json" in members:
        try:
            found = json.loads(_bytes(path, members["json"], _SMALL))
        except ValueError as error:
            raise DataError(f"{shown(path.name)}:{shown(key)}.json: cannot be read as JSON ({error})") from error
        for name in (wanted,) if wanted else ("label", "cls", "class"):
            if isinstance(found, dict) and isinstance(found.get(name), str | int):
                return found[name]
    return key.split("/", maxsplit=1)[0] if "/" in key else None


def _class_names(folder: Path) -> tuple[str, ...] | None:
    """The names of the classes, one on a line."""
    for name in ("classnames.txt", "classes.txt"):
        if (folder / name).is_file():
            text = read_file(folder / name, _SMALL).decode("utf-8", "replace")
            return tuple(line.strip() for line in text.splitlines() if line.strip())
    return None


_TEST = {"test", "val", "valid", "validation"}
_PICTURES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "image", "img")
_SMALL = 2**20  # bytes of a label
