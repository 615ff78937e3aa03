"""Reading files from disk with every failure named, and the warning type of the data layer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from provnet.base.errors import DataError, MemoryLimitError, UsageError


class DataWarning(UserWarning):
    """Something odd in the data that does not stop the job."""


def as_path(what: str, given: Any) -> Path:
    """A path given as text or as an object; anything else is refused.

    >>> as_path("the run", "runs/mine").name
    'mine'
    """
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{what} must be a path, as text or as a Path; got {type(given).__name__}")
    return Path(given)


def read_file(path: Path, limit: int | None = None, name: str | None = None) -> bytes:
    """The bytes of a regular file; anything else (missing, unreadable, too large, a pipe) is refused by name.

    The file is opened without blocking, so that a pipe put in its place cannot hang the job.
    """
    label = shown(str(path)) if name is None else name
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(handle, "rb") as file:  # noqa: PTH123 - by descriptor, after the non-blocking open
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise DataError(f"{label}: not a regular file; give a file that can be read from start to end")
            if limit is not None and found.st_size > limit:
                raise DataError(f"{label}: the file has {found.st_size:,} bytes, at most {limit:,} are allowed")
            return file.read()
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise DataError(f"{label}: cannot be read ({reason})") from error


def read_start(path: Path, count: int = 512) -> bytes:
    """The first bytes of a file, to tell what it is."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(handle, "rb") as file:  # noqa: PTH123 - by descriptor, after the non-blocking open
            return file.read(count) or b""
    except OSError as error:
        raise DataError(f"{shown(str(path))}: cannot be read ({error.strerror})") from error


def clean_text(name: str) -> str:
    r"""Text that UTF-8 can hold: bytes that are no UTF-8, and half characters, become backslash escapes.

    >>> clean_text(os.fsdecode(b"a\xff.png")), clean_text("a\ud800.png")
    ('a\\xff.png', 'a\\ud800.png')
    """
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # text that is no file name: nothing on a disk is called so
        raw = name.encode("utf-8", "backslashreplace")
    return raw.decode("utf-8", "backslashreplace")


def shown(name: str) -> str:
    r"""A name for messages: one line, nothing that a terminal would act on.

    >>> shown("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in clean_text(name))


def brief(name: str) -> str:
    """The name of a class for messages: as `shown`, a very long one less its middle, as its end tells it from others.

    >>> brief("cat"), len(brief("x" * 4_000))
    ('cat', 100)
    """
    text = shown(name)
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 31]}…{text[-30:]}"


def file_size(number: int) -> str:
    """A number of bytes in the unit that fits.

    >>> file_size(812), file_size(20_480), file_size(8_808_038), file_size(51_300_000_000)
    ('812 B', '20.5 kB', '8.8 MB', '51.3 GB')
    """
    if number < 1000:
        return f"{number} B"
    unit, name = next((unit, name) for unit, name in _UNITS if number >= unit)
    return f"{number / unit:,.1f} {name}"


def check_memory(needed: int, what: str) -> None:
    """Refuse a job whose pictures would not fit into the memory that is free."""
    free = free_memory()
    if free is not None and needed > free:
        raise MemoryLimitError(
            f"{what} need {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} are free; "
            "give a smaller size or limit (train --size, --limit)"
        )


def free_memory() -> int | None:
    """The bytes of memory that are free, or None where the system does not say."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        pass  # not Linux: no figure, no check
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
            found.append(max(0, soft - used))
    except (ImportError, OSError):
        pass
    return min(found) if found else None


_BRIEF = 100  # characters
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_REASONS = {
    errno.ENOENT: "it does not exist, or was just removed",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "its links go in a circle",
    getattr(errno, "ESTALE", -1): "the network file system lost it",
}
