"""`provnet generate`: pictures made by a run, each with the training samples behind it."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from provnet.answers.explanation import Explanation
from provnet.answers.queries import Query, exemplar_evidence, explanation_cards, read_queries
from provnet.base.errors import IntegrityError, ProvnetError, UnsafeFileError, UsageError
from provnet.base.options import Generate, Interpolate
from provnet.cli.output import (
    emit_json,
    facts,
    say,
    show,
)
from provnet.cli.rundata import begin, picture_data
from provnet.cli.targets import write_outputs
from provnet.cli.train import read_course
from provnet.data.dataset import ImageData
from provnet.data.modalities.image import picture_of
from provnet.models.network import vae_of
from provnet.report.pictures import to_image
from provnet.report.records import ExplanationCard
from provnet.runs.run import Run
from provnet.runs.safe import read_json, write_json
from provnet.tools.generate.compute import Generated, is_generator, measure_generator, sources
from provnet.tools.generate.compute import generate as make
from provnet.tools.generate.compute import interpolate as between
from provnet.tools.generate.page import (
    GenerationReport,
    animation,
    generation_html,
    made_queries,
    network_in_words,
    sheet_png,
)


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


def open_generator(asked: Generate | Interpolate) -> tuple[Run, str, str, int]:
    """A run that makes pictures, its weights' hash, the device that it is on, and k, cut to who may be named."""
    if asked.k < 1:
        raise UsageError(f"-k must be 1 or more, got {asked.k}")
    run, state, where = begin(asked, asked.out, [asked.data])
    vae_of(run.network)  # refuses other runs
    return run, state["model.safetensors"], where, min(asked.k, int((~run.samples.withheld).sum()))


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
    loaded, weights, where, k = open_generator(asked)
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
    earlier = _earlier_pictures(asked.out)
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


def _earlier_pictures(out: Path) -> set[str]:
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
        intro=f"{len(made):,} {'picture' if len(made) == 1 else 'pictures'} made from random numbers, each with the "
        "training samples that the network names for it.",
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
        notes=(f"And {more:,} more pictures; generated.json has all.",) if more > 0 else (),
    )
    files = {
        "report.html": generation_html(report).encode("utf-8", "backslashreplace"),
        "sheet.png": sheet_png(cards),
        "generated.json": write_json(values, "generated.json"),
    }
    for query in queries:
        picture = picture_of(query.image)
        if picture is not None:
            buffer = io.BytesIO()
            to_image(picture).save(buffer, "PNG")
            files[f"pictures/{query.name}.png"] = buffer.getvalue()
    return files


SHOWN = 200  # pictures on the page


FRAMES = 4  # of the animation for each step


def interpolate(asked: Interpolate) -> None:
    """Go from one picture to another through the latents of a run that makes pictures."""
    loaded, weights, _, k = open_generator(asked)
    ends = [read_queries(loaded, [text], asked.data_dir, strict=True)[0] for text in (asked.first, asked.last)]
    path = between(loaded, ends[0].image, ends[1].image, asked.steps, k)
    moving = between(loaded, ends[0].image, ends[1].image, min((asked.steps - 1) * FRAMES + 1, 200), 1)
    frames = [picture for image in moving.images if (picture := picture_of(image)) is not None]
    names = [f"{share:.0%} of the way" for share in path.shares.tolist()]
    queries = made_queries(names, path.images)
    about = {
        "run": str(asked.run),
        "first": asked.first,
        "last": asked.last,
        "steps": asked.steps,
        "model_sha256": weights,
    }
    records = path.explanation.to_records(names)
    firsts = [[one["sample_id"] for one in record["exemplars"][:1]] for record in records]  # weights always change
    changes = sum(one != other for one, other in itertools.pairwise(firsts))
    times = "once" if changes == 1 else f"{changes} times"
    cards = source_cards(loaded, path.explanation, queries, asked.data, asked.data_dir, ["Seen as"] * asked.steps)
    report = GenerationReport(
        title="From one picture to another",
        intro=f"{asked.steps} pictures between {asked.first} and {asked.last}, in equal steps of "
        "their latents, each with the training samples behind it. The first of these changes {times} on the way.",
        cards=cards,
        run=str(asked.run),
        network=network_in_words(loaded),
        facts=(("From", asked.first), ("To", asked.last), ("Weights, SHA-256", weights)),
        moving=animation(frames),
    )
    values = {"about": {**about, "changes": changes}, "steps": records}
    files = {
        "report.html": generation_html(report).encode("utf-8", "backslashreplace"),
        "sheet.png": sheet_png(cards),
        "path.gif": report.moving or b"",
        "path.json": write_json(values, "path.json"),
    }
    write_outputs(
        {asked.out / name: content for name, content in files.items()},
        [asked.run],
        [asked.first, asked.last, asked.data],
    )
    if asked.json:
        emit_json(values)
        return
    show(
        facts([("from", asked.first), ("to", asked.last), ("steps", str(asked.steps)), ("first source changes", times)])
    )
    say(f"written to {asked.out}: report.html, sheet.png, path.gif, path.json")
