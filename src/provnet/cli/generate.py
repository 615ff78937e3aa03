"""`provnet generate`: pictures made by a run, each with the training samples behind it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.generating import (
    OutFolder,
    SourceCount,
    made_queries,
    network_in_words,
    open_generator,
    read_rows,
    source_cards,
)
from provnet.cli.options import AsJson, DataDir, Device, RunFolder, TrainingData, check_seed
from provnet.cli.output import emit_json, facts, say, show
from provnet.cli.targets import write_outputs
from provnet.errors import IntegrityError, UnsafeFileError, UsageError

if TYPE_CHECKING:
    from provnet.cli.inputs import Query
    from provnet.generation import Generated
    from provnet.modelfile import Run
    from provnet.report.records import ExplanationCard

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
    from provnet.generation import generate as make
    from provnet.generation import sources

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
    from provnet.safejson import read_json

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
    from provnet.cli.cards import as_picture
    from provnet.report.generation import GenerationReport, generation_html, sheet_png
    from provnet.report.pictures import to_image
    from provnet.safejson import write_json

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
