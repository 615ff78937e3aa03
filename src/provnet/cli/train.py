"""`provnet train`: from data to a run folder."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any

from provnet.base.options import Train, parse_size
from provnet.cli.again import resumed
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
    checked_early,
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
    where, out, data_dir = asked.where, asked.out, asked.opening.data_dir
    shaping = {name: getattr(asked.network, name) for name in SHAPING}
    shaping |= {"index_subset": asked.subset.index_subset, "preset": asked.recipe.preset}
    settings = {name: getattr(asked.recipe, name) for name in ("epochs", "batch_size", "lr", "augment", "seed")}
    config, generating = chosen_recipe(asked.recipe.task, asked.recipe.generator, shaping, settings)
    check_folder(out, resume=where.resume, overwrite=where.overwrite)
    wishes: dict[str, Any] = {one.name: getattr(asked.network, one.name) for one in fields(asked.network)}
    wishes |= {name: getattr(where, name) for name in ("device", "devices", "checkpoint_seconds")}
    given = checked_early(wishes, asked.split.holdout, asked.split.apply) | generating
    opening = {one.name: getattr(asked.opening, one.name) for one in fields(asked.opening)}
    opening |= {} if asked.opening.size is None else {"size": parse_size(asked.opening.size)}
    found = opened(asked.data, {k: v for k, v in opening.items() if v is not None}, out)
    chosen = found if asked.split.apply is None else decided(found, asked.split.apply)
    samples, test, test_words = find_test(chosen, asked.split.holdout, asked.split.test, data_dir, out, given=found)
    subset = chosen_subset(samples, asked.subset, given, config.seed)
    if not asked.json:
        words = network_words(samples if subset is None else samples.select(subset.rows), config.preset, given)
        show(facts([("data", data_words(samples)), ("test", test_words), ("network", words)]))
    for warning in data_warnings(samples, given.get("network", "class-conditional")):
        note(warning, "warning")
    done, begun = where.resume and run_folder.finished(out), where.resume and run_folder.has_begun(out)
    began = time.perf_counter()
    with kept_is_told(out, resumed(asked)):
        run = fit(
            samples,
            config=config,
            out=out,
            resume=where.resume,
            overwrite=where.overwrite,
            test=test,
            index_subset=subset,
            progress=True,
            **given,
        )
    if not is_first_process():
        return
    if done and asked.split.test is not None:
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
    if generating:
        draw_course(out, quiet=asked.json)


SHAPING = ("network", "backbone", "head", "alpha", "conditional", "level")  # what a generator brings
