"""`provnet train`: from data to a run folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.table import Table

from provnet.base.atomic import refuse_unwritable, write_bytes
from provnet.base.errors import DataError, UsageError, one_of
from provnet.base.files import brief, read_file
from provnet.base.options import DECISIONS, DataOptions, RunOptions, SubsetOptions, Train
from provnet.base.processes import check_environment, world_size
from provnet.base.stats import wilson
from provnet.base.words import path_word, shell_words, to_argv
from provnet.cli.output import (
    emit_json,
    facts,
    interval_cells,
    is_first_process,
    note,
    refuse_file,
    say,
    show,
)
from provnet.cli.rundata import open_run
from provnet.cli.targets import picture_folder
from provnet.data.apply import apply_decisions, decision_words, spec_name
from provnet.data.dataset import DataSpec, ImageData
from provnet.data.open import has_split, open_data, reopen
from provnet.data.select import check_fraction, holdout, with_classes
from provnet.data.sources.folder import refuse_inside
from provnet.models.backbones import BACKBONES, SHARING, takes_pretrained
from provnet.models.network import NETWORKS, build, parameter_count
from provnet.models.pretrained import INSTALL, installed
from provnet.models.pretrained import NAMES as PRETRAINED
from provnet.models.text import TEXT
from provnet.report.records import percent, seconds
from provnet.runs.data import in_mode, other_spec
from provnet.runs.run import Run
from provnet.samples.decisions import read_decisions
from provnet.samples.identity import duplicate_facts
from provnet.tools.generate.compute import chosen_recipe
from provnet.tools.generate.page import course_png
from provnet.tools.subsets import SELECTIONS, index_subset, subset_record
from provnet.training import checkpoint
from provnet.training import session as run_folder
from provnet.training.config import TrainConfig
from provnet.training.fit import fit
from provnet.training.session import LOG
from provnet.training.setup import DEVICES, is_folder, plan
from provnet.training.subset import IndexSubset


def train(asked: Train) -> None:
    """Train a network on DATA and write a run folder. Killed or stopped, it goes on with --resume."""
    where = replace(asked.where, out=asked.out, progress=True)
    out, data_dir, split = asked.out, asked.opening.data_dir, asked.split
    config = chosen_recipe(asked)
    check_folder(out, resume=where.resume, overwrite=where.overwrite)
    check_early(asked)
    found = open_training_data(asked.data, asked.opening, out)
    chosen = found if split.apply is None else apply_file(found, split.apply)
    samples, test, test_words = find_test(chosen, split.holdout, split.test, data_dir, out, given=found)
    subset = chosen_subset(samples, asked.subset, config, where)
    network, words = network_words(samples if subset is None else samples.select(subset.rows), config)
    if not asked.json:
        show(facts([("data", data_words(samples)), ("test", test_words), ("network", words)]))
    for warning in data_warnings(samples, network):
        note(warning, "warning")
    if config.wanted.backbone == "auto" and config.preset == "default" and pretrained_is_missing(samples.shape):
        note(f"pretrained features do better on photographs, in less time: {INSTALL}")
    done, begun = where.resume and run_folder.finished(out), where.resume and run_folder.has_begun(out)
    began = time.perf_counter()
    with say_what_is_kept(out, resume_command(asked)):
        run = fit(samples, config, where, test=test, index_subset=subset)
    if not is_first_process():
        return
    if done and split.test is not None:
        note_test_kept(run, test)
    result = run_result(run, out, time.perf_counter() - began)
    if subset is not None:
        result["subset"] = subset_record(run, samples)
    if asked.json:
        emit_json(result)
    elif done:
        say(f"{out}: this run is already finished; there is nothing to do")
    else:
        if subset is not None:
            show_subset(result["subset"])
        show_result(result, out, resumed=begun)
    if asked.recipe.task == "generate":
        draw_course(out, quiet=asked.json)


def resume_command(asked: Train) -> str:
    """The command that goes on with what a command has begun.

    >>> from pathlib import Path
    >>> from provnet.base.options import RunOptions
    >>> resume_command(Train(data="my data", out=Path("runs/a"), where=RunOptions(overwrite=True)))
    "provnet train 'my data' --out runs/a --resume"
    """
    again = replace(asked, where=replace(asked.where, overwrite=False, resume=True))
    return "provnet train" + shell_words(to_argv(again))


COURSE = "course.png"


def draw_course(folder: Path, *, quiet: bool = False) -> None:
    """Losses and accuracies of every epoch as a picture beside the run, where matplotlib is there."""
    try:
        write_bytes(folder / COURSE, course_png(read_course(folder), folder.name))
    except UsageError as error:
        note(f"{COURSE} is not drawn: {error}")
        return
    if not quiet:
        say(f"losses and accuracies of every epoch: {folder / COURSE}")
        say(f"next: provnet generate {path_word(folder)} -n 16 --out made")


def check_early(asked: Train) -> None:
    """Refuse what is wrong whatever the data are, before hours of reading pictures."""
    check_environment(several=asked.where.devices > 1 or world_size() > 1)
    one_of("network", asked.network.network, NETWORKS)
    if not is_folder(asked.network.backbone):
        one_of("backbone", asked.network.backbone, ("auto", *BACKBONES, *SHARING, TEXT))
    one_of("device", asked.where.device, DEVICES)
    if asked.split.holdout is not None:
        check_fraction(asked.split.holdout)
    if asked.split.apply is not None:
        read_decisions(asked.split.apply)


def open_training_data(data: str, asked: DataOptions, out: Path) -> ImageData:
    """The training data; a run among their pictures, or where nothing may be written, is refused."""
    refuse_unwritable(out)
    found = open_data(data, options=asked, progress=is_first_process())
    _refuse_inside(found.spec, out)
    for line in found.notes:
        note(line)
    return found


def apply_file(data: ImageData, path: Path) -> ImageData:
    """The data after the decisions of a file, and a word on what they changed."""
    changed = apply_decisions(data, read_decisions(path))
    remembered = changed.spec.options.get(DECISIONS)
    note("no decision changes anything" if remembered is None else f"{path}: {decision_words(remembered)}")
    return changed


def find_test(
    data: ImageData, fraction: float | None, source: str | None, data_dir: str | None, out: Path, *, given: ImageData
) -> tuple[ImageData, DataSpec | None, str]:
    """Training data, how to open the run's own test data again, and that in words.

    They are those at `source`, else the fraction that is held out, else the test split of the data; `given` are the
    data before decisions.
    """
    if source is not None:
        if fraction is not None:
            raise UsageError("--holdout tests on a part of the training data, --test on others; give one of them")
        return data, *_named(data, source, data_dir, out)
    if fraction is not None:
        kept, held = holdout(data, fraction, given=given)
        if len(held) == 0:
            raise UsageError(f"--holdout {fraction} holds out no sample: every class keeps one; give a larger fraction")
        if len(kept) == 0:
            raise UsageError("the decisions drop every sample that is not held out; keep at least one to train on")
        return kept, held.spec, f"{len(held):,} samples held out, {fraction:.0%} of each class"
    if has_split(data.spec, "test"):
        options = {name: value for name, value in data.spec.options.items() if name != DECISIONS}
        return data, replace(data.spec, split="test", options=options), f"the test split of {data.spec.source}"
    return data, None, "none; give data with --test, or hold a tenth out with --holdout 0.1, to measure class accuracy"


def note_test_kept(run: Run, test: DataSpec | None) -> None:
    """Say that a run which was finished before keeps its test data, where others were named."""
    if test != run.config.test:
        note(f"--test changes nothing: the run is finished and keeps its own, {spec_name(run.config.test)}", "warning")


def _named(data: ImageData, source: str, data_dir: str | None, out: Path) -> tuple[DataSpec, str]:
    """Data of their own to test on. They are read now: after hours of training it would be late to refuse them."""
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

    folder = picture_folder(spec)
    if folder is not None:
        refuse_inside(folder, out, "run")


def data_warnings(data: ImageData, network: str = "class-conditional") -> list[str]:
    """What a reader of the figures has to know about the data, one line each.

    >>> import numpy as np, provnet
    >>> data = provnet.open_data(np.arange(12.0).reshape(3, 4), ["cat", "cat", "dog"])
    >>> data_warnings(data)
    ['1 class has one sample, which is named whatever input is taken for that class: dog']
    >>> data_warnings(data, "class-independent")
    []
    """
    samples = data.samples
    lines = duplicate_facts(samples)
    sizes = np.bincount(samples.labels, minlength=len(samples.class_names))
    empty = int((sizes == 0).sum())
    if empty:
        words = "has no sample and is" if empty == 1 else "have no sample and are"
        lines.append(f"{empty:,} of {len(sizes):,} classes {words} never predicted")
    alone = [brief(samples.class_names[number]) for number in np.flatnonzero(sizes == 1)]
    if len(data) == 1:
        lines.append("there is one sample in all: every accuracy is meaningless")
    elif len(samples.class_names) == 1:
        lines.append("there is a single class: class accuracy is meaningless")
    elif alone and network in NETWORKS and NETWORKS[network].head != "flat":  # else the index is among all samples
        what = "1 class has" if len(alone) == 1 else f"{len(alone):,} classes have"
        names = ", ".join(alone[:3]) + (", ..." if len(alone) > 3 else "")
        lines.append(f"{what} one sample, which is named whatever input is taken for that class: {names}")
    if data.skipped:
        files = "file" if len(data.skipped) == 1 else "files"
        lines.append(f"{len(data.skipped):,} bad {files} left out; the first: {data.skipped[0]}")
    return lines


def data_words(data: ImageData) -> str:
    """Source, samples, classes and shape in a line."""
    classes = f"{len(data.class_names):,} {'class' if len(data.class_names) == 1 else 'classes'}"
    shape = " x ".join(str(side) for side in data.shape)
    return f"{data.spec.source}: {len(data):,} samples, {classes}, {shape}"


def pretrained_is_missing(shape: tuple[int, ...]) -> bool:
    """Whether pretrained weights would be taken for these data if they were installed."""
    return takes_pretrained(shape) and not installed()


def network_words(data: ImageData, asked: TrainConfig) -> tuple[str, str]:
    """The network that will be trained, its name, and in words with its parameter count."""
    config, index_map = plan(data, asked.wanted, asked.preset)
    with torch.device("meta"):
        count = parameter_count(build(config, index_map))
    keys = "" if config.head == "plain" else f", {config.head} head"
    body = config.backbone
    if body in PRETRAINED:
        body += " (pretrained, trained further)" if asked.finetune else " (pretrained, frozen)"
    words = f"{config.network}{keys}, backbone {body}, {count:,} parameters, preset {asked.preset}"
    return config.network, words


def run_result(run: Run, folder: Path, seconds: float) -> dict[str, Any]:
    """What `train --json` prints; the accuracies are those of the last epoch, measured while training."""
    samples, last = run.samples, read_course(folder)[-1]
    n, learned = len(samples), run.config.training["data"]["samples"]  # the second: also those without an index
    return {
        "run": str(folder),
        "network": run.config.network.network,
        "backbone": run.config.network.backbone,
        "parameters": parameter_count(run.network),
        "samples": n,
        "classes": len(samples.class_names),
        "fingerprint": samples.fingerprint,
        "index_ceiling": samples.index_ceiling,
        "label_conflicts": len(samples.conflicts()),
        "epochs": last["epoch"],
        "seconds": round(seconds, 3),
        "loss": last["loss"],
        "class_accuracy": wilson(round(last["class_accuracy"] * learned), learned).to_json(),
        "index_accuracy": wilson(round(last["index_accuracy"] * n), n).to_json(),
    }


def read_course(folder: Path) -> list[dict[str, Any]]:
    """The log of a run, one row an epoch."""
    return [json.loads(line) for line in read_file(folder / LOG).splitlines()]


def show_result(result: Mapping[str, Any], folder: Path, *, resumed: bool = False) -> None:
    """The end of `train`, for people; of a resumed run the time is that since it went on."""
    show(course_table(read_course(folder)))
    for name in ("class", "index"):
        value, ends, n = interval_cells(result[f"{name}_accuracy"])
        say(f"{name} accuracy while training, last epoch: {value} (95 %: {ends}, n = {n})")
    words = "went on for" if resumed else "trained in"
    say(f"{words} {seconds(result['seconds'])}; run written to {folder}", "bold")
    goal = path_word(folder)
    say(f"next: provnet evaluate {goal}   or   provnet debug {goal} --out {goal}/debug   to find wrong labels")


def course_table(course: list[dict[str, Any]], most: int = 8) -> Table:
    """Some epochs of the course, the first and the last among them.

    >>> row = {"epoch": 1, "loss": 1.0, "class_accuracy": 0.5, "index_accuracy": 0.1}
    >>> course_table([row] * 100).row_count
    8
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("epoch", "loss", "class accuracy", "index accuracy"):
        table.add_column(name, justify="right")
    count = min(most, len(course))
    for number in sorted({round(i * (len(course) - 1) / max(count - 1, 1)) for i in range(count)}):
        row = course[number]
        shares = (percent(row["class_accuracy"], 2), percent(row["index_accuracy"], 2))
        table.add_row(str(row["epoch"]), f"{row['loss']:.4f}", *shares)
    return table


def chosen_subset(data: ImageData, asked: SubsetOptions, config: TrainConfig, where: RunOptions) -> IndexSubset | None:
    """The samples to index, or None where all are; options that would do nothing are refused."""
    select, select_from, classes_on = asked.select, asked.select_from, asked.subset_classes_on
    if asked.index_subset is None:
        for name, value in (("select", select), ("select-from", select_from), ("subset-classes-on", classes_on)):
            if value is not None:
                raise UsageError(f"--{name} is for --index-subset; give that too, such as --index-subset 30%")
        return None

    way = one_of("selection", select or "stratified", SELECTIONS)
    several = where.devices > 1 or world_size() > 1
    if several and way != "stratified" and select_from is None:
        raise UsageError(f"several processes cannot make features for --select {way}; give a run with --select-from")
    usual = "subset" if config.wanted.network == "single" else "all"
    run = None if select_from is None else open_run(select_from)
    shown = is_first_process()
    return index_subset(
        data,
        asked.index_subset,
        way,
        classes_on=classes_on or usual,
        run=run,
        seed=config.seed,
        device=where.device,
        progress=shown,
    )


def show_subset(record: Mapping[str, Any]) -> None:
    """The table at the end of `train`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("numbers stored", "all indexed", "this run", "saved"):
        table.add_column(name, justify="left" if name == "numbers stored" else "right")
    for words, name in (("samples with an index", "indexed"), ("index head", "index_head"), ("network", "network")):
        whole, here = record["of" if name == "indexed" else f"{name}_of_all"], record[name]
        table.add_row(words, f"{whole:,}", f"{here:,}", f"{1 - here / whole:.1%}")
    show(table)
    learned = "all samples" if record["classes_on"] == "all" else "the indexed samples alone"
    say(f"indexed: {record['asked']}, {record['select']}; the class branch learned from {learned}")


def check_folder(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that training would refuse; `--resume` where nothing was begun is said.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_folder(Path(folder, "new"), resume=False, overwrite=False)
    """
    if not is_first_process():
        return
    refuse_file(out)
    refuse_unwritable(out / "manifest.json")
    if resume and not run_folder.has_begun(out):
        note(f"there is no checkpoint in {out}: training starts from the beginning")
    if out.is_dir() and not resume and not overwrite:
        run_folder.check_before(out, resume=False, overwrite=False)


@contextmanager
def say_what_is_kept(out: Path, again: str) -> Iterator[None]:
    """Say what is kept where training stops or fails: a checkpoint, with the command `again`, and a replaced run."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and (out / checkpoint.FOLDER).is_dir():
            note(f"stopped; a checkpoint is kept in {out}; to continue: {again}")
        if run_folder.is_there(out):
            before = out / run_folder.REPLACED
            note(f"the run that was there before is whole in {before}; it goes when the new one is whole")
        raise
