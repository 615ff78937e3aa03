"""`provnet evaluate`: how good a run is, each figure with n and its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from provnet.answers.evaluation import evaluate_on as measure
from provnet.base.options import Evaluate
from provnet.cli.generate import generator_figures
from provnet.cli.output import (
    emit_json,
    facts,
    interval_cells,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, keep_measured, training_data, unseen_data
from provnet.data.apply import spec_name
from provnet.runs.data import Kept
from provnet.runs.run import Run
from provnet.runs.safe import write_json


def figures_table(values: Mapping[str, Any]) -> Table:
    """All rates with interval and n: first those on unseen samples, then those on the run's own.

    >>> rate = {"value": 0.5, "n": 2, "low": 0.1, "high": 0.9}
    >>> figures_table({"class_accuracy": rate, "index_accuracy": rate}).row_count
    4
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if "stage_1" in values:
        table.caption = "any@k and majority@k equal class accuracy here: exemplars are of the predicted class"
    table.add_column("figure")
    for name in ("value", "95 % interval", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    seen = values.get("test_in_training", 0)
    tested = f"on test samples, {seen:,} of them NOT unseen" if seen else "on unseen samples"
    for title, names in ((tested, UNSEEN), ("on its own training samples", OWN)):
        rows = [(words, figure) for key, words in names.items() if (figure := _find(values, key)) is not None]
        if rows:
            table.add_row(Text(title, style="bold"))
        for words, figure in rows:
            table.add_row(f"  {words}", *interval_cells(figure))
    if values.get("index_ceiling", 1.0) < 1:
        table.add_row("  ceiling of exact index (duplicates)", f"{values['index_ceiling']:.2%}".replace("%", " %"))
    return table


def generator_table(values: Mapping[str, Any]) -> Table:
    """What a run that makes pictures is worth: rebuilt pictures, and the distance of new ones to real ones.

    >>> figure = {"value": 80.0, "n": 2, "low": 79.0, "high": 81.0}
    >>> generator_table({"train": {"reconstruction_bce": figure}}).row_count
    2
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("as a generator")
    for name in ("value", "95 % interval", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for split, title in (("test", "on unseen samples"), ("train", "on its own training samples")):
        rows = [(words, form, _find(values, f"{split}.{key}")) for key, (words, form) in MADE.items()]
        if any(figure for _, _, figure in rows):
            table.add_row(Text(title, style="bold"))
        for words, form, figure in rows:
            if figure is not None:
                cells = interval_cells(figure) if form == "%" else _number_cells(figure, form)
                table.add_row(f"  {words}", *cells)
    distance = _find(values, "frechet.distance")
    if distance is not None:
        table.add_row(Text("generated pictures", style="bold"))
        table.add_row("  Fréchet distance, in latents of this run", *_number_cells(distance, ".4g"))
    return table


def _number_cells(figure: Mapping[str, Any], form: str) -> tuple[str, str, str]:
    if figure["value"] is None:
        return "-", "nothing measured", "0"
    value, count = format(figure["value"], form), "-" if figure["n"] is None else f"{figure['n']:,}"
    if figure["low"] is None or figure["high"] is None:
        return value, "-", count
    return value, f"{figure['low']:{form}} to {figure['high']:{form}}", count


def _find(values: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found: Any = values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not {"value", "n", "low", "high"} <= set(found):
        return None
    return found


UNSEEN = {
    "class_accuracy": "class accuracy",
    "any_at_1": "any@1",
    "any_at_5": "any@5",
    "any_at_10": "any@10",
    "majority_at_1": "majority@1",
    "majority_at_5": "majority@5",
    "majority_at_10": "majority@10",
    "joint_any_at_1": "any@1 by joint weights",
    "joint_any_at_5": "any@5 by joint weights",
    "supported.test": "supported",
    "accuracy_if_supported": "class accuracy if supported",
    "accuracy_if_not": "class accuracy if not",
}
MADE = {
    "reconstruction_bce": ("reconstruction: cross-entropy a picture", ".2f"),
    "reconstruction_mse": ("reconstruction: mean square error a pixel", ".5f"),
    "class_accuracy": ("class accuracy, latents at their mean", "%"),
    "class_accuracy_drawn": ("class accuracy, latents drawn", "%"),
    "index_accuracy": ("index accuracy within the class, at their mean", "%"),
    "index_accuracy_group": ("index accuracy at their mean, duplicates count as one", "%"),
    "index_accuracy_drawn": ("index accuracy within the class, drawn", "%"),
    "index_accuracy_drawn_group": ("index accuracy drawn, duplicates count as one", "%"),
}
OWN = {
    "index_accuracy": "index accuracy, exact",
    "index_accuracy_learned": "index accuracy, keys as learned",
    "joint_index_accuracy": "index accuracy by joint weights",
    "index_accuracy_group": "index accuracy, duplicates count as one",
    "index_accuracy_sampled_targets": "index accuracy, sampled targets",
    "index_at_5": "index@5",
    "index_accuracy_perturbed.noise": "index accuracy under noise",
    "index_accuracy_perturbed.shift": "index accuracy under shift",
    "index_accuracy_perturbed.jpeg": "index accuracy under JPEG",
    "index_accuracy_perturbed.crop": "index accuracy after a crop of 5 %",
    "index_accuracy_perturbed.mirror": "index accuracy of mirror images",
    "class_accuracy_train": "class accuracy",
    "stage_1": "stage 1: the class",
    "stage_2": "stage 2: the sample, given its class",
    "end_to_end": "end to end",
    "supported.train": "supported",
}


NAME = "evaluation.json"


def evaluate(asked: Evaluate) -> None:
    """Measure class accuracy on unseen data, and how well a run names its own training samples."""
    loaded, state, _ = begin(asked)
    test, seen = unseen_data(loaded, asked.data, asked.data_dir)
    if test is None:
        why = "the run has no test split of its own; give DATA, or train with --test or --holdout"
        note(f"class accuracy is not measured: {why}")
    training, about_training = _training(loaded, asked.train_data, asked.data_dir)
    found = measure(loaded, test, training.data, index=training.index, seed=asked.seed, progress=True, warn=False)
    about = {
        "test": None if test is None else {"data": spec_name(test.spec), "fingerprint": test.samples.fingerprint},
        "train": about_training,
        "seed": asked.seed,
    }
    values = found.to_json()
    values |= {"test_in_training": seen} if seen else {}  # whoever reads the figures later has no warning
    made = generator_figures(loaded, training.data, test, training.index, asked.seed)
    values |= {"generation": made} if made else {}
    if asked.json:
        more = [name for name in ("test_in_training", "generation") if name in values]
        emit_json({name: values[name] for name in (*CHIEF, *more)})
    else:
        rows = [("unseen", spec_name(test.spec) if test else "none"), ("training", about_training["data"] or "none")]
        show(facts(rows))
        show(figures_table(values))
        if made:
            show(generator_table(made))
    own = {"evaluation": values} if asked.data is None and test is not None else {}  # figures that the card may show
    if keep_measured(asked.run, state, {NAME: evaluation_file(values, about, state)}, **own) and not asked.json:
        say(f"written to {asked.run / NAME}")


def evaluation_file(values: Mapping[str, Any], about: Mapping[str, Any], state: Mapping[str, str]) -> bytes:
    """All figures, what they were measured on, and the state of the run that they belong to."""
    weights, samples = (state[name] for name in ("model.safetensors", "samples.safetensors"))
    return write_json({**values, "about": {**about, "model_sha256": weights, "samples_sha256": samples}}, NAME)


def _training(run: Run, source: str | None, data_dir: str | None) -> tuple[Kept, dict[str, Any]]:
    """The training samples, and what evaluation.json says about them."""
    found = training_data(run, source, data_dir, without="index accuracy is not measured")
    withheld = int(run.samples.withheld.sum())
    if withheld and found.data is not None:
        note(f"{withheld:,} withheld samples cannot be named and are left out of the figures on training samples")
    names = " and ".join(spec_name(part.spec) for part in found.parts if len(part))
    data = None if found.data is None else names
    return found.kept, {"data": data, "left_out": found.kept.left_out, "withheld": withheld}


CHIEF = (
    "class_accuracy",
    "index_accuracy",
    "index_at_5",
    "index_accuracy_perturbed",
    "any_at_1",
    "any_at_5",
    "majority_at_5",
)
