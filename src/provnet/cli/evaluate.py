"""`provnet evaluate`: how good a run is, each figure with n and its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.figures import figures_table, generator_table
from provnet.cli.generating import generator_figures
from provnet.cli.opened import open_run, with_state
from provnet.cli.options import AsJson, DataDir, Device, RunFolder, TrainingData, check_seed, pick_device
from provnet.cli.output import emit_json, facts, note, say, show
from provnet.cli.rundata import (
    find_training_data,
    keep_measured,
    open_test_data,
    resolve,
    seen_in_training,
    spec_name,
)

if TYPE_CHECKING:
    import numpy as np

    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run

EXAMPLE = "Example: [bold]provnet evaluate runs/mnist --json[/bold]"
NAME = "evaluation.json"


def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Name or path of data to test on (their test split where they have one). Default: the run's own.",
            show_default=False,
        ),
    ] = None,
    train_data: TrainingData = None,
    data_dir: DataDir = None,
    device: Device = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of the noise and shifts.")] = 0,
    json: AsJson = False,
) -> None:
    """Measure class accuracy on unseen data, and how well a run names its own training samples.

    All figures are also written to evaluation.json in the run folder, those on the run's own data into its model card,
    too; --json prints the chief ones.
    """
    from provnet.evaluation import evaluate as measure

    where = pick_device(device)
    loaded, state = with_state(run, open_run)
    loaded.network.to(where)
    test, seen = _test(loaded, data, data_dir)
    training, index, about_training = _training(loaded, train_data, data_dir)
    found = measure(loaded, test, training, index=index, seed=seed, progress=True, warn=False)
    about = {
        "test": None if test is None else {"data": spec_name(test.spec), "fingerprint": test.samples.fingerprint},
        "train": about_training,
        "seed": seed,
    }
    values = found.to_json()
    values |= {"test_in_training": seen} if seen else {}  # whoever reads the figures later has no warning
    made = generator_figures(loaded, training, test, index, seed)
    values |= {"generation": made} if made else {}
    if json:
        more = [name for name in ("test_in_training", "generation") if name in values]
        emit_json({name: values[name] for name in (*CHIEF, *more)})
    else:
        rows = [("unseen", spec_name(test.spec) if test else "none"), ("training", about_training["data"] or "none")]
        show(facts(rows))
        show(figures_table(values))
        if made:
            show(generator_table(made))
    own = {"evaluation": values} if data is None and test is not None else {}  # figures that the card may show
    if keep_measured(run, state, {NAME: evaluation_file(values, about, state)}, **own) and not json:
        say(f"written to {run / NAME}")


def evaluation_file(values: Mapping[str, Any], about: Mapping[str, Any], state: Mapping[str, str]) -> bytes:
    """All figures, what they were measured on, and the state of the run that they belong to."""
    from provnet.safejson import write_json

    weights, samples = (state[name] for name in ("model.safetensors", "samples.safetensors"))
    return write_json({**values, "about": {**about, "model_sha256": weights, "samples_sha256": samples}}, NAME)


def _test(run: Run, source: str | None, data_dir: str | None) -> tuple[ImageData | None, int]:
    """The samples to test on, and how many of them are the run's own."""
    from provnet.inputs import range_problem

    test = open_test_data(run, source, data_dir)
    if test is None:
        why = "the run has no test split of its own; give DATA, or train with --test or --holdout"
        note(f"class accuracy is not measured: {why}")
        return None, 0
    seen = seen_in_training(run, test)
    if seen:
        kind = "samples of the run" if run.samples.added.any() else "training samples"
        note(f"{seen:,} of {len(test):,} test samples are also {kind}: not unseen", "warning")
    problem = range_problem(run.config.network, test.images.numpy())
    if problem:
        note(f"the test data: {problem}", "warning")
    return test, seen


def _training(
    run: Run, source: str | None, data_dir: str | None
) -> tuple[ImageData | None, np.ndarray | None, dict[str, Any]]:
    found = find_training_data(run.config, run.samples, source, data_dir)
    if found.data is None:
        note(f"the training data cannot be opened, so index accuracy is not measured: {found.why}", "warning")
        return None, None, {"data": None, "left_out": len(run.samples), "withheld": int(run.samples.withheld.sum())}
    if found.why:
        note(f"not all training data can be opened: {found.why}", "warning")
    resolved = resolve(run.samples, found.data)
    for line in resolved.facts:
        note(f"training data: {line}", "warning" if resolved.left_out else "note")
    withheld = int(run.samples.withheld.sum())
    if withheld:
        note(f"{withheld:,} withheld samples cannot be named and are left out of the figures on training samples")
    names = " and ".join(spec_name(part.spec) for part in found.parts if len(part))
    about = {"data": names, "left_out": resolved.left_out, "withheld": withheld}
    return (resolved.data if len(resolved.index) else None), resolved.index, about


CHIEF = (
    "class_accuracy",
    "index_accuracy",
    "index_at_5",
    "index_accuracy_perturbed",
    "any_at_1",
    "any_at_5",
    "majority_at_5",
)
