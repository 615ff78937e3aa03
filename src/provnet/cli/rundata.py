"""Runs and their data, opened again for a command, what became of them said, and what was measured kept in the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from provnet.base.atomic import write_bytes
from provnet.base.errors import DataError, IntegrityError, UsageError
from provnet.cli.output import BACKBONE, note, refuse_file
from provnet.cli.targets import PAGE, check_outputs
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.models.attached import Given
from provnet.report.sheet import count_undrawable
from provnet.runs.data import Found, find_data, open_spec, other_spec
from provnet.runs.files import CUSTOM
from provnet.runs.fileset import state_of
from provnet.runs.inputs import range_problem
from provnet.runs.run import FILES, Run, has_run, read_run, read_samples, write_run
from provnet.training.session import run_lock, tidy
from provnet.training.setup import pick_device

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


class RunQuestion(Protocol):
    """What the options of a command that asks a run have in common."""

    @property
    def run(self) -> Path: ...  # noqa: D102
    @property
    def data_dir(self) -> str | None: ...  # noqa: D102
    @property
    def device(self) -> str | None: ...  # noqa: D102


class Begun(NamedTuple):
    """The run that a command asks, on its device; `state` is what figures belong to, `weights` their hash in it."""

    run: Run
    state: dict[str, str]
    device: str

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights."""
        return self.state["model.safetensors"]


def begin(
    asked: RunQuestion,
    out: Path | None = None,
    inputs: Iterable[str | Path | None] = (),
    more: Mapping[Path, bytes] | None = None,
) -> Begun:
    """Open the run that a command asks, once it is sure that its page, and `more`, may be written: before long work."""
    refuse_file(out)
    if out is not None:
        check_outputs({out / "report.html": PAGE, **(more or {})}, [asked.run], inputs, data_dir=asked.data_dir)
    where = pick_device(asked.device)
    run, state = with_state(asked.run, open_run)
    run.network.to(where)
    return Begun(run, state, where)


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


def note_undrawable(names: Sequence[str], instead: str) -> None:
    """Names that a drawn picture cannot show are told apart elsewhere."""
    if count := count_undrawable(names):
        what = "1 class name has" if count == 1 else f"{count:,} class names have"
        note(f"{what} signs that no font here can draw; the picture has ? for them, {instead}")


def open_members(run: Run, source: str | None, data_dir: str | None) -> ImageData:
    """Pictures at `source` (their train split), or the run's own training data as far as they are what they were."""
    if source is not None:
        return _open(run, source, "train", data_dir)
    return training_data(run, None, data_dir, option="--members").kept.there


def open_others(run: Run, source: str | None, data_dir: str | None, *, option: str = "--nonmembers") -> ImageData:
    """Pictures at `source` (their test split, else all), or the run's own test split; `option` is what gives others."""
    if source is not None:
        return _open(run, source, "test", data_dir)
    if run.config.test is None:
        raise UsageError(f"this run has no test split of its own; give pictures that it never saw with {option}")
    try:
        data = open_spec(run.config, run.config.test, data_dir, progress=True)
    except UsageError as error:
        raise UsageError(
            f"the run's test split cannot be opened ({error}); say where pictures are with {option}"
        ) from error
    return _checked(run, data)


def _open(run: Run, source: str, split: str, data_dir: str | None) -> ImageData:
    spec = other_spec(run.config.data, source, data_dir, split, classes=False)  # pictures of any class may be asked for
    return _checked(run, open_spec(run.config, spec, data_dir, progress=True))


def _checked(run: Run, data: ImageData) -> ImageData:

    shape, name = run.config.network.input_shape, spec_name(data.spec)
    if data.shape != shape:
        raise DataError(f"{name}: samples of shape {data.shape}, the run takes {shape}; bring them to that shape first")
    problem = range_problem(run.config.network, data.images.numpy())
    if problem:
        note(f"{name}: {problem}", "warning")
    return data


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
