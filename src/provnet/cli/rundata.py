"""The data of a run as they are now: its training samples found again by hash, its test split, data given instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from provnet.base.atomic import write_bytes
from provnet.base.errors import DataError, IntegrityError, ProvnetError, UsageError
from provnet.base.files import shown
from provnet.base.options import DECISIONS, SUBSET
from provnet.cli.output import BACKBONE, note
from provnet.data.apply import decision_words
from provnet.data.compare import compare, held
from provnet.data.dataset import AFTER_READING, DECODING, DataSpec, ImageData
from provnet.data.open import has_split, relocated, reopen
from provnet.data.select import Combined, combine, with_classes
from provnet.runs.files import CUSTOM
from provnet.runs.fileset import state_of
from provnet.runs.inputs import BYTES, picture_mode
from provnet.runs.run import FILES, Run, RunConfig, has_run, read_run, read_samples, write_run
from provnet.runs.verify import has_changed, rest_state
from provnet.samples.identity import SampleTable
from provnet.training.session import run_lock, tidy


@dataclass(frozen=True, eq=False)
class Opened:
    """What could be opened of a run's sources.

    Attributes:
        combined: the samples of the run that are there; None where no source can be opened.
        why: why some sources cannot be opened, if samples are missing then; else empty.
        rows: the samples that would be there if nothing had changed, as others may lie in a source that cannot be
            opened; None means all of them.
        table: all samples of the training data, also those that the run does not hold; None where they are not there.
    """

    combined: Combined | None
    why: str = ""
    rows: np.ndarray | None = None
    table: SampleTable | None = None


def open_sources(
    config: RunConfig, samples: SampleTable, source: str | None, data_dir: str | None, progress: bool
) -> Opened:
    """The run's samples out of all its sources; `source` stands for the training data.

    A source that cannot be opened matters only if samples are missing then. Samples of the sources that the run does
    not hold (erased, or never added) are left out.
    """
    specs = [config.data or DataSpec("arrays", "arrays"), *config.added]
    parts, why = _open(specs, source, data_dir, progress)
    if source is not None and not _fits(config, parts[0]):  # asked for by name: compared as it is
        return Opened(Combined(parts[0], (parts[0],), len(samples)))
    good = {number: part for number, part in parts.items() if _fits(config, part)}
    why += [f"{part.spec.source} now holds samples of shape {part.shape}" for n, part in parts.items() if n not in good]
    if not good:
        return Opened(None, "; ".join(why))
    table = good[0].samples if 0 in good else None
    found = combine(samples, list(good.values()))
    narrowed = [replace(spec, options=_wide(spec)) for spec in specs]
    if found.missing and narrowed != specs:
        # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
        parts, _ = _open(narrowed, source, data_dir, progress)
        good = {number: part for number, part in parts.items() if _fits(config, part)}
        found = combine(samples, list(good.values()))
    if found.missing == 0:
        return Opened(found, table=table)
    rows = _expected(samples, found, list(good)) if len(good) < len(specs) else None
    if rows is not None and len(rows) < len(samples):
        found = combine(samples.select(rows), list(good.values()))
    else:
        why, rows = [], None
    first = next(iter(good.values()))
    return Opened(found if len(found.data) else Combined(first, (first,), len(samples)), "; ".join(why), rows, table)


def _expected(samples: SampleTable, found: Combined, numbers: list[int]) -> np.ndarray:
    """The rows that are there, or would be if nothing had changed: not those that may lie in a source that is not.

    Where an added sample came from is not kept. If its name now holds other content it was edited, but for names of
    the training data, which may have been there when the sample was added: then it was another of that name.
    """
    status = np.array(compare(samples, found.data.samples).status)
    added = {name for n, part in zip(numbers, found.parts, strict=True) if n > 0 for name in part.samples.sample_ids}
    edited = np.array([name in added for name in samples.sample_ids]) & (status == "edited")
    there = (status != "missing") & (status != "edited")
    return np.flatnonzero(there | np.where(samples.added, edited, 0 in numbers))


def _open(
    specs: list[DataSpec], source: str | None, data_dir: str | None, progress: bool
) -> tuple[dict[int, ImageData], list[str]]:
    """The sources that can be opened, by their number, and why others cannot."""
    parts: dict[int, ImageData] = {}
    why: list[str] = []
    for number, spec in enumerate(specs):
        place = source if number == 0 else None
        try:
            parts[number] = reopen(spec, place, data_dir, progress)
        except ProvnetError as error:
            if place is not None:
                raise
            why.append(str(error))
    return parts, why


def _wide(spec: DataSpec) -> dict[str, object]:
    return {name: value for name, value in spec.options.items() if name not in ("limit", "holdout")}


def _fits(config: RunConfig, part: ImageData) -> bool:

    is_bytes = not part.images.is_floating_point()
    return part.shape == config.network.input_shape and is_bytes == (config.network.scale == BYTES)


PICTURES = ("folder", "csv")  # kinds of sources whose samples are picture files; arrays are taken as they are


def other_spec(
    given: DataSpec | None,
    source: str,
    data_dir: str | None,
    split: str,
    *,
    classes: bool = True,
    skip_bad: bool | None = None,
) -> DataSpec:
    """How to open the data at `source` for a run, by the rules of its training data (`given`).

    Where they have no test split, all of them stand for it. Where `classes` do not matter, names that belong to the
    training data say nothing about these. `skip_bad` None: bad files are left out if they were in training.

    >>> from provnet.data.dataset import DataSpec
    >>> data = DataSpec("mnist", "idx", options={"size": [8, 8], "limit": 100})
    >>> other_spec(data, "embedded", None, "test", classes=False).options
    {'size': [8, 8]}
    """
    given = given or DataSpec("arrays", "arrays")
    options = {name: value for name, value in given.options.items() if name in DECODING}
    if given.options.get("skip_bad", False) if skip_bad is None else skip_bad:
        options["skip_bad"] = True
    plain = replace(given, source=given.source if classes else "arrays", options=options)
    spec = relocated(plain, source, data_dir)
    return replace(spec, split=split if has_split(spec, split) else "all")


def in_mode(spec: DataSpec, shape: tuple[int, ...]) -> DataSpec:
    """The spec, by which picture files without a mode of their own come with the channels of samples of this shape."""
    return replace(spec, options={**picture_mode(shape), **spec.options}) if spec.kind in PICTURES else spec


def open_spec(config: RunConfig, spec: DataSpec, data_dir: str | None, *, progress: bool) -> ImageData:
    """Open data for a run, in its colour mode."""
    return reopen(in_mode(spec, config.network.input_shape), None, data_dir, progress)


Read = TypeVar("Read")


def backbone_for(folder: Path) -> nn.Module | None:
    """The module that `main` was given, where the run in a folder needs one; a command may open others beside it."""
    given = BACKBONE.get()
    return given if given is not None and read_samples(folder)[0].network.backbone == CUSTOM else None


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


@dataclass(frozen=True, eq=False)
class Found:
    """Training data opened again.

    Attributes:
        data: as they are now, in their order of now; None where they cannot be opened. Of a run whose samples were
            added or erased those that it holds, in its order; of a run that indexes some samples those alone.
        why: why there are none, or not all; else empty.
        parts: the same by source; each says where its files are.
        rest: what changed among samples that were trained on without an index; else empty.
        unsure: why those cannot be compared; else empty.
        rows: which samples of the run can be looked for where `why` says that not all can; None means all.
        table: all samples of the training data as the run's settings choose them, those that it does not hold among
            them; None where they are not there, or where renamed files make the settings choose others.
    """

    data: ImageData | None
    why: str = ""
    parts: tuple[ImageData, ...] = ()
    rest: str = ""
    unsure: str = ""
    rows: np.ndarray | None = None
    table: SampleTable | None = None


@dataclass(frozen=True, eq=False)
class Resolved:
    """Training samples in the run's own order and under its labels, whatever became of their files.

    Attributes:
        data: the samples that are still what they were.
        index: (n,) which training sample each of them is.
        facts: what changed, one line each; empty where nothing did.
        left_out: how many samples are edited or missing.
    """

    data: ImageData
    index: np.ndarray
    facts: list[str]
    left_out: int


def find_training_data(
    config: RunConfig, samples: SampleTable, source: str | None, data_dir: str | None, *, progress: bool = True
) -> Found:
    """Open the training data of a run again, or those at `source`; only data that were asked for must be there."""
    try:
        if has_changed(config, samples):
            opened = open_sources(config, samples, source, data_dir, progress)
            if opened.combined is None:
                return Found(None, opened.why)
            words = rest_state(config, samples, opened.table)
            together = opened.combined
            return Found(together.data, opened.why, together.parts, *words, opened.rows, opened.table)
        return _open_training(config, samples, source, data_dir, progress)
    except ProvnetError as error:
        if source is not None:
            raise
        return Found(None, str(error))


def _open_training(
    config: RunConfig, samples: SampleTable, source: str | None, data_dir: str | None, progress: bool
) -> Found:

    spec = config.data or _nowhere("train")
    data = reopen(spec, source, data_dir, progress)
    table, narrowing, rest = data.samples, {"limit", "holdout"} & set(spec.options), ""
    if SUBSET in config.training:
        rows = held(samples, data.samples)
        rest, _ = rest_state(config, samples, data.samples, rows)
        data = data.select(rows) if len(rows) else data
    if not narrowing or data.samples.fingerprint == samples.fingerprint:
        return Found(data, parts=(data,), rest=rest, table=table)
    # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
    options = {name: value for name, value in spec.options.items() if name not in narrowing}
    everything = reopen(replace(spec, options=options), source, data_dir, progress)
    found = compare(samples, everything.samples).nearest
    named = [everything.samples.id_places.get(name, -1) for name in samples.sample_ids]
    rows = np.union1d(found, np.array(named, dtype=np.int64))
    rows = rows[rows >= 0]
    data = everything.select(rows) if len(rows) else data
    return Found(data, parts=(data,), rest=rest)


def resolve(samples: SampleTable, data: ImageData) -> Resolved:
    """Bring data of now into the order of training time, by hash; what is edited or missing is left out and counted."""
    if data.samples.fingerprint == samples.fingerprint:
        return Resolved(data, np.arange(len(samples)), [], 0)
    found = compare(samples, data.samples)
    index = np.flatnonzero(found.positions >= 0)
    places = found.positions[index]
    left_out, doubled = len(samples) - len(index), len(index) - len(np.unique(places))
    lines = found.lines()
    if doubled:  # of equal samples, which share a place: the table is the run's own, as ids must be unique
        lines.append(f"{doubled:,} missing, but the same content is still there under another name and stands for it")
    if left_out:
        lines.append(f"{left_out:,} of {len(samples):,} training samples are left out of the figures")
    pictures = ImageData(data.images[torch.from_numpy(places)], samples.select(index), data.spec, data.skipped)
    return Resolved(pictures, index, lines, left_out)


def open_test_data(run: Run, source: str | None, data_dir: str | None, *, progress: bool = True) -> ImageData | None:
    """The data at `source` (its test split, else all of it), or the run's own test split; None where it has none."""
    spec = run.config.test
    if source is not None:
        spec = other_spec(run.config.data, source, data_dir, "test")
    if spec is None:
        return None
    place = Path(spec.source)
    if source is None and place.is_absolute() and not place.exists():
        raise UsageError(
            f"the run's test split cannot be opened: {shown(spec.source)} is not there any more; put it back, or give "
            "test data or picture files in its place (--help says how)"
        )
    data = open_spec(run.config, spec, data_dir, progress=progress)
    shape = run.config.network.input_shape
    if data.shape != shape:
        raise DataError(
            f"the data have samples of shape {data.shape}, the run takes {shape}; train with --size and --mode, "
            "or bring the data to that shape"
        )
    return with_classes(data, run.samples.class_names)


def seen_in_training(run: Run, data: ImageData) -> int:
    """How many of these samples have exactly the pixels of a training sample."""
    trained = {row.tobytes() for row in run.samples.pixel_sha256}
    return sum(row.tobytes() in trained for row in data.samples.pixel_sha256)


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


def _nowhere(split: str) -> DataSpec:

    return DataSpec("arrays", "arrays", split)


def need_training(run: Run, source: str | None, data_dir: str | None) -> tuple[Found, Resolved]:
    """The training samples that are still what they were, for a command that cannot do without their pictures."""
    found = find_training_data(run.config, run.samples, source, data_dir)
    if found.data is None:
        raise DataError(f"the training data cannot be opened: {found.why}; say with --data where they are")
    if found.why:
        note(f"not all training data can be opened: {found.why}", "warning")
    resolved = resolve(run.samples, found.data)
    for line in resolved.facts:
        note(f"training data: {line}", "warning" if resolved.left_out else "note")
    if len(resolved.index) == 0:
        raise DataError("none of the training samples is among the data; say with --data where they are")
    return found, resolved


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
