"""One run, one folder: a lock that the kernel releases when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from provnet.atomic import sweep
from provnet.errors import DiskError, IntegrityError, UsageError

NAME = ".lock"


@dataclass(frozen=True)
class Held:
    """A folder and the open lock file in it, while this process holds the lock."""

    folder: Path
    handle: int

    def check(self) -> Path:
        """Return the folder if its lock is still the one that is held; call this before every write.

        The lock follows its file, writes follow the path: once the folder is renamed, another run may have its name.
        """
        if self._is_at(self.folder / NAME):
            return self.folder
        now = self._place()
        if now is None:
            raise IntegrityError(
                f"{self.folder} was removed or replaced while it was in use; nothing more was written. "
                "Give the command again"
            )
        raise IntegrityError(
            f"{self.folder} was renamed while it was in use, its run is now in {now}; nothing more was written. "
            f"Give the command again with {now} (train: with --resume)"
        )

    def _is_at(self, path: Path) -> bool:
        with suppress(OSError):
            return os.path.samestat(path.stat(), os.fstat(self.handle))
        return False

    def _place(self) -> Path | None:
        """Where the folder lies now, where the system tells (Linux)."""
        with suppress(OSError):
            path = Path(f"/proc/self/fd/{self.handle}").readlink()
            return path.parent if self._is_at(path) else None
        return None


@contextmanager
def run_lock(folder: Path) -> Iterator[Held]:
    """Hold the folder's lock, and remove what dead writers left; a second holder is refused by process number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, run_lock(Path(folder)) as held:
    ...     held.check() == Path(folder)
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
        held = Held(folder, handle)
        held.check()  # the folder may have been renamed since its lock was opened
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        sweep(folder)
        yield held
    finally:
        os.close(handle)
