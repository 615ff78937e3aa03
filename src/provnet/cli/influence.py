"""`provnet influence` and `provnet without`: what answers depend on, and what they would be without some samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from provnet.base import options
from provnet.base.errors import UsageError
from provnet.base.files import brief, file_size
from provnet.base.words import path_word
from provnet.cli.bank import change_run
from provnet.cli.credit import open_queries
from provnet.cli.output import emit_json, facts, note, say, show
from provnet.cli.rundata import begin, training_data
from provnet.influence.of_run import about_influence, prepare_influence, with_unit
from provnet.runs.inputs import inputs_of
from provnet.runs.run import Run
from provnet.tools.without import Without, group_of, train_without
from provnet.tools.without import without as foretell
from provnet.training.setup import pick_device

SHOWN = 40  # queries in a table


def influence(asked: options.Influence) -> None:
    """Make the influence keys of a run, or make them again."""
    where = pick_device(asked.device)

    def change(loaded: Run) -> Run:
        data = training_data(loaded, asked.data, asked.data_dir).kept.data
        loaded.network.to(where)
        return prepare_influence(loaded, data, replace(asked.how, progress=True))

    after = change_run(asked.run, change).after
    about: dict[str, Any] = about_influence(after)
    assert after.influence is not None
    size = sum(one.nbytes for one in after.influence.values())
    record = {"run": str(asked.run), "samples": len(after.samples), "bytes": size, **about}
    if asked.json:
        emit_json(record)
        return
    epochs = ", ".join(map(str, about["epochs"]))
    said = f"after epochs {epochs} and at the end" if epochs else "at the end alone: this run kept no snapshots"
    rows = [
        ("samples", f"{len(after.samples):,}"),
        ("asked at the weights", said),
        ("compact keys agree with whole ones", f"{about['agreement']:.3f} (correlation, 256 training samples)"),
        ("size", file_size(size)),
    ]
    show(facts(rows))
    say(f"ask with it: provnet explain {path_word(asked.run)} test:0 --weights influence")


def without(asked: options.Without) -> None:
    """Foretell answers without some training samples; with `retrain` also train with and without them."""
    run, _, _ = begin(asked)
    group = group_of(run, asked.ids or (), asked.sources or ())
    images, about = open_queries(run, asked.queries, asked.data_dir)
    given = inputs_of(run.config, images)
    found = foretell(run, given, group)
    if asked.retrain:
        data = training_data(run, asked.data, asked.data_dir).kept.data
        if data is None or len(data) != len(run.samples):
            raise UsageError("training again needs all training samples; say with --data where they are")
        found = train_without(run, data, given, found, group, asked.retrain, progress=True)
        if asked.keep and found.slope is not None:
            if found.slope[1] <= 0:
                raise UsageError(
                    f"the unit cannot be told from nothing by {found.trainings} trainings ({found.slope[1]:.3g} to "
                    f"{found.slope[2]:.3g} log-odds), so it is not kept; train more often, or leave out more samples"
                )
            words = f"{found.trainings} trainings with and without {found.group} samples, {len(images)} queries"
            slope = found.slope
            change_run(asked.run, lambda loaded: with_unit(loaded, slope, words))
    if asked.json:
        emit_json({"run": str(asked.run), "queries": about, **found.to_json()})
        return
    show(_table(found))
    if len(found.predicted) > SHOWN:
        say(f"and {len(found.predicted) - SHOWN:,} more queries (--json)")
    for line in _words(found):
        note(line)


def _table(found: Without) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False)
    for title in ("query", "answer", "log-odds now", "foretold change"):
        table.add_column(title, justify="left" if title in ("query", "answer") else "right")
    if found.found is not None:
        table.add_column("found change (95 % interval)", justify="right")
    for row, name in enumerate(found.predicted[:SHOWN]):
        cells = [str(row), brief(name), f"{found.log_odds[row]:.2f}", f"{found.foretold[row]:+.2f}"]
        if found.found is not None:
            mean, low, high = found.found[row]
            cells.append(f"{mean:+.2f} ({low:+.2f} to {high:+.2f})")
        table.add_row(*map(Text, cells))
    return table


def _words(found: Without) -> list[str]:
    """What the figures mean."""
    unit = (
        "in log-odds"
        if found.unit
        else (
            "in units of the usual influence of one sample on an answer: their order counts, not their size "
            "(--retrain N --keep finds the unit)"
        )
    )
    lines = [f"{found.group:,} {'sample' if found.group == 1 else 'samples'} left out; foretold changes are {unit}"]
    if found.slope is not None:
        mean, low, high = found.slope
        lines.append(
            f"{found.trainings} trainings with and without: one foretold unit was {mean:.3g} log-odds "
            f"({low:.3g} to {high:.3g})" + ("" if low > 0 or high < 0 else ", which cannot be told from nothing")
        )
    if found.rank is not None:
        lines.append(f"rank correlation of foretold and found over {len(found.predicted)} queries: {found.rank:.2f}")
    return lines
