"""`provnet generate`: pictures made by a run, each with the training samples behind it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from provnet.answers.explanation import Explanation
from provnet.base.atomic import write_bytes
from provnet.base.errors import IntegrityError, ProvnetError, UnsafeFileError, UsageError, one_of
from provnet.base.options import Generate, NetworkOptions, Train
from provnet.base.words import path_word
from provnet.cli.inputs import Query, as_picture, exemplar_evidence, explanation_cards
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    refuse_file,
    say,
    show,
)
from provnet.cli.rundata import open_run, picture_data, with_state
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.cli.traindata import read_course
from provnet.data.dataset import ImageData
from provnet.models.vae import vae_of
from provnet.report.pictures import to_image
from provnet.report.records import ExplanationCard
from provnet.runs.run import Run
from provnet.runs.safe import read_json, write_json
from provnet.samples.identity import hash_rows
from provnet.tools.generate import Generated, sources
from provnet.tools.generate import generate as make
from provnet.tools.generate.compute import is_generator, rebuild_pictures
from provnet.tools.generate.measures import measure_generator
from provnet.tools.generate.page import GenerationReport, course_png, generation_html, sheet_png
from provnet.tools.generate.recipes import recipe
from provnet.training.config import TrainConfig, check_batch_size, train_config
from provnet.training.setup import pick_device

TASKS = ("classify", "generate")
COURSE = "course.png"


def chosen_recipe(asked: Train) -> TrainConfig:
    """How to train, and which network: by preset, or by the name of a generator, which brings its own."""
    how, network = asked.recipe, asked.network
    one_of("task", how.task, TASKS)
    changes = {name: getattr(how, name) for name in ("epochs", "batch_size", "lr", "augment", "seed")}
    if how.task == "classify":
        if how.generator is not None:
            raise UsageError("--generator goes with --task generate; give that too, or leave it out")
        return replace(train_config(how.preset or "fast", **changes), wanted=network)

    own = [name for name in BROUGHT if getattr(network, name) != getattr(NetworkOptions(), name)]
    own += [] if asked.subset.index_subset is None else ["index_subset"]
    own += [] if how.preset is None else ["preset"]
    if own:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise UsageError(f"a generator brings its own network and recipe: leave {words} out, choose with --generator")
    if how.batch_size is not None:
        check_batch_size(how.batch_size)
    found = recipe(how.generator or "modern", **changes)
    return found.using(key_type=network.key_type, key_width=network.key_width)


BROUGHT = ("network", "backbone", "head", "alpha", "conditional", "level")


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


def read_rows(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The log of a run, or nothing where it is gone."""
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
    return measure_generator(run, train, test, index=index, seed=seed) if is_generator(run) else {}


MOST, FEWEST = 10_000, 1


def generate(asked: Generate) -> None:
    """Make pictures with a run of `train --task generate`, and name the training samples behind each."""
    if not FEWEST <= asked.n <= MOST:
        raise UsageError(f"-n must lie in {FEWEST}..{MOST:,}, got {asked.n}")
    loaded, weights, where, k = open_generator(
        asked.run, asked.out, asked.k, asked.device, [asked.data], asked.data_dir
    )
    made = make(loaded, asked.n, asked.label, asked.seed)
    found = sources(loaded, made, k)
    names = [f"generated-{number:0{len(str(asked.n))}d}" for number in range(1, asked.n + 1)]
    queries = made_queries(names, made.images)
    classes = [loaded.samples.class_names[i] for i in made.labels.tolist()]
    chosen = asked.label is not None or loaded.network.vae.conditional  # type: ignore[union-attr]
    over = [f"asked for {name}, seen as" if chosen else "Seen as" for name in classes]
    about = {
        "run": str(asked.run),
        "seed": asked.seed,
        "n": asked.n,
        "label": asked.label,
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
    cards = source_cards(loaded, found, queries, asked.data, asked.data_dir, over)
    files = _files(loaded, asked.run, made, queries, cards, {"about": about, "pictures": records})
    earlier = _made_before(asked.out)
    write_outputs({asked.out / name: content for name, content in files.items()}, [asked.run], [asked.data])
    for name in earlier - set(files):
        (asked.out / name).unlink(missing_ok=True)
    if asked.json:
        emit_json({"about": about, "pictures": records})
        return
    drawn = "" if made.drawn == asked.n else f" (of {made.drawn:,} that were made)"
    rows = [
        ("pictures", f"{asked.n:,}{drawn}"),
        ("seed", str(asked.seed)),
        ("supported", f"{about['supported']:,} of {asked.n:,}"),
    ]
    show(facts(rows))
    say(f"written to {asked.out}: report.html, sheet.png, generated.json, pictures/")


def _made_before(out: Path) -> set[str]:
    """The pictures that this command left in the folder the last time, by its own list of them.

    Those that are not made now must go: whoever takes the folder of pictures would take them for these ones.
    """
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
    about = values["about"]
    shown, more = cards[:SHOWN], len(cards) - SHOWN
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


SHOWN = 200  # pictures on the page
