"""The data of `provnet train`: opened, decisions applied, and what the run is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.otherdata import in_mode, other_spec
from provnet.cli.output import is_first_process, note
from provnet.cli.rundata import spec_name
from provnet.errors import DataError, UsageError, one_of

if TYPE_CHECKING:
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import Run

TestData = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="DATA",
        help="Test on these data: their test split, else all of them. Default: the test split of the training data.",
        rich_help_panel="Data",
    ),
]


def checked_early(wishes: Mapping[str, Any], fraction: float | None, decisions: Path | None) -> dict[str, Any]:
    """The wishes that were given. What is wrong whatever the data are is refused, before hours of reading pictures."""
    from provnet.data.decisions_file import read_decisions
    from provnet.data.holdout import check_fraction
    from provnet.models.backbones import BACKBONES
    from provnet.models.config import NetworkConfig
    from provnet.models.provenance import NETWORKS
    from provnet.models.sharing import SHARING
    from provnet.training.setup import DEVICES

    given = {name: value for name, value in wishes.items() if value is not None}
    tables = {"network": tuple(NETWORKS), "backbone": ("auto", *BACKBONES, *SHARING), "device": DEVICES}
    for name, allowed in tables.items():
        if name in given:
            one_of(name, given[name], allowed)
    others = {"alpha", "conditional", "level", "head", "key_type", "key_width"} & given.keys()
    NetworkConfig("single", "small", (1, 8, 8), 1, **{name: given[name] for name in others})
    if fraction is not None:
        check_fraction(fraction)
    if decisions is not None:
        read_decisions(decisions)
    return given


def opened(data: str, options: dict[str, Any], out: Path) -> ImageData:
    """The training data; a run among their pictures, or where nothing may be written, is refused."""
    from provnet.atomic import refuse_unwritable
    from provnet.data.sources import open_data

    refuse_unwritable(out)
    found = open_data(data, progress=is_first_process(), **options)
    _refuse_inside(found.spec, out)
    return found


def decided(data: ImageData, path: Path) -> ImageData:
    """The data after the decisions of a file, and a word on what they changed."""
    from provnet.data.apply import KEY, apply_decisions, decision_words
    from provnet.data.decisions_file import read_decisions

    changed = apply_decisions(data, read_decisions(path))
    remembered = changed.spec.options.get(KEY)
    note("no decision changes anything" if remembered is None else f"{path}: {decision_words(remembered)}")
    return changed


def find_test(
    data: ImageData, fraction: float | None, source: str | None, data_dir: str | None, out: Path, *, given: ImageData
) -> tuple[ImageData, DataSpec | None, str]:
    """Training data, how to open the run's own test data again, and that in words.

    They are those at `source`, else the fraction that is held out, else the test split of the data; `given` are the
    data before decisions.
    """
    from provnet.data.apply import KEY
    from provnet.data.holdout import holdout
    from provnet.data.sources import has_split

    if source is not None:
        if fraction is not None:
            raise UsageError("--holdout tests on a part of the training data, --test on others; give one of them")
        return data, *_named(data, source, data_dir, out)
    if fraction is not None:
        kept, held = holdout(data, fraction, given=given)
        if len(held) == 0:
            raise UsageError(f"--holdout {fraction} holds out no sample: every class keeps one; give a larger fraction")
        if len(kept) == 0:
            raise UsageError("the decisions drop every sample that is not held out; there is nothing left to train on")
        return kept, held.spec, f"{len(held):,} samples held out, {fraction:.0%} of each class"
    if has_split(data.spec, "test"):
        options = {name: value for name, value in data.spec.options.items() if name != KEY}
        return data, replace(data.spec, split="test", options=options), f"the test split of {data.spec.source}"
    return data, None, "none; give data with --test, or hold a tenth out with --holdout 0.1, to measure class accuracy"


def note_test_kept(run: Run, test: DataSpec | None) -> None:
    """Say that a run which was finished before keeps its test data, where others were named."""
    if test != run.config.test:
        note(f"--test changes nothing: the run is finished and keeps its own, {spec_name(run.config.test)}", "warning")


def _named(data: ImageData, source: str, data_dir: str | None, out: Path) -> tuple[DataSpec, str]:
    """Data of their own to test on. They are read now: after hours of training it would be late to refuse them."""
    from provnet.data.combine import with_classes
    from provnet.data.sources import reopen

    limit = {name: value for name, value in data.spec.options.items() if name == "limit"}
    spec = in_mode(other_spec(data.spec, source, data_dir, "test"), data.shape)
    spec = replace(spec, options={**spec.options, **limit})
    _refuse_inside(spec, out)
    test = reopen(spec, progress=is_first_process())
    if test.shape != data.shape:
        raise DataError(
            f"--test {source}: samples of shape {test.shape}, those to train on have {data.shape}; "
            "bring both to one shape, pictures with --size and --mode"
        )
    try:
        with_classes(test, data.class_names)
    except UsageError as error:
        raise UsageError(f"--test {source}: {error}") from None
    return spec, f"{len(test):,} samples of {spec_name(spec)}"


def _refuse_inside(spec: DataSpec, out: Path) -> None:
    from provnet.cli.targets import picture_folder
    from provnet.data.folder import refuse_inside

    folder = picture_folder(spec)
    if folder is not None:
        refuse_inside(folder, out, "run")
