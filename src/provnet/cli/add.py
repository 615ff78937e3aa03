"""`provnet add`: samples come to a run's bank without training again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from provnet.base.errors import one_of
from provnet.cli.output import AsJson, DataDir, Device, RunFolder, emit_json, is_first_process, note, pick_device, say
from provnet.cli.withhold import bank_counts, change_run, note_removed, say_change

if TYPE_CHECKING:
    from provnet.data.dataset import ImageData
    from provnet.runs.run import Run

EXAMPLE = "Example: [bold]provnet add runs/mnist more-digits --skip-known[/bold]"


def add(
    run: RunFolder,
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Name or path of the data, as for train.", show_default=False),
    ],
    split: Annotated[str, typer.Option(metavar="train|test|all", help="Which part of the data.")] = "train",
    limit: Annotated[int | None, typer.Option(help="At most so many samples, evenly by class.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad files out and count them.")] = False,
    skip_known: Annotated[
        bool, typer.Option("--skip-known", help="Leave out samples whose pixels the run has already.")
    ] = False,
    data_dir: DataDir = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Add samples to a run with an exemplar head, each with the key that the network gives it; nothing is trained.

    Pictures are read by the rules that the training data were read with. Shape, range and classes must be the run's.
    """
    from provnet.runs.bank import add as add_to_bank
    from provnet.runs.card import maybe_trained

    one_of("split", split, ("train", "test", "all"))
    where = pick_device(device)
    opened: list[ImageData] = []

    def change(loaded: Run) -> Run:
        from provnet.models.keys import exemplar_head

        exemplar_head(loaded.network)  # refused before hours of reading pictures
        opened.append(_open(loaded, data, data_dir, split, limit, skip_bad))
        loaded.network.to(where)
        return add_to_bank(loaded, opened[0], skip_known=skip_known, progress=is_first_process())

    found = change_run(run, change)
    added = len(found.after.samples) - len(found.before.samples)
    left_out = len(opened[0]) - added
    if opened[0].skipped:
        bad = opened[0].skipped
        note(f"{len(bad):,} bad {'file' if len(bad) == 1 else 'files'} left out; the first: {bad[0]}", "warning")
    why = maybe_trained(found.before.config.training, found.before.config.erased)
    if json:
        counts = bank_counts(found.after.config, found.after.samples)
        unsure = {"may_have_been_trained_on": why} if why and added else {}
        emit_json({"run": str(run), "added": added, "known": left_out, **counts, **unsure})
        note_removed(run, found)
        return
    known = f"; {left_out:,} known ones left out" if left_out else ""
    if added:
        many = "sample" if added == 1 else "samples"
        say_change(run, found, f"added {added:,} {many}{known}. {_taught(why)}")
    else:
        say(f"nothing to add{known}")


def _taught(why: str) -> str:
    """Whether the network knows what was added."""
    if not why:
        return "The network was not trained on what was added"
    return f"The network may have been trained on what was added, which it cannot tell: {why}"


def _open(run: Run, source: str, data_dir: str | None, split: str, limit: int | None, skip_bad: bool) -> ImageData:
    """The data, read by the rules of the training data; a split that is not there is refused."""
    from provnet.runs.data import open_spec, other_spec

    spec = other_spec(run.config.data, source, data_dir, "train", skip_bad=skip_bad)
    options = dict(spec.options) if limit is None else {**spec.options, "limit": limit}
    spec = replace(spec, split=split, options=options)
    return open_spec(run.config, spec, data_dir, progress=is_first_process())
