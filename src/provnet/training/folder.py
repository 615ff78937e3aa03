"""The run folder while it is being made: may we start here, may we go on, what has changed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provnet.atomic import remove, sweep, write_bytes
from provnet.errors import IntegrityError, UsageError
from provnet.fileset import NAME as MANIFEST
from provnet.fileset import NEXT
from provnet.modelfile import FILES, Run, has_run, write_run
from provnet.training import checkpoint as checkpoints
from provnet.training.lock import NAME as LOCK

LOG = "log.jsonl"
FREE = "machine.processes: "
SAMPLES = "samples.safetensors"  # only provnet writes this name: while it is there, the files beside it are a run's
REPORTS = ("evaluation.json", "membership.json", "report.html", "course.png")  # what was measured of the run
OURS = (MANIFEST, NEXT, *(name for name in FILES if name != SAMPLES), LOG, *REPORTS, SAMPLES)


def prepare(folder: Path, *, overwrite: bool) -> None:
    """Make the folder, and refuse one of something else or that cannot be made, before anything is written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the run folder {folder}: {error.strerror}; choose another") from error
    refuse_strangers(folder, overwrite=overwrite)


def refuse_strangers(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something else than a run; sweep what a killed run left half-written."""
    sweep(folder)
    if has_begun(folder):
        return
    left = OURS if overwrite and (folder / SAMPLES).exists() else (LOG,)  # a killed --overwrite leaves no manifest
    strangers = sorted(p.name for p in folder.iterdir() if p.name not in (LOCK, *left))
    if strangers:
        raise UsageError(f'{folder} is not a run folder: it holds "{strangers[0]}"; choose a new or empty folder')


def finished(folder: Path) -> bool:
    """Whether a run was written here to its end."""
    return has_run(folder)


def has_begun(folder: Path) -> bool:
    """Whether there is a run here, finished or with checkpoints to go on from."""
    return finished(folder) or (folder / checkpoints.FOLDER).is_dir()


def check_before(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to mix a new run with what is there; with `overwrite` remove the run that is there."""
    refuse_strangers(folder, overwrite=overwrite)
    if has_begun(folder) and not resume and not overwrite:
        raise UsageError(f"{folder} already holds a run; continue it with --resume, replace it with --overwrite")
    if overwrite:
        clear_checkpoints(folder)
        for name in OURS:  # in this order, so that a killed --overwrite can be given again
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
    """A run goes on only with the data and settings it began with; the number of processes may be another."""
    changed = [line for line in differences(then, json.loads(json.dumps(now))) if not line.startswith(FREE)]
    if changed:
        raise IntegrityError(
            f"cannot resume, {len(changed)} settings differ: {'; '.join(changed)}. "
            "Give the settings of the first start, or train into another folder"
        )


def write_log(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the whole log, one JSON line an epoch; rewriting undoes lines beyond the checkpoint after a kill."""
    write_bytes(folder / LOG, "".join(json.dumps(row) + "\n" for row in rows).encode())


def tidy(run: Run, folder: Path) -> None:
    """Do what a kill prevented after the run was whole: plain names for all files, no checkpoints."""
    if (folder / NEXT).exists():
        write_run(run, folder)
    clear_checkpoints(folder)


def clear_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that no longer needs them."""
    shutil.rmtree(folder / checkpoints.FOLDER, ignore_errors=True)
