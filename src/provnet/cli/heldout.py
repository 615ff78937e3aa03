"""Pictures for membership: opened for audits, drawn evenly, and the scores that an audit keeps beside the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from provnet.base.batches import keyed_generator
from provnet.base.errors import DataError, IntegrityError, UnsafeFileError, UsageError
from provnet.base.files import read_file
from provnet.base.words import path_word
from provnet.cli.output import note
from provnet.cli.rundata import spec_name, training_data
from provnet.data.dataset import ImageData
from provnet.runs.data import open_spec, other_spec
from provnet.runs.inputs import range_problem
from provnet.runs.run import Run
from provnet.runs.safe import read_json, write_json
from provnet.tools.membership.member import Heldout

NAME = "membership.json"


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
    return _fitting(run, data)


def drawn(data: ImageData, limit: int, seed: int) -> ImageData:
    """At most so many samples, drawn by the seed; the first ones of a file are often of one kind.

    >>> import provnet
    >>> len(drawn(provnet.open_data("embedded", limit=40), 7, seed=0))
    7
    """
    if len(data) <= limit:
        return data
    return data.select(torch.randperm(len(data), generator=keyed_generator(seed, 42))[:limit].sort().values)


def heldout_file(heldout: Heldout, state: Mapping[str, str]) -> bytes:
    """Held-out scores as they are kept beside the run, with the state of it that they belong to."""
    return write_json({**heldout.to_json(), "about": {"made_from": heldout.about, "run": dict(state)}}, NAME)


def read_heldout(folder: Path, state: Mapping[str, str]) -> Heldout | None:
    """What an audit kept, or None; scores of another state of the run than this are not used, and that is said."""
    if not (folder / NAME).exists():
        return None
    try:
        value = read_json(read_file(folder / NAME, 1_000_000), NAME)
        about = value.get("about")
        if not isinstance(about, dict) or about.get("run") != state:
            note(
                f"{NAME} tells of this run before it was changed and is not used: provnet audit {path_word(folder)}",
                "warning",
            )
            return None
        return Heldout.from_json(value, str(about.get("made_from", "")))
    except (IntegrityError, UnsafeFileError, DataError) as error:
        note(f"{NAME} is not used: {error}", "warning")
        return None


def _open(run: Run, source: str, split: str, data_dir: str | None) -> ImageData:
    spec = other_spec(run.config.data, source, data_dir, split, classes=False)  # pictures of any class may be asked for
    return _fitting(run, open_spec(run.config, spec, data_dir, progress=True))


def _fitting(run: Run, data: ImageData) -> ImageData:

    shape, name = run.config.network.input_shape, spec_name(data.spec)
    if data.shape != shape:
        raise DataError(f"{name}: samples of shape {data.shape}, the run takes {shape}; bring them to that shape first")
    problem = range_problem(run.config.network, data.images.numpy())
    if problem:
        note(f"{name}: {problem}", "warning")
    return data
