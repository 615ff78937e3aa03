"""`provnet add`: samples come to a run's bank without training again."""

from __future__ import annotations

from dataclasses import replace

from provnet.base.errors import one_of
from provnet.base.options import Add
from provnet.cli.output import emit_json, is_first_process, note, say
from provnet.cli.withhold import bank_counts, change_run, note_removed, say_change
from provnet.data.dataset import ImageData
from provnet.models.keys import exemplar_head
from provnet.runs.bank import add as add_to_bank
from provnet.runs.card import maybe_trained
from provnet.runs.data import open_spec, other_spec
from provnet.runs.run import Run
from provnet.training.setup import pick_device


def add(asked: Add) -> None:
    """Add samples to a run with an exemplar head, each with the key that the network gives it; nothing is trained."""
    one_of("split", asked.split, ("train", "test", "all"))
    where = pick_device(asked.device)
    opened: list[ImageData] = []

    def change(loaded: Run) -> Run:

        exemplar_head(loaded.network)  # refused before hours of reading pictures
        opened.append(_open(loaded, asked.data, asked.data_dir, asked.split, asked.limit, asked.skip_bad))
        loaded.network.to(where)
        return add_to_bank(loaded, opened[0], skip_known=asked.skip_known, progress=is_first_process())

    found = change_run(asked.run, change)
    added = len(found.after.samples) - len(found.before.samples)
    left_out = len(opened[0]) - added
    if opened[0].skipped:
        bad = opened[0].skipped
        note(f"{len(bad):,} bad {'file' if len(bad) == 1 else 'files'} left out; the first: {bad[0]}", "warning")
    why = maybe_trained(found.before.config.training, found.before.config.erased)
    if asked.json:
        counts = bank_counts(found.after.config, found.after.samples)
        unsure = {"may_have_been_trained_on": why} if why and added else {}
        emit_json({"run": str(asked.run), "added": added, "known": left_out, **counts, **unsure})
        note_removed(asked.run, found)
        return
    known = f"; {left_out:,} known ones left out" if left_out else ""
    if added:
        many = "sample" if added == 1 else "samples"
        say_change(asked.run, found, f"added {added:,} {many}{known}. {_taught(why)}")
    else:
        say(f"nothing to add{known}")


def _taught(why: str) -> str:
    """Whether the network knows what was added."""
    if not why:
        return "The network was not trained on what was added"
    return f"The network may have been trained on what was added, which it cannot tell: {why}"


def _open(run: Run, source: str, data_dir: str | None, split: str, limit: int | None, skip_bad: bool) -> ImageData:
    """The data, read by the rules of the training data; a split that is not there is refused."""
    spec = other_spec(run.config.data, source, data_dir, "train", skip_bad=skip_bad)
    options = dict(spec.options) if limit is None else {**spec.options, "limit": limit}
    spec = replace(spec, split=split, options=options)
    return open_spec(run.config, spec, data_dir, progress=is_first_process())
