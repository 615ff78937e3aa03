"""Writing files so that a kill, a power cut or a full disk leaves the old state or the new one, never a part.

Everything is written under a name `.tmp-<pid>-...` beside its goal, forced to the disk (fsync), then renamed, then the
folder is forced to the disk. `sweep` removes what a killed process left, and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from provnet.base.errors import DiskError, ProvnetError, UsageError
from provnet.base.files import file_size

Content = bytes | Callable[[Path], None]


def write_bytes(path: str | Path, data: bytes) -> None:
    """Replace one file, or leave it as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "a.txt"), b"new")
    ...     Path(folder, "a.txt").read_bytes()
    b'new'
    """
    goal = Path(path)
    with explain_disk(goal, len(data)), _temporary(goal) as temp:
        _write(temp, data)
        temp.replace(goal)
        sync_folder(goal.parent)


def write_files(folder: str | Path, files: Mapping[str, Content], *, needs: int = 0, replace: bool = False) -> None:
    """Make a whole folder appear at once, under its name.

    A content is bytes, or a function that writes the file at the path it is given (large tensors stream that way;
    `needs` says how many bytes those will take, for the message when the disk is full). A folder that exists is
    refused; with `replace` it is set aside first, so a caller that can be killed keeps another one to fall back on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     write_files(Path(parent, "step-1"), {"a": b"1", "b": lambda path: None if path.write_bytes(b"2") else None})
    ...     sorted(p.name for p in Path(parent, "step-1").iterdir())
    ['a', 'b']
    """
    goal = Path(folder)
    if goal.exists() and not replace:
        raise UsageError(f"{goal} already exists; choose another name or remove it first")
    size = needs + sum(len(c) for c in files.values() if isinstance(c, bytes))
    with explain_disk(goal, size), _temporary(goal) as temp:
        fill(temp, files)
        if goal.exists():
            with _temporary(goal) as aside:
                goal.replace(aside)
                temp.replace(goal)
        else:
            temp.replace(goal)
        sync_folder(goal.parent)


def fill(folder: Path, files: Mapping[str, Content]) -> None:
    """Create a folder and write files into it, forced to the disk before this returns."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            _write(path, content)
        else:
            path.touch()
            mode = path.stat().st_mode  # as the umask says; safetensors makes files that nobody else can read
            content(path)
            path.chmod(mode)
            _sync_file(path)
    sync_folder(folder)


def temporary_name(goal: Path) -> Path:
    """A fresh name beside the goal, which `sweep` knows as one of ours."""
    return goal.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}-{goal.name[:60]}")


@contextlib.contextmanager
def _temporary(goal: Path) -> Iterator[Path]:
    """A temporary name that is gone at the end, whatever happened."""
    made = [folder for folder in goal.parents if not folder.exists()]
    temp = temporary_name(goal)
    with in_use(temp):
        try:
            goal.parent.mkdir(parents=True, exist_ok=True)
            yield temp
        finally:
            remove(temp)
            if not os.path.lexists(goal):
                _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, inner ones first, as far as they are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def in_use(temp: Path) -> Iterator[None]:
    """Keep `sweep` in this process away from a temporary that is being written."""
    _IN_USE.add(temp.name)
    try:
        yield
    finally:
        _IN_USE.discard(temp.name)


def remove(path: Path) -> None:
    """Remove a file or a folder of ours if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def discard(path: Path) -> None:
    """Remove a folder of ours at once: a kill leaves it whole, or a temporary that `sweep` knows."""
    temp = temporary_name(path)
    path.replace(temp)
    remove(temp)


def is_temporary(name: str) -> bool:
    """Whether a name is one that `temporary_name` gives.

    >>> is_temporary(".tmp-17-0a1b2c3d-model"), is_temporary(".tmp-mine")
    (True, False)
    """
    return _OURS.fullmatch(name) is not None


def sweep(folder: str | Path) -> list[str]:
    """Remove temporaries of ours that a dead process left in this folder; return their names.

    A temporary is an orphan when the process in its name is gone. In a container the next process often has the
    same number: one of our own number that this process did not make is an orphan too.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, ".tmp-999999999-0a1b2c3d-x").write_bytes(b"")
    ...     _ = Path(folder, "keep.txt").write_bytes(b"")
    ...     sweep(folder), [p.name for p in Path(folder).iterdir()]
    (['.tmp-999999999-0a1b2c3d-x'], ['keep.txt'])
    """
    orphans = [p for p in Path(folder).iterdir() if (m := _OURS.fullmatch(p.name)) and _orphan(p.name, int(m[1]))]
    for path in orphans:
        remove(path)
    return sorted(p.name for p in orphans)


def _orphan(name: str, pid: int) -> bool:
    if pid == os.getpid():
        return name not in _IN_USE
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, so that a rename outlives a power cut."""
    _sync_file(folder)


@contextlib.contextmanager
def explain_disk(path: Path, needs: int) -> Iterator[None]:
    """Turn what the system says about a failed write into one line and the right exit code."""
    try:
        yield
    except ProvnetError:
        raise
    except Exception as error:
        code = _errno(error)
        if code is None:
            raise
        if code in _FULL:
            figures = f"needs {file_size(needs)}, {_free(path)} free"
            raise DiskError(f"disk full writing {path}: {figures}; make room or choose another folder") from error
        reason = os.strerror(code)
        if code in _FORBIDDEN:
            raise DiskError(f"cannot write {path}: {reason}; choose a folder that you may write to") from error
        if code in _MISNAMED:
            raise UsageError(f"cannot write {path}: {reason}; choose another name") from error
        raise DiskError(f"cannot write {path}: {reason}; check the disk or choose another folder") from error


def refuse_unwritable(path: str | Path) -> None:
    """Refuse a file or folder that may not be written, before long work; folders that are not there would be made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     refuse_unwritable(Path(folder, "new", "report.html"))
    """
    whole = Path(path).absolute()
    there = next(p for p in (whole, *whole.parents) if os.path.isdir(p))  # noqa: PTH112 - no error where it may not look
    blocked = next((p for p in whole.parents if os.path.lexists(p) and not os.path.isdir(p)), None)  # noqa: PTH112
    if any(len(os.fsencode(part)) > os.pathconf(there, "PC_NAME_MAX") for part in whole.parts):
        raise UsageError(f"cannot write {path}: {os.strerror(errno.ENAMETOOLONG)}; choose another name")
    if blocked is not None:
        raise UsageError(f"cannot write {path}: {blocked} is a file, not a folder; choose another name")
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise DiskError(f"cannot write {path}: permission denied in {there}; choose a folder that you may write to")


def _errno(error: Exception) -> int | None:
    """The system's error number; safetensors gives it in words only."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _free(path: Path) -> str:
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    return file_size(shutil.disk_usage(there).free)


_IN_USE: set[str] = set()
_OURS = re.compile(r"\.tmp-(\d{1,19})-[0-9a-f]{8}-.*", re.DOTALL)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISNAMED = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTEMPTY}
