"""The data of a run, opened again for a command, and what became of them said; runs opened and measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from provnet.base.atomic import write_bytes
from provnet.base.errors import DataError, IntegrityError
from provnet.base.options import DECISIONS
from provnet.cli.output import BACKBONE, note
from provnet.data.apply import decision_words
from provnet.data.dataset import AFTER_READING, DataSpec, ImageData
from provnet.models.attached import Given
from provnet.runs.data import Found, find_data
from provnet.runs.files import CUSTOM
from provnet.runs.fileset import state_of
from provnet.runs.inputs import range_problem
from provnet.runs.run import FILES, Run, has_run, read_run, read_samples, write_run
from provnet.training.session import run_lock, tidy

Read = TypeVar("Read")


def backbone_for(folder: Path) -> Given | None:
    """The module that `main` was given, where the run in a folder needs one; a command may open others beside it."""
    given = BACKBONE.get()
    needed = given is not None and read_samples(folder)[0].network.backbone == CUSTOM
    return Given(*given) if needed else None


def open_run(folder: Path) -> Run:
    """The run in a folder, every file checked."""
    return read_run(folder, backbone_for(folder))


def run_state(folder: Path) -> dict[str, str]:
    """The SHA-256 of weights and sample table: what is measured of a run belongs to these."""
    return state_of(folder, FILES)


def with_state(folder: Path, read: Callable[[Path], Read]) -> tuple[Read, dict[str, str]]:
    """What `read` finds in the run of a folder, and the state it is of; read again where it was changed meanwhile."""
    if not has_run(folder):
        read(folder)  # says what is wrong
    while True:
        state = run_state(folder)
        found = read(folder)
        if run_state(folder) == state:
            return found, state


def training_data(
    run: Run, source: str | None, data_dir: str | None, *, option: str = "--data", without: str = ""
) -> Found:
    """The training data of a run, with what became of them said.

    `without` says what a command leaves out where there are none; one that leaves nothing out refuses then, and
    `option` is what says where they are.
    """
    found = find_data(run.config, run.samples, source, data_dir, progress=True)
    if found.data is None and not without:
        raise DataError(f"the training data cannot be opened: {found.why}; say with {option} where they are")
    if found.data is None:
        note(f"the training data cannot be opened, so {without}: {found.why}", "warning")
    elif found.why:
        note(f"not all training data can be opened: {found.why}", "warning")
    for line in found.kept.facts:
        note(f"training data: {line}", "warning" if found.kept.left_out else "note")
    if found.kept.data is None and not without:
        raise DataError(f"none of the training samples is among the data; say with {option} where they are")
    return found


def picture_data(run: Run, source: str | None, data_dir: str | None, *, strict: bool = False) -> Found:
    """The training data of a run as they are now, to show pictures of samples; `strict` refuses to do without."""
    found = find_data(run.config, run.samples, source, data_dir, progress=True)
    if found.data is None and strict:
        raise IntegrityError(f"the training data cannot be opened, so no exemplar can be checked: {found.why}")
    if found.data is None:
        note(f"no pictures of training samples, ids and hashes stand for them: {found.why}", "warning")
    elif found.why:
        note(f"not all samples can be checked: {found.why}", "warning")
    return found


def unseen_data(run: Run, source: str | None, data_dir: str | None) -> tuple[ImageData | None, int]:
    """The data at `source` or the run's own test split, and how many of them are samples of the run, which is said."""
    test = run.test(source, data_dir, progress=True)
    if test is None:
        return None, 0
    seen = run.seen(test)
    if seen:
        kind = "samples of the run" if run.samples.added.any() else "training samples"
        note(f"{seen:,} of {len(test):,} test samples are also {kind}: not unseen", "warning")
    problem = range_problem(run.config.network, test.images)
    if problem is not None:
        note(f"the test data: {problem}", "warning")
    return test, seen


def spec_name(spec: DataSpec | None) -> str:
    """A data set in a few words.

    >>> from provnet.data.dataset import DataSpec
    >>> spec_name(DataSpec("mnist", "idx", "test", options={"limit": 50}))
    'mnist, split test, limit 50'
    >>> spec_name(DataSpec("pets", "folder", "train", options={"size": [32, 48], "holdout": [[0.2, "train"]]}))
    'pets, split train, 32 x 48 pixels, without the 20 % held out'
    """
    if spec is None:
        return "none"
    words = [spec.source, f"split {spec.split}"]
    left_out = ("class_names", *AFTER_READING)
    words += [_option_words(name, value) for name, value in spec.options.items() if name not in left_out]
    words += [decision_words(value) for name, value in spec.options.items() if name == DECISIONS]
    for fraction, side in spec.options.get("holdout", ()):
        words.append(f"{'without the' if side == 'train' else 'of that the'} {100 * fraction:g} % held out")
    return ", ".join(words)


def _option_words(name: str, value: Any) -> str:
    """An option of `open_data` as people say it."""
    if name == "size":
        return f"{value[0]} x {value[1]} pixels"
    if name == "value_range":
        return f"values {value[0]:g} to {value[1]:g}"
    return {"skip_bad": "bad files left out", "mode": f"as {value}"}.get(name, f"{name} {value}")


def keep_measured(
    folder: Path, state: Mapping[str, str], files: Mapping[str, bytes] | None = None, **outcome: Any
) -> bool:
    """Keep what was measured of a run in its folder, under its lock; False where the folder is read-only.

    Its config and card get the outcome (`evaluation`, `checks`, `audit`), `files` come beside them. Weights and samples
    stay byte by byte; they must still be those that were measured (`state`, of `with_state`), else nothing is kept.
    """
    if not os.access(folder, os.W_OK):
        note(f"what was measured is not written into the run: {folder} is read-only")
        return False
    with run_lock(folder) as held:
        if run_state(folder) != state:
            raise IntegrityError(
                f"{folder} was changed by another process while it was measured, so nothing is kept; measure it again"
            )
        now = open_run(folder)
        tidy(now, folder)  # what a killed change left would take figures with it
        for name, content in (files or {}).items():
            write_bytes(held.check() / name, content)
        if outcome:
            write_run(replace(now, config=replace(now.config, **outcome)), held.check())
    return True
