"""`--task generate`: options of `provnet train`, and what commands say of runs that make pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from provnet.cli.again import path_word
from provnet.cli.cards import exemplar_evidence, explanation_cards
from provnet.cli.opened import open_run, with_state
from provnet.cli.options import folder_name, pick_device, refuse_file
from provnet.cli.output import note, say
from provnet.cli.rundata import find_training_data
from provnet.errors import ProvnetError, UsageError, one_of

if TYPE_CHECKING:
    import numpy as np

    from provnet.cli.inputs import Query
    from provnet.data.imagedata import ImageData
    from provnet.explanation import Explanation
    from provnet.modelfile import Run
    from provnet.report.records import ExplanationCard
    from provnet.training.config import TrainConfig

TASKS = ("classify", "generate")
COURSE = "course.png"
_PANEL = "Network and recipe"
Task = Annotated[
    str,
    typer.Option(
        metavar="classify|generate", help="What to learn: to tell classes, or to make pictures.", rich_help_panel=_PANEL
    ),
]
GeneratorName = Annotated[
    str | None,
    typer.Option(
        "--generator",
        metavar="paper|faces|modern",
        help="With --task generate: the paper's VAE, its fully connected one for faces, or ours. Default: modern.",
        rich_help_panel=_PANEL,
    ),
]

OutFolder = Annotated[
    Path, typer.Option("--out", "-o", parser=folder_name, metavar="DIR", help="Folder to write to.", show_default=False)
]
SourceCount = Annotated[int, typer.Option("-k", help="Training samples for each picture.")]


def chosen_recipe(
    task: str, generator: str | None, given: Mapping[str, Any], training: Mapping[str, Any]
) -> tuple[TrainConfig, dict[str, Any]]:
    """How to train, and which network: by preset, or by the name of a generator, which brings its own."""
    from provnet.training.config import check_batch_size, train_config

    one_of("task", task, TASKS)
    preset = given.get("preset")
    if task == "classify":
        if generator is not None:
            raise UsageError("--generator goes with --task generate; give that too, or leave it out")
        return train_config(preset or "fast", **training), {}
    from provnet.generation.recipes import recipe

    own = [name for name, value in given.items() if value is not None]
    if own:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise UsageError(f"a generator brings its own network and recipe: leave {words} out, choose with --generator")
    if training.get("batch_size") is not None:
        check_batch_size(training["batch_size"])
    network, backbone, head, config = recipe(generator or "modern", **training)
    return config, {"network": network, "backbone": backbone, "head": head}


def draw_course(folder: Path, *, quiet: bool = False) -> None:
    """Losses and accuracies of every epoch as a picture beside the run, where matplotlib is there."""
    from provnet.atomic import write_bytes
    from provnet.cli.summary import read_course
    from provnet.report.generation_plots import course_png

    try:
        write_bytes(folder / COURSE, course_png(read_course(folder), folder.name))
    except UsageError as error:
        note(f"{COURSE} is not drawn: {error}")
        return
    if not quiet:
        say(f"losses and accuracies of every epoch: {folder / COURSE}")
        say(f"next: provnet generate {path_word(folder)} -n 16 --out made")


def read_rows(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The log of a run, or nothing where it is gone."""
    from provnet.cli.summary import read_course

    try:
        return tuple(read_course(folder))
    except (ProvnetError, ValueError):
        return ()


def source_cards(
    run: Run,
    found: Explanation,
    queries: Sequence[Query],
    source: str | None,
    data_dir: str | None,
    over: Sequence[str],
) -> tuple[ExplanationCard, ...]:
    """One card a picture that was made; `over` is what stands above its class."""
    opened = find_training_data(run.config, run.samples, source, data_dir)
    if opened.data is None:
        note(f"no pictures of training samples, ids and hashes stand for them: {opened.why}", "warning")
    cards = explanation_cards(found, queries, exemplar_evidence(found, opened.parts))
    return tuple(replace(card, over=words) for card, words in zip(cards, over, strict=True))


def open_generator(
    folder: Path, out: Path, k: int, device: str | None, inputs: Sequence[str | None], data_dir: str | None
) -> tuple[Run, str, str, int]:
    """A run that makes pictures, its weights' hash, the device that it is on, and k, cut to who may be named."""
    from provnet.cli.targets import PAGE, check_outputs
    from provnet.models.vae import vae_of

    if k < 1:
        raise UsageError(f"-k must be 1 or more, got {k}")
    refuse_file(out)
    check_outputs({out / "report.html": PAGE}, [folder], inputs, data_dir=data_dir)  # before long work
    where = pick_device(device)
    run, state = with_state(folder, open_run)
    vae_of(run.network)  # refuses other runs
    run.network.to(where)
    return run, state["model.safetensors"], where, min(k, int((~run.samples.withheld).sum()))


def made_queries(names: Sequence[str], images: np.ndarray) -> list[Query]:
    """Pictures that were made, as inputs to be explained."""
    from provnet.cli.inputs import Query
    from provnet.data.hashing import hash_rows

    hashes = [bytes(one).hex() for one in hash_rows(images)]
    return [Query(*parts) for parts in zip(names, images, hashes, strict=True)]


def network_in_words(run: Run) -> str:
    """The network of a run in a line."""
    config = run.config.network
    return f"{config.backbone}, {config.network}, head {config.head}, {len(run.samples):,} training samples"


class Rebuilt(NamedTuple):
    """An input as a generator makes it of its own latents, and the mean square error of a pixel in [0, 1]."""

    picture: np.ndarray | None
    error: float


def rebuilt_queries(run: Run, queries: Sequence[Query]) -> list[Rebuilt]:
    """The inputs of `explain` rebuilt; nothing for a run that makes no pictures."""
    import numpy as np

    from provnet.cli.cards import as_picture
    from provnet.generation.sampling import is_generator, rebuild_pictures

    if not is_generator(run):
        return []
    images = np.stack([query.image for query in queries])
    made = rebuild_pictures(run, images, warn=False)  # they were looked at
    away = ((made.astype(np.float64) - images) / 255) ** 2
    return [Rebuilt(as_picture(made[row]), float(away[row].mean())) for row in range(len(made))]


def generator_figures(
    run: Run, train: ImageData | None, test: ImageData | None, index: np.ndarray | None, seed: int
) -> dict[str, Any]:
    """What only runs that make pictures are measured by; nothing for others."""
    from provnet.generation.measures import measure_generator
    from provnet.generation.sampling import is_generator

    return measure_generator(run, train, test, index=index, seed=seed) if is_generator(run) else {}
