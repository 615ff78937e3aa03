"""Changing the bank of a run folder: read, changed and replaced as one, under the lock that training takes, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provnet.cli.again import path_word
from provnet.cli.opened import open_run
from provnet.cli.output import note, say
from provnet.data.files import shown

if TYPE_CHECKING:
    from provnet.data.identity import SampleTable
    from provnet.modelfile import Run, RunConfig


@dataclass(frozen=True, eq=False)
class Change:
    """A run before and after, the same where nothing changed, and files that told of the one before and are gone."""

    before: Run
    after: Run
    removed: tuple[str, ...] = ()


def change_run(folder: Path, change: Callable[[Run], Run]) -> Change:
    """Replace the run of a folder by a changed one; killed at any moment, the folder holds one of the two.

    What was made of the run before (figures, report) goes with it, once the new one holds: it may name samples that are
    erased, and it is still right where the change fails.
    """
    from provnet.fileset import REPORTS
    from provnet.modelfile import has_run, read_samples, write_run
    from provnet.training.folder import tidy
    from provnet.training.lock import run_lock

    if not has_run(folder):
        read_samples(folder)  # says what is wrong, before a lock is put there
    with run_lock(folder) as held:
        before = open_run(folder)
        tidy(before, folder)  # what a killed change left may name what it erased
        after = change(before)
        if after is before:
            return Change(before, after)
        told = [name for name in REPORTS if (folder / name).exists()]
        write_run(after, held.check())
        return Change(before, after, tuple(name for name in told if not (folder / name).exists()))


def bank_counts(config: RunConfig, samples: SampleTable) -> dict[str, int]:
    """How many samples a run has, and what became of them since training."""
    return {
        "samples": len(samples),
        "added_samples": int(samples.added.sum()),
        "withheld_samples": int(samples.withheld.sum()),
        "erased_samples": config.erased,
    }


def count_words(counts: Mapping[str, int]) -> str:
    """The counts in a line; what is zero is left out.

    >>> count_words({"samples": 40, "added_samples": 2, "withheld_samples": 0, "erased_samples": 1})
    '40, of them 2 added since training; 1 erased since training'
    """
    names = {"added_samples": "added since training", "withheld_samples": "withheld"}
    parts = [f"{counts[name]:,} {words}" for name, words in names.items() if counts[name]]
    erased = f"; {counts['erased_samples']:,} erased since training" if counts["erased_samples"] else ""
    return f"{counts['samples']:,}" + (f", of them {' and '.join(parts)}" if parts else "") + erased


def say_change(folder: Path, found: Change, words: str) -> None:
    """What was done, what the run holds now, and what went with the run before."""
    say(words)
    say(f"samples in {folder}: {count_words(bank_counts(found.after.config, found.after.samples))}", "bold")
    note_removed(folder, found)


def note_removed(folder: Path, found: Change) -> None:
    """Name the files that told of the run before, each with the command that makes it."""
    from provnet.fileset import REPORTS

    if found.removed:
        gone = f"{', '.join(found.removed[:-1])} and {found.removed[-1]}".removeprefix(" and ")
        again = "; ".join(f"{name}: {REPORTS[name].replace('RUN', path_word(folder))}" for name in found.removed)
        note(f"{gone} told of the run before and went with it. To make again: {again}")


def note_strangers(folder: Path) -> None:
    """Files beside the run that are not provnet's to change may still name what was erased."""
    from provnet.training.folder import OURS
    from provnet.training.lock import NAME as LOCK

    others = sorted(path.name for path in folder.iterdir() if path.name not in (*OURS, LOCK))
    if others:
        names = ", ".join(shown(name) for name in others[:5]) + (", ..." if len(others) > 5 else "")
        note(f"files beside the run are left as they are and may name what was erased: {names}", "warning")
