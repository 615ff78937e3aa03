"""One run, one folder: a lock that the kernel releases when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provnet.errors import DiskError, UsageError

NAME = ".lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a second holder is refused by process number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, run_lock(Path(folder)):
    ...     (Path(folder) / ".lock").exists()
    True
    """
    path = folder / NAME
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DiskError(
            f"cannot write to {folder}: {error.strerror}; allow it, or use a folder that you may write to"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            raise UsageError(
                f"{folder} is in use by another provnet run (process {holder}); wait for it or choose another folder"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
