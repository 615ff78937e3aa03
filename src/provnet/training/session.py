"""The run folder while it is being made: may we start here, may we go on, what has changed since."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from provnet.base.atomic import (
    discard,
    explain_disk,
    in_use,
    is_temporary,
    remove,
    sweep,
    sync_folder,
    temporary_name,
    write_bytes,
)
from provnet.base.errors import DiskError, IntegrityError, UsageError
from provnet.base.files import shown
from provnet.runs.fileset import NAME as MANIFEST
from provnet.runs.fileset import NEXT, REPORTS, staged_is_ours
from provnet.runs.run import FILES, Run, has_run, is_run, write_run
from provnet.training import checkpoint as checkpoints
from provnet.training.checkpoint import is_step
from provnet.training.loop import SUMS

LOCK = ".lock"


@dataclass(frozen=True)
class Held:
    """A folder and the open lock file in it, while this process holds the lock."""

    folder: Path
    handle: int

    def check(self) -> Path:
        """Return the folder if its lock is still the one that is held; call this before every write.

        The lock follows its file, writes follow the path: once the folder is renamed, another run may have its name.
        """
        if self._is_at(self.folder / LOCK):
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
    path = folder / LOCK
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


REPLACED = "replaced"


def set_aside(folder: Path, names: Sequence[str]) -> None:
    """Put the run in a folder into `replaced` as well; what is there already of an earlier one makes room for it.

    Where no whole run is in the folder, `replaced` stays as it is: it holds the last one that was whole. Files are
    linked, and copied only where the file system has no links.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     set_aside(Path(folder), ["manifest.json"])
    ...     is_there(Path(folder))
    False
    """
    if not has_run(folder):
        return
    goal = folder / REPLACED
    temp = temporary_name(goal)
    with explain_disk(goal, 0), in_use(temp):
        try:
            temp.mkdir()
            for name in names:
                _twin(folder / name, temp / name)
            sync_folder(temp)
            drop(folder, names)
            temp.replace(goal)
            sync_folder(folder)
        finally:
            remove(temp)


def is_there(folder: Path) -> bool:
    """Whether a run that is being replaced is kept in this folder."""
    return has_run(folder / REPLACED)


def is_strange(place: Path) -> bool:
    """Whether something of this name is not what `set_aside` makes."""
    return place.is_symlink() or not place.is_dir() or (any(place.iterdir()) and not is_run(place))


def drop(folder: Path, names: Sequence[str]) -> None:
    """Remove the replaced run, in the order of `names`: what a kill leaves is still known as ours. All else stays."""
    place = folder / REPLACED
    if not place.exists() or is_strange(place):
        return
    for name in (LOCK, *names):
        remove(place / name)
    with suppress(OSError):  # somebody else's files are in it
        place.rmdir()


def _twin(source: Path, goal: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, goal, copy_function=_linked)
    elif source.is_file():
        _linked(str(source), str(goal))


def _linked(source: str, goal: str) -> None:
    try:
        os.link(Path(source).resolve(), goal)
    except OSError:  # a file system without links
        shutil.copy2(source, goal)
        with Path(goal).open("rb") as file:  # the source goes next
            os.fsync(file.fileno())


LOG = "log.jsonl"
FREE, DATA = "machine.processes: ", "data."  # settings that may be others; what is known of the data
REST = "subset.rest_content: "  # samples without an index: other data, unless other samples were chosen
SAMPLES = "samples.safetensors"  # while our sample table is there, the files beside it are a run's
COURSE = "course.png"  # the log as a picture
OURS = (MANIFEST, NEXT, *(name for name in FILES if name != SAMPLES), LOG, *REPORTS, COURSE, SAMPLES)
NAMED = 5  # strangers in a refusal
_LOCKED = re.compile(r"\d*\n?")


def prepare(folder: Path, *, overwrite: bool) -> None:
    """Make the folder, and refuse one of something else or that cannot be made, before anything is written into it."""
    with explain_disk(folder, 0):
        folder.mkdir(parents=True, exist_ok=True)
    refuse_strangers(folder, overwrite=overwrite)


def refuse_strangers(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with something in it that a run would replace.

    Nothing is replaced for its name alone: the manifest, the sample table, the checkpoints, the log and the lock must
    be such as provnet writes. What has another name is left alone, and allowed where there is or was a run.
    """
    whole = is_run(folder)
    if whole and not finished(folder) and not overwrite:
        raise UsageError(f"{folder} holds a run that was being replaced; replace it with --overwrite")
    steps = has_checkpoints(folder)
    begun = whole or steps or bool(_lock_text(folder).strip())  # the lock comes only once this check was passed
    strangers = [p.name for p in sorted(folder.iterdir()) if _is_strange(p, whole=whole, steps=steps, begun=begun)]
    if strangers:
        run = whole or steps
        what = "cannot be trained in: beside its run it holds" if run else "is not a run folder: it holds"
        advice = "move them away or choose another folder" if run else "choose another folder, new or empty"
        more = f" and {len(strangers) - NAMED} more" if len(strangers) > NAMED else ""
        names = ", ".join(f'"{shown(name)}"' for name in strangers[:NAMED]) + more
        raise UsageError(f"{folder} {what} {names} that provnet did not write; {advice}")


def _is_strange(path: Path, *, whole: bool, steps: bool, begun: bool) -> bool:
    """Whether a run would replace or remove this, although provnet did not write it."""
    if path.name == LOCK:
        return not _LOCKED.fullmatch(_lock_text(path.parent))
    if path.name == checkpoints.FOLDER:
        inside = [name for name in _names(path) if not is_temporary(name)]
        if any(name.startswith("step-") and not is_step(path / name) for name in inside):
            return True  # the names that training drops when it has newer ones
        return not path.is_dir() or bool(inside and not whole and not steps)
    if path.name == REPLACED:
        return not begun or is_strange(path)
    if path.name == NEXT:
        return not whole or not staged_is_ours(path.parent, FILES)
    if path.name in OURS:
        if path.is_dir():
            return True
        return not (whole or (path.name == LOG and _is_log(path)))  # a run without a manifest has only its log
    return not begun and not is_temporary(path.name)


def _is_log(path: Path) -> bool:
    try:
        row = json.loads(_start(path, 10_000).split(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.keys() >= {"epoch", "step", *SUMS}


def _lock_text(folder: Path) -> str:
    return _start(folder / LOCK, 64).decode("latin-1")


def _start(path: Path, most: int) -> bytes:
    """How a plain file begins; nothing where there is none."""
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            return file.read(most)
    return b""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}; choose another folder") from error


def finished(folder: Path) -> bool:
    """Whether a run was written here to its end."""
    return has_run(folder)


def has_checkpoints(folder: Path) -> bool:
    """Whether there are checkpoints of ours; a folder of that name alone is not enough."""
    place = folder / checkpoints.FOLDER
    return any(is_step(place / name, whole=True) for name in _names(place))


def has_begun(folder: Path) -> bool:
    """Whether there is a run here, finished or with checkpoints to go on from."""
    return finished(folder) or has_checkpoints(folder)


def check_before(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to mix a new run with what is there; with `overwrite` the run that is there is put aside."""
    refuse_strangers(folder, overwrite=overwrite)
    if has_begun(folder) and not resume and not overwrite:
        raise UsageError(f"{folder} already holds a run; continue it with --resume, replace it with --overwrite")
    if overwrite:
        set_aside(folder, OURS)
        clear_checkpoints(folder)
        # in this order, so that a killed --overwrite can be given again: without a manifest nothing is put aside
        for name in (MANIFEST, f"{NEXT}/{MANIFEST}", *OURS):
            remove(folder / name)


def differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """`name: before -> now` of every setting that differs.

    >>> list(differences({"a": {"b": 1}}, {"a": {"b": 2, "c": True}}))
    ['a.b: 1 -> 2', 'a.c: not set -> True']
    """
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}: {_setting(before)} -> {_setting(after)}"


def _setting(value: Any) -> Any:
    return "not set" if value is None else value


def refuse_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A run goes on only with the data and settings it began with; the number of processes may be another.

    Other settings are a wrong argument, other data are not what their hashes said.
    """
    changed = [line for line in differences(then, json.loads(json.dumps(now))) if not line.startswith(FREE)]
    if changed:
        count = "1 setting differs" if len(changed) == 1 else f"{len(changed)} settings differ"
        other = any(line.startswith(DATA) for line in changed) or all(line.startswith(REST) for line in changed)
        kind = IntegrityError if other else UsageError
        raise kind(
            f"cannot resume, {count}: {'; '.join(changed)}. "
            "Give the settings of the first start, or train into another folder"
        )


def write_log(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the whole log, one JSON line an epoch; rewriting undoes lines beyond the checkpoint after a kill."""
    write_bytes(folder / LOG, "".join(json.dumps(row) + "\n" for row in rows).encode())


def tidy(run: Run, folder: Path) -> None:
    """Do what a kill prevented after the run was whole: plain names for all files, then `clean`."""
    if (folder / NEXT).exists():
        write_run(run, folder)
    clean(folder)


def clean(folder: Path) -> None:
    """Remove what a whole run no longer needs: its checkpoints, and the run that it replaces."""
    clear_checkpoints(folder)
    drop(folder, OURS)


def clear_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that no longer needs them; what else lies beside them stays."""
    place = folder / checkpoints.FOLDER
    if not place.is_dir():
        return
    sweep(place)
    for name in _names(place):
        if is_step(place / name):
            discard(place / name)
    with suppress(OSError):  # somebody else's files are in it
        place.rmdir()


class Stop:
    """Whether a signal asked training to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signal(enabled: bool) -> Iterator[Stop]:
    """Catch the first SIGINT, SIGTERM or SIGHUP in `Stop.asked`; handlers are put back at the end.

    >>> with stop_on_signal(enabled=True) as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.asked
    True
    """
    stop = Stop()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in _signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals() -> list[signal.Signals]:
    """What asks to stop; SIGHUP not under nohup, which is there to outlive the terminal, nor where there is none."""
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, hang_up]
