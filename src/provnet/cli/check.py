"""`provnet check`: whether explanations depend on what was learned, confidence is calibrated, and the run abstains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

from provnet.base.errors import UsageError
from provnet.base.files import brief
from provnet.base.options import Check, CheckOptions
from provnet.cli.output import (
    emit_json,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, keep_measured, open_others, open_run, training_data, unseen_data
from provnet.cli.targets import write_into
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.membership.member import draw_samples
from provnet.tools.trust.compute import LeftOut, Trust
from provnet.tools.trust.compute import check as measure
from provnet.tools.trust.page import outcome_row, trust_files


def open_other(run: Run, source: str, data_dir: str | None, how: CheckOptions) -> Tensor:
    """Pictures of another data set; those that have the pixels of a training sample are refused."""
    data = draw_samples(open_others(run, source, data_dir), how.limit, how.seed)
    known = {row.tobytes() for row in run.samples.pixel_sha256}
    own = np.array([row.tobytes() in known for row in data.samples.pixel_sha256])
    if own.any():
        raise UsageError(
            f"--other {source}: {int(own.sum()):,} of {len(data):,} pictures are training samples of the run; "
            "give data that it should abstain on"
        )
    return data.images


def open_left_out(folder: Path, unseen: ImageData | None, how: CheckOptions, where: str) -> LeftOut:
    """A run without some classes, and unseen pictures: of its own classes, and of those that it lacks."""
    if unseen is None:
        raise UsageError("--left-out needs unseen data of all classes; give --test DATA")
    run = open_run(folder)
    if run.config.network.input_shape != unseen.shape:
        raise UsageError(
            f"--left-out {folder} takes samples of shape {run.config.network.input_shape}, the unseen data have "
            f"{unseen.shape}; give a run that was trained on samples of that shape"
        )
    sizes = np.bincount(run.samples.labels, minlength=len(run.samples.class_names))
    has = {name for name, count in zip(run.samples.class_names, sizes.tolist(), strict=True) if count}
    lacks = np.array([name not in has for name in unseen.class_names])[unseen.samples.labels]
    if not lacks.any() or lacks.all():
        raise UsageError(
            f"--left-out {folder} has {'all' if not lacks.any() else 'none'} of the classes of the test data; "
            "give a run that was trained without some of them"
        )
    own, strangers = (
        draw_samples(unseen.select(np.flatnonzero(rows)), how.limit, how.seed) for rows in (~lacks, lacks)
    )
    names = sorted({unseen.class_names[int(label)] for label in np.unique(strangers.samples.labels)})
    run.network.to(where)
    few = ", ".join(map(brief, names[:5])) + (", ..." if len(names) > 5 else "")
    kind = "class" if len(names) == 1 else "classes"
    return LeftOut(run, own.images, strangers.images, f"left-out {kind} {few}")


def check(asked: Check) -> None:
    """Check whether a run's explanations can be trusted, and write the outcome into its model card."""
    inputs = [asked.data, asked.test, *(asked.other or ())]
    loaded, state, where = begin(asked, asked.out, inputs)
    weights = state["model.safetensors"]
    unseen, _ = unseen_data(loaded, asked.test, asked.data_dir)
    if unseen is None:
        note("the run has no test split of its own: give --test DATA, or some checks are not measured", "warning")
    training = training_data(loaded, asked.data, asked.data_dir, without="some checks are not measured").kept
    others = {name: open_other(loaded, name, asked.data_dir, asked.how) for name in asked.other or ()}
    without = None if asked.left_out is None else open_left_out(asked.left_out, unseen, asked.how, where)
    found = measure(
        loaded,
        unseen,
        training.data,
        None if training.data is None else training.index,
        others=others,
        left_out=without,
        options=asked.how,
        progress=True,
        warn=False,  # the data were looked at when they were opened
    )
    written: list[str] = []
    if asked.out is not None:
        about = {"run": str(asked.run), "model_sha256": weights, "test": unseen and spec_name(unseen.spec)}
        names = write_into(asked.out, trust_files(loaded, found, about), [asked.run], inputs)
        written = [str(asked.out / name) for name in names]
    if asked.card and keep_measured(asked.run, state, checks=found.for_card()):
        written.append(str(asked.run / "README.md"))
    if asked.json:
        emit_json({**found.to_json(), "run": str(asked.run), "model_sha256": weights})
        return
    _show(found)
    open_ = sum(one.passed is None for one in found.outcomes)
    words = "all bars are met" if found.passed else "not all bars are met"
    words += f" of those that were measured; {open_} were not" if open_ else ""
    say(words, "green" if found.passed and not open_ else "yellow")
    if written:
        say(f"written to {', '.join(written)}")


def _show(found: Trust) -> None:

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("outcome", no_wrap=True)
    table.add_column("check", overflow="fold")
    for name in ("figure", "95 % interval", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bar", overflow="fold")
    group = ""
    for one in found.outcomes:
        row = outcome_row(one.to_json())
        if group and one.group != group:
            table.add_section()
        group = one.group
        style = {"pass": "green", "fail": "bold red"}.get(row.state, "dim")
        words = row.words + (f"\n  {row.note}" if row.note else "")
        table.add_row(Text(row.state, style), words, row.value, row.ends, row.n, row.bar)
    show(table)
