"""`provnet train`: from data to a run folder."""

from __future__ import annotations

import time
from dataclasses import replace

from provnet.base.options import Train
from provnet.base.words import shell_words, to_argv
from provnet.cli.generate import chosen_recipe, draw_course
from provnet.cli.output import (
    emit_json,
    facts,
    is_first_process,
    note,
    say,
    show,
)
from provnet.cli.targets import check_folder, kept_is_told
from provnet.cli.traindata import (
    check_early,
    chosen_subset,
    data_warnings,
    data_words,
    decided,
    find_test,
    network_words,
    note_test_kept,
    opened,
    run_result,
    show_result,
    show_subset,
    subset_record,
)
from provnet.training import session as run_folder
from provnet.training.fit import fit


def train(asked: Train) -> None:
    """Train a network on DATA and write a run folder. Killed or stopped, it goes on with --resume."""
    where = replace(asked.where, out=asked.out, progress=True)
    out, data_dir, split = asked.out, asked.opening.data_dir, asked.split
    config = chosen_recipe(asked)
    check_folder(out, resume=where.resume, overwrite=where.overwrite)
    check_early(asked)
    found = opened(asked.data, asked.opening, out)
    chosen = found if split.apply is None else decided(found, split.apply)
    samples, test, test_words = find_test(chosen, split.holdout, split.test, data_dir, out, given=found)
    subset = chosen_subset(samples, asked.subset, config, where)
    if not asked.json:
        words = network_words(samples if subset is None else samples.select(subset.rows), config)
        show(facts([("data", data_words(samples)), ("test", test_words), ("network", words)]))
    for warning in data_warnings(samples, config.wanted.network):
        note(warning, "warning")
    done, begun = where.resume and run_folder.finished(out), where.resume and run_folder.has_begun(out)
    began = time.perf_counter()
    with kept_is_told(out, resumed(asked)):
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
        say(f"{out}: this run is finished already, nothing to do")
    else:
        if subset is not None:
            show_subset(result["subset"])
        show_result(result, out, resumed=begun)
    if asked.recipe.task == "generate":
        draw_course(out, quiet=asked.json)


def resumed(asked: Train) -> str:
    """The command that goes on with what a command has begun.

    >>> from pathlib import Path
    >>> from provnet.base.options import RunOptions
    >>> resumed(Train(data="my data", out=Path("runs/a"), where=RunOptions(overwrite=True)))
    "provnet train 'my data' --out runs/a --resume"
    """
    again = replace(asked, where=replace(asked.where, overwrite=False, resume=True))
    return "provnet train" + shell_words(to_argv(again))
