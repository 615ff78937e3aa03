"""`provnet generate`: pictures made by a run, each with the training samples behind it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from provnet.base.errors import IntegrityError, ProvnetError, UnsafeFileError, UsageError, one_of
from provnet.cli.again import path_word
from provnet.cli.inputs import exemplar_evidence, explanation_cards
from provnet.cli.output import (
    AsJson,
    DataDir,
    Device,
    RunFolder,
    TrainingData,
    check_seed,
    emit_json,
    facts,
    folder_name,
    note,
    pick_device,
    refuse_file,
    say,
    show,
)
from provnet.cli.rundata import open_run, picture_data, with_state
from provnet.cli.targets import write_outputs

if TYPE_CHECKING:
    import numpy as np

    from provnet.answers.explanation import Explanation
    from provnet.cli.inputs import Query
    from provnet.data.dataset import ImageData
    from provnet.report.records import ExplanationCard
    from provnet.runs.run import Run
    from provnet.tools.generate import Generated
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
    from provnet.tools.generate.recipes import recipe

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
    from provnet.base.atomic import write_bytes
    from provnet.cli.traindata import read_course
    from provnet.tools.generate.page import course_png

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
    from provnet.cli.traindata import read_course

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
    opened = picture_data(run, source, data_dir)
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
    from provnet.samples.identity import hash_rows

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

    from provnet.cli.inputs import as_picture
    from provnet.tools.generate.compute import is_generator, rebuild_pictures

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
    from provnet.tools.generate.compute import is_generator
    from provnet.tools.generate.measures import measure_generator

    return measure_generator(run, train, test, index=index, seed=seed) if is_generator(run) else {}


EXAMPLE = "Example: [bold]provnet generate runs/vae -n 16 --label 7 --out made[/bold]"
MOST, FEWEST = 10_000, 1


def generate(
    run: RunFolder,
    out: OutFolder,
    n: Annotated[int, typer.Option("-n", help="How many pictures.")] = 16,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="Of this class alone. Default: of any.")] = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="The same seed gives the same pictures.")] = 0,
    k: SourceCount = 5,
    data: TrainingData = None,
    data_dir: DataDir = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Make pictures with a run of `train --task generate`, and name the training samples behind each.

    Writes report.html, sheet.png (a row a picture, the first 48), generated.json, and every picture as a PNG file.
    """
    from provnet.tools.generate import generate as make
    from provnet.tools.generate import sources

    if not FEWEST <= n <= MOST:
        raise UsageError(f"-n must lie in {FEWEST}..{MOST:,}, got {n}")
    loaded, weights, where, k = open_generator(run, out, k, device, [data], data_dir)
    made = make(loaded, n, label, seed)
    found = sources(loaded, made, k)
    names = [f"generated-{number:0{len(str(n))}d}" for number in range(1, n + 1)]
    queries = made_queries(names, made.images)
    classes = [loaded.samples.class_names[i] for i in made.labels.tolist()]
    asked = label is not None or loaded.network.vae.conditional  # type: ignore[union-attr]
    over = [f"asked for {name}, seen as" if asked else "Seen as" for name in classes]
    about = {
        "run": str(run),
        "seed": seed,
        "n": n,
        "label": label,
        "drawn": made.drawn,
        "device": where,
        "supported": int(found.supported.sum()),
        "model_sha256": weights,
        "data_fingerprint": loaded.samples.fingerprint,
    }
    records = [
        {"label": name, "sha256": query.sha256, **record}
        for name, query, record in zip(classes, queries, found.to_records(names), strict=True)
    ]
    cards = source_cards(loaded, found, queries, data, data_dir, over)
    files = _files(loaded, run, made, queries, cards, {"about": about, "pictures": records})
    earlier = _made_before(out)
    write_outputs({out / name: content for name, content in files.items()}, [run], [data])
    for name in earlier - set(files):
        (out / name).unlink(missing_ok=True)
    if json:
        emit_json({"about": about, "pictures": records})
        return
    drawn = "" if made.drawn == n else f" (of {made.drawn:,} that were made)"
    rows = [("pictures", f"{n:,}{drawn}"), ("seed", str(seed)), ("supported", f"{about['supported']:,} of {n:,}")]
    show(facts(rows))
    say(f"written to {out}: report.html, sheet.png, generated.json, pictures/")


def _made_before(out: Path) -> set[str]:
    """The pictures that this command left in the folder the last time, by its own list of them.

    Those that are not made now must go: whoever takes the folder of pictures would take them for these ones.
    """
    from provnet.runs.safe import read_json

    place = out / "generated.json"
    try:
        found = read_json(place.read_bytes(), place.name, limit=2**30)
    except (OSError, IntegrityError, UnsafeFileError):
        return set()
    listed = found.get("pictures")
    names = [str(one.get("input")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {f"pictures/{name}.png" for name in names if re.fullmatch("generated-[0-9]+", name)}


def _files(
    run: Run,
    folder: Path,
    made: Generated,
    queries: list[Query],
    cards: tuple[ExplanationCard, ...],
    values: dict[str, Any],
) -> dict[str, bytes]:
    """All files, in memory: nothing is written before all of it is there."""
    from provnet.cli.inputs import as_picture
    from provnet.report.pictures import to_image
    from provnet.runs.safe import write_json
    from provnet.tools.generate.page import GenerationReport, generation_html, sheet_png

    about = values["about"]
    shown, more = cards[:PAGE], len(cards) - PAGE
    report = GenerationReport(
        title="Made by a network, with its sources",
        intro=f"{len(made):,} {'picture' if len(made) == 1 else 'pictures'} made of random numbers, each with the "
        "training samples that the network names behind it.",
        cards=shown,
        run=str(folder),
        network=network_in_words(run),
        course=read_rows(folder),
        facts=(
            ("Seed", str(about["seed"])),
            ("Class asked for", str(about["label"] or "any")),
            ("Pictures made in all", f"{made.drawn:,}"),
            ("Weights, SHA-256", about["model_sha256"]),
            ("Data fingerprint", about["data_fingerprint"]),
        ),
        notes=(f"And {more:,} pictures more; generated.json has all.",) if more > 0 else (),
    )
    files = {
        "report.html": generation_html(report).encode("utf-8", "backslashreplace"),
        "sheet.png": sheet_png(cards),
        "generated.json": write_json(values, "generated.json"),
    }
    for query in queries:
        picture = as_picture(query.image)
        if picture is not None:
            buffer = io.BytesIO()
            to_image(picture).save(buffer, "PNG")
            files[f"pictures/{query.name}.png"] = buffer.getvalue()
    return files


PAGE = 200  # pictures on the page
