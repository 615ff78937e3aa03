"""A set of files that is replaced as one: manifest.json lists each with its SHA-256 and size.

How a set is replaced. All new files and the new manifest are written into `.tmp-<pid>-...`, a folder inside the run's
folder, and forced to the disk. One rename gives it the name `.next`: this is the moment from which the new set holds.
Then each file moves to its plain name, the manifest last, and `.next` is removed.

How a set is read. While `.next/manifest.json` exists, it is the manifest, and each file is taken from `.next` if it is
there, else from its plain name, where it has arrived already. Without it, manifest.json and the plain names hold.

Why old or new, never mixed. Before the rename no plain name is touched: old. After it every file of the new set is
whole, in `.next` or at its plain name, since a rename is one step: new. The manifest moves only when all other files
have moved and both folders are forced to the disk: from then on the plain names hold, all new. A reader changes
nothing; the next writer first finishes what a killed one began.

Figures beside the set (REPORTS) tell of one state of it, the hashes of STATE. Where the new set has another state they
are removed once it holds, before the first file moves: as long as the old manifest is there, the next writer knows that
they are old. Other files of the folder (log.jsonl, checkpoints, the lock) are left alone.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from provnet.base import atomic
from provnet.base.errors import IntegrityError, ProvnetError, UnsafeFileError
from provnet.runs.safe import LIMIT, TOTAL, open_checked, printable, read_json, sha256_file, write_json

FORMAT_VERSION = 1
NAME = "manifest.json"
NEXT = ".next"
STATE = (
    "model.safetensors",
    "samples.safetensors",
)  # weights, and samples with who is withheld: what figures depend on
REPORTS = {  # figures beside the set, which belong to a state of it, and the command that makes them
    "evaluation.json": "provnet evaluate RUN",
    "membership.json": "provnet audit RUN --out DIR",
    "report.html": "provnet demo --out RUN, which trains anew",
}


class Entry(NamedTuple):
    """What the manifest says of one file."""

    sha256: str
    size: int


class FileSet(NamedTuple):
    """The files of a folder that hold at this moment, and where each lies."""

    folder: Path
    entries: dict[str, Entry]
    raw: bytes

    def open(self, name: str) -> io.BufferedReader:
        """Open a file of the set, wherever it lies now, once size and SHA-256 are checked."""
        entry, limit = self.entries[name], TOTAL if name.endswith(".safetensors") else LIMIT
        return _open(self.folder, name, size=entry.size, sha256=entry.sha256, limit=limit)


def prepare_folder(folder: Path) -> None:
    """Make the folder if need be, see that it can be written, and remove what dead processes left."""
    with atomic.explain_disk(folder, 0):
        folder.mkdir(parents=True, exist_ok=True)
        atomic.sweep(folder)
        probe = atomic.temporary_name(folder / "probe")
        atomic.write_bytes(probe, b"")
        atomic.remove(probe)


def staged_is_ours(folder: Path, known: Sequence[str]) -> bool:
    """Whether `.next`, which the next set takes the place of, has nothing in it but files of a set; or is not there."""
    staged = folder / NEXT
    if not staged.exists() and not staged.is_symlink():
        return True
    try:
        return not staged.is_symlink() and {path.name for path in staged.iterdir()} <= {NAME, *known}
    except OSError:  # no folder, or one that cannot be looked into
        return False


def replace_set(folder: Path, files: Mapping[str, atomic.Content], *, known: Sequence[str], needs: int = 0) -> None:
    """Replace the set of a folder by this one; files of `known` that are no longer in it are removed."""
    size = needs + sum(len(c) for c in files.values() if isinstance(c, bytes))
    temp = atomic.temporary_name(folder / NEXT)
    with atomic.explain_disk(folder, size), atomic.in_use(temp):
        _finish(folder, known)
        try:
            atomic.fill(temp, files)
            atomic.write_bytes(temp / NAME, _encode({name: _entry(temp / name) for name in files}))
            temp.replace(folder / NEXT)  # from here on the new set holds
        finally:
            atomic.remove(temp)
        atomic.sync_folder(folder)
        _finish(folder, known)


def state_of(folder: Path, known: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of the files that figures depend on, as the manifest has them."""
    entries = read_set(folder, known).entries
    return {name: entries[name].sha256 for name in STATE if name in entries}


def _finish(folder: Path, known: Sequence[str]) -> None:
    """Move a set that holds already to its plain names; does nothing where there is none."""
    staged = folder / NEXT
    if (staged / NAME).exists():
        try:
            kept = read_set(folder, known).entries
        except (IntegrityError, UnsafeFileError):  # rotten on the disk: nobody can read it, a new set may replace it
            atomic.remove(staged)
            return
        for name in _outdated(folder, kept, known):
            (folder / name).unlink()
        for name in kept:
            if (staged / name).exists():
                (staged / name).replace(folder / name)
        atomic.sync_folder(folder)
        atomic.sync_folder(staged)
        (staged / NAME).replace(folder / NAME)
        atomic.sync_folder(folder)
        for name in set(known) - set(kept):
            (folder / name).unlink(missing_ok=True)
    atomic.remove(staged)


def _outdated(folder: Path, entries: Mapping[str, Entry], known: Sequence[str]) -> list[str]:
    """The figures that tell of the set at the plain names, where the one that takes its place has another state."""
    try:
        with open_checked(folder / NAME, limit=LIMIT) as file:
            before = _parsed(file, folder, known).entries
    except ProvnetError:  # there is none: what lies here is not ours
        return []
    if all(before.get(name) == entries.get(name) for name in STATE):
        return []
    return [name for name in REPORTS if os.path.lexists(folder / name) and not (folder / name).is_dir()]


def read_set(folder: Path, known: Sequence[str]) -> FileSet:
    """Read and check the manifest that holds; `known` is the closed list of names that it may have."""
    with _open(folder, NAME, limit=LIMIT) as file:
        return _parsed(file, folder, known)


def _open(folder: Path, name: str, **checks: Any) -> io.BufferedReader:
    """Open a file of the set that holds; it may get its plain name at any moment."""
    staged = folder / NEXT / name
    if staged.exists():
        try:
            return open_checked(staged, **checks)
        except IntegrityError:
            if staged.exists():
                raise
    return open_checked(folder / name, **checks)


def _parsed(file: io.BufferedReader, folder: Path, known: Sequence[str]) -> FileSet:
    path, raw = Path(file.name), file.read()
    value = read_json(raw, str(path), depth=4)
    version = value.get("format_version")
    if type(version) is not int or version < 1:
        raise IntegrityError(f"{path} is damaged: format_version must be a whole number, found {printable(version)}")
    if version > FORMAT_VERSION:
        raise IntegrityError(
            f"{path}: written in format {version}, this provnet reads up to format {FORMAT_VERSION}; upgrade provnet"
        )
    entries = _entries(value.get("files"), path, known)
    if raw != _encode(entries):
        raise IntegrityError(f"{path} is damaged or was changed: it does not have the SHA-256 that it names")
    return FileSet(folder, entries, raw)


def _entries(value: Any, path: Path, known: Sequence[str]) -> dict[str, Entry]:
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} is damaged: it must list files")
    entries = {}
    for name, entry in value.items():
        if name not in known:
            raise IntegrityError(f"{path} lists {printable(name)}; a run may hold {', '.join(known)} and nothing else")
        if not isinstance(entry, dict) or set(entry) != {"sha256", "bytes"}:
            raise IntegrityError(f"{path} is damaged: {name} must have sha256 and bytes, nothing else")
        digest, size = entry["sha256"], entry["bytes"]
        if not isinstance(digest, str) or type(size) is not int or not 0 <= size < 1 << 53:
            raise IntegrityError(f"{path} is damaged: sha256 or bytes of {name} cannot be")
        entries[name] = Entry(digest, size)
    return entries


def _entry(path: Path) -> Entry:
    return Entry(sha256_file(path), path.stat().st_size)


def _encode(entries: Mapping[str, Entry]) -> bytes:
    """The manifest's only form; its own SHA-256 covers everything else in it."""
    files = {name: {"sha256": entry.sha256, "bytes": entry.size} for name, entry in entries.items()}
    content = {"format_version": FORMAT_VERSION, "files": files}
    own = hashlib.sha256(write_json(content, NAME)).hexdigest()
    return write_json({**content, "sha256": own}, NAME)
