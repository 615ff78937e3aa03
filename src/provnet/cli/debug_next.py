"""The command that `provnet debug` suggests: train again as the run was trained, with the labels that are suggested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from provnet.cli.again import data_options, path_word, recipe_options, subset_options, unseen_options
from provnet.data.imagedata import DataSpec
from provnet.runconfig import CUSTOM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provnet.applications.debugging import Debugging
    from provnet.cli.debug_files import Corrected
    from provnet.cli.debug_held import Barred
    from provnet.cli.rundata import Found
    from provnet.data.decisions_file import Decision
    from provnet.modelfile import Run

RELABEL = "relabel.csv"
OBJECT = (
    "the backbone was given as an object, which no command can name; in Python train again with {file} and "
    "fit(..., backbone=module), see docs/debugging.md"
)
AMONG = (
    "the data were decided about before, or are not what was trained on; apply the edited decisions.csv to "
    "corrected.csv (--root says where its files are), or put its rows among the earlier decisions"
)
_OUT = " --out RUN"


class Next(NamedTuple):
    """A command, or none, and why there is none although labels change.

    `applies` says whether it applies decisions to the data as they are, so that their test split stays.
    """

    command: str = ""
    applies: bool = False
    why: str = ""


def next_command(
    run: Run,
    found: Found,
    corrected: Corrected,
    changes: Sequence[Decision],
    manifest: Path,
    decisions: Path,
    bar: Barred,
    *,
    rows: int = 0,
    device: str | None = None,
) -> Next:
    """What to do with labels that are sure to be better (`changes`), or with `rows` of decisions that somebody edits.

    A manifest has the training samples alone. Where the run has samples to test on, or somebody is to decide,
    `decisions` are applied to the data themselves, if that gives what the manifest holds: decisions to edit drop what
    `bar` names, too. `device` is repeated.
    """
    if not corrected.command or not (changes or rows):
        return Next(why=corrected.why if changes else "")
    whole = _lacks_none(run, corrected) or (rows > 0 and _drops_all(found, bar, rows))
    step = _command(run, found, corrected, changes, manifest, decisions, whole)
    if not changes and not step.applies:  # a manifest with the labels that there are
        return Next(why=AMONG if rows else "")
    if run.config.network.backbone != CUSTOM:
        where = "" if device is None else f" --device {device}"
        return step._replace(command=f"{step.command.removesuffix(_OUT)}{where}{_OUT}")
    return Next("", step.applies, OBJECT.format(file=decisions if step.applies else manifest))


def memorised_words(run: Run, result: Debugging, threshold: float) -> str:
    """Why wrong labels may hide among the odd samples of a run where no label is flagged; nothing where some are."""
    odd, settings = int((result.anomalies.score >= 0.5).sum()), run.config.training.get("training")
    preset = settings.get("preset") if isinstance(settings, Mapping) else None
    if result.flagged(threshold).any() or not odd or preset == "robust":
        return ""
    what = "1 sample is odd" if odd == 1 else f"{odd:,} samples are odd"
    return (
        f"{what}, and a network can memorise wrong labels: look at the odd ones, or debug a run that was trained with "
        "--network class-independent --preset robust --epochs 12"
    )


def _command(
    run: Run,
    found: Found,
    corrected: Corrected,
    changes: Sequence[Decision],
    manifest: Path,
    decisions: Path,
    whole: bool,
) -> Next:
    recipe, subset, test = recipe_options(run.config), subset_options(run.config), unseen_options(run.config)
    alone = "" if corrected.indexed_alone else subset  # all that is left had an index: none is to lose it
    usual = f"{corrected.command.removesuffix(_OUT)}{recipe}{alone}{test}{_OUT}"
    spec = run.config.data
    if not corrected.is_manifest and decisions.name != RELABEL:  # they hold all of corrected.csv, and what is edited
        return Next(usual.replace(f" --apply {path_word(manifest)}", f" --apply {path_word(decisions)}"), True)
    if spec is None or not corrected.is_manifest:
        return Next(usual)
    if not whole or not _same_data(run, found, changes):  # other samples are held out then, of those that are left
        held = DataSpec("", "csv", options={"holdout": spec.options.get("holdout", [])})
        test = unseen_options(run.config, found.parts[0].spec)
        return Next(f"{corrected.command.removesuffix(_OUT)}{data_options(held)}{recipe}{alone}{test}{_OUT}")
    if run.config.test is None and decisions.name == RELABEL:
        return Next(usual)
    now = found.parts[0].spec
    options = data_options(replace(spec, data_dir=now.data_dir))
    applied = f" --apply {path_word(decisions)}"
    return Next(f"provnet train {path_word(now.source)}{options}{recipe}{subset}{test}{applied}{_OUT}", True)


def _lacks_none(run: Run, corrected: Corrected) -> bool:
    """Whether the data may be trained on as they are: nothing withheld or erased, nothing left out of the manifest."""
    return not corrected.left_out and not run.config.erased and not run.samples.withheld.any()


def _drops_all(found: Found, bar: Barred, rows: int) -> bool:
    """Whether decisions name all that must not be trained on again, and are not more than a run remembers."""
    from provnet.data.apply import MOST

    return found.table is not None and not bar.why and rows <= MOST


def _same_data(run: Run, found: Found, changes: Sequence[Decision]) -> bool:
    """Whether the data with the changes are what the manifest holds: no other sources, none renamed."""
    spec = run.config.data
    if spec is None or "decisions" in spec.options or len(found.parts) != 1 or run.config.added:
        return False
    now = found.parts[0].samples
    places = [now.id_places.get(one.sample_id) for one in changes]
    return all(place is not None and now.hex(place) == one.sha256 for place, one in zip(places, changes, strict=True))
