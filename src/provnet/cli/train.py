"""`provnet train`: from data to a run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from provnet.base.errors import UsageError
from provnet.cli.again import resumed
from provnet.cli.generate import GeneratorName, Task, chosen_recipe, draw_course
from provnet.cli.output import (
    AsJson,
    BatchSize,
    DataDir,
    Device,
    NewRun,
    emit_json,
    facts,
    is_first_process,
    note,
    parse_size,
    say,
    show,
)
from provnet.cli.targets import check_folder, kept_is_told
from provnet.cli.traindata import (
    Asked,
    ClassesOn,
    Select,
    SelectFrom,
    TestData,
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

EXAMPLE = "Example: [bold]provnet train mnist --data-dir data --out runs/mnist[/bold]"
_DATA, _HOW, _RUN = "Data", "Network and recipe", "The run"


def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A name (embedded, digits, mnist, fashion-mnist, cifar10, cifar100, lfw, stanford-dogs) or a path: "
            "image folder, .npz, CSV manifest, folder of idx or CIFAR files.",
            show_default=False,
        ),
    ],
    out: NewRun,
    task: Task = "classify",
    generator: GeneratorName = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="single, class-independent, class-conditional (default) or class-conditional-heads.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="paper-single, paper, small, medium, residual, mlp, or one of app. 7.6. Default: by shape and preset.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="plain|exemplar|exemplar-trained",
            help="Index head: the paper's output layer, or one key per training sample. Default: by preset.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="fp32|bf16|int8", help="How an exemplar head stores its keys. Default: fp32.", rich_help_panel=_HOW
        ),
    ] = None,
    key_width: Annotated[
        int | None,
        typer.Option(
            metavar="D",
            help="Numbers of a key. Default: the backbone's features, if at most 512.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="fast|paper|robust", help="Recipe. Default: fast.", rich_help_panel=_HOW)
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            metavar="none|auto|NAME",
            help="Train on changed copies that keep their index: tiny, digits, photos, noise. Default: by preset.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Default: by preset.", rich_help_panel=_HOW)] = None,
    batch_size: BatchSize = None,
    lr: Annotated[
        float | None, typer.Option(help="Highest learning rate. Default: by preset.", rich_help_panel=_HOW)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: 0.", rich_help_panel=_HOW)] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Label mixing: probability that another sample of the class is the target. Default: 0.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    conditional: Annotated[
        bool | None,
        typer.Option(
            "--conditional/--no-conditional",
            help="Give the class to the index branch (class-conditional). Default: yes.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(help="Sharing level 1 to 4 of the backbones of app. 7.6. Default: 3.", rich_help_panel=_HOW),
    ] = None,
    data_dir: DataDir = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="N|HxW", help="Cut pictures to the centre and resize, such as 64 or 64x48.", rich_help_panel=_DATA
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="grey|rgb", help="Default: as found.", rich_help_panel=_DATA)
    ] = None,
    background: Annotated[
        str | None, typer.Option(metavar="COLOUR", help="Behind transparency. Default: white.", rich_help_panel=_DATA)
    ] = None,
    frame: Annotated[
        int | None, typer.Option(help="Which picture of animated or multi-page files.", rich_help_panel=_DATA)
    ] = None,
    value_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Values of 16-bit and float pictures.", rich_help_panel=_DATA),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad files out and count them.", rich_help_panel=_DATA)
    ] = False,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep decoded pictures for the next opening. Default: $PROVNET_CACHE, else none.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many samples of each split, evenly by class.", rich_help_panel=_DATA)
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Hold out a fraction of each class for testing, chosen by content.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    test_data: TestData = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            metavar="CSV",
            help="Decisions of `provnet debug --review`, edited: samples to keep, relabel or drop.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder that a manifest's paths are relative to. Default: that of the CSV file.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    index_subset: Asked = None,
    select: Select = None,
    select_from: SelectFrom = None,
    subset_classes_on: ClassesOn = None,
    device: Device = None,
    devices: Annotated[
        int | None, typer.Option(help="Processes to train with. Default: 1.", rich_help_panel=_RUN)
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in RUN, under the same settings.", rich_help_panel=_RUN),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in RUN.", rich_help_panel=_RUN)
    ] = False,
    checkpoint_seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Time between checkpoints. Default: 60.", rich_help_panel=_RUN),
    ] = None,
    json: AsJson = False,
) -> None:
    """Train a network on DATA and write a run folder. Killed or stopped, it goes on with --resume."""
    if resume and overwrite:
        raise UsageError("--resume goes on with a run, --overwrite replaces it; give one of them")
    if checkpoint_seconds is not None and not 0 <= checkpoint_seconds < float("inf"):
        raise UsageError(f"--checkpoint-seconds must be 0 or more, got {checkpoint_seconds}")
    sides = parse_size(size)

    from provnet.training import session as run_folder
    from provnet.training.fit import fit

    shaping = {"network": network, "backbone": backbone, "head": head, "alpha": alpha, "conditional": conditional}
    shaping |= {"level": level, "index_subset": index_subset, "preset": preset}
    settings = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "augment": augment, "seed": seed}
    config, generating = chosen_recipe(task, generator, shaping, settings)
    check_folder(out, resume=resume, overwrite=overwrite)
    wishes: dict[str, Any] = {
        "network": network,
        "backbone": backbone,
        "alpha": alpha,
        "conditional": conditional,
        "level": level,
        "head": head,
        "key_type": keys,
        "key_width": key_width,
        "device": device,
        "devices": devices,
        "checkpoint_seconds": checkpoint_seconds,
    }
    given = checked_early(wishes, holdout, apply) | generating
    opening: dict[str, Any] = {
        "data_dir": data_dir,
        "size": sides,
        "mode": mode,
        "background": background,
        "frame": frame,
        "value_range": value_range,
        "skip_bad": skip_bad,
        "limit": limit,
        "root": root,
        "cache": cache,
    }
    found = opened(data, {k: v for k, v in opening.items() if v is not None}, out)
    chosen = found if apply is None else decided(found, apply)
    samples, test, test_words = find_test(chosen, holdout, test_data, data_dir, out, given=found)
    subset = chosen_subset(samples, index_subset, select, subset_classes_on, select_from, given, config.seed)
    if not json:
        words = network_words(samples if subset is None else samples.select(subset.rows), config.preset, given)
        show(facts([("data", data_words(samples)), ("test", test_words), ("network", words)]))
    for warning in data_warnings(samples, given.get("network", "class-conditional")):
        note(warning, "warning")
    done, begun = resume and run_folder.finished(out), resume and run_folder.has_begun(out)
    began = time.perf_counter()
    with kept_is_told(out, resumed(context.obj)):
        run = fit(
            samples,
            config=config,
            out=out,
            resume=resume,
            overwrite=overwrite,
            test=test,
            index_subset=subset,
            progress=True,
            **given,
        )
    if not is_first_process():
        return
    if done and test_data is not None:
        note_test_kept(run, test)
    result = run_result(run, out, time.perf_counter() - began)
    if subset is not None:
        result["subset"] = subset_record(run, samples)
    if json:
        emit_json(result)
    elif done:
        say(f"{out}: this run is finished already, nothing to do")
    else:
        if subset is not None:
            show_subset(result["subset"])
        show_result(result, out, resumed=begun)
    if generating:
        draw_course(out, quiet=json)
