"""The data of a run as they are now: its training samples found again by hash, its test split, data given instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provnet.cli.opened import open_run, run_state
from provnet.cli.otherdata import open_spec, other_spec
from provnet.cli.output import note
from provnet.cli.runsources import KEY, open_sources
from provnet.errors import DataError, IntegrityError, ProvnetError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import Run, RunConfig


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
    from provnet.verify import has_changed, rest_state

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
    import numpy as np

    from provnet.data.compare import compare, held
    from provnet.data.sources import reopen
    from provnet.verify import rest_state

    spec = config.data or _nowhere("train")
    data = reopen(spec, source, data_dir, progress)
    table, narrowing, rest = data.samples, {"limit", "holdout"} & set(spec.options), ""
    if KEY in config.training:
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
    import numpy as np
    import torch

    from provnet.data.compare import compare
    from provnet.data.imagedata import ImageData

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
    from provnet.data.combine import with_classes
    from provnet.data.files import shown

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

    >>> from provnet.data.imagedata import DataSpec
    >>> spec_name(DataSpec("mnist", "idx", "test", options={"limit": 50}))
    'mnist, split test, limit 50'
    >>> spec_name(DataSpec("pets", "folder", "train", options={"size": [32, 48], "holdout": [[0.2, "train"]]}))
    'pets, split train, 32 x 48 pixels, without the 20 % held out'
    """
    from provnet.data.apply import KEY, decision_words
    from provnet.data.imagedata import AFTER_READING

    if spec is None:
        return "none"
    words = [spec.source, f"split {spec.split}"]
    left_out = ("class_names", *AFTER_READING)
    words += [_option_words(name, value) for name, value in spec.options.items() if name not in left_out]
    words += [decision_words(value) for name, value in spec.options.items() if name == KEY]
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
    from provnet.data.imagedata import DataSpec

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
    from provnet.atomic import write_bytes
    from provnet.modelfile import write_run
    from provnet.training.folder import tidy
    from provnet.training.lock import run_lock

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
