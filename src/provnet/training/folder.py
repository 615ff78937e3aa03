"""The run folder while it is being made: may we start here, may we go on, what has changed since."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from provnet.atomic import discard, explain_disk, is_temporary, remove, sweep, write_bytes
from provnet.data.files import shown
from provnet.errors import IntegrityError, UsageError
from provnet.fileset import NAME as MANIFEST
from provnet.fileset import NEXT, REPORTS, staged_is_ours
from provnet.modelfile import FILES, Run, has_run, is_run, write_run
from provnet.training import checkpoint as checkpoints
from provnet.training import replaced
from provnet.training.checkpoint import is_step
from provnet.training.lock import NAME as LOCK
from provnet.training.loop import SUMS

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
    if path.name == replaced.NAME:
        return not begun or replaced.is_strange(path)
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
        replaced.set_aside(folder, OURS)
        clear_checkpoints(folder)
        # in this order, so that a killed --overwrite can be given again: without a manifest nothing is put aside
        for name in (MANIFEST, f"{NEXT}/{MANIFEST}", *OURS):
            remove(folder / name)


def differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """`name: before -> now` of every setting that differs.

    >>> list(differences({"a": {"b": 1}}, {"a": {"b": 2}}))
    ['a.b: 1 -> 2']
    """
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}: {before} -> {after}"


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
    replaced.drop(folder, OURS)


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
