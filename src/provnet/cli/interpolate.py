"""`provnet interpolate`: from one picture to another, with the training samples behind every step."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from provnet.cli.generating import need_generator, network_in_words, own_folder, source_cards
from provnet.cli.options import AsJson, DataDir, Device, RunFolder, pick_device
from provnet.cli.output import emit_json, facts, say, show
from provnet.cli.rundata import model_sha256
from provnet.errors import UsageError

EXAMPLE = "Example: [bold]provnet interpolate runs/vae test:0 test:1 --out path[/bold]"
FRAMES = 4  # of the animation for each step


def interpolate(
    run: RunFolder,
    first: Annotated[str, typer.Argument(metavar="IMAGE", help="A picture file, or test:12.", show_default=False)],
    last: Annotated[str, typer.Argument(metavar="IMAGE", help="Another one.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write to.", show_default=False)],
    steps: Annotated[int, typer.Option(help="Pictures on the way, both ends included.")] = 9,
    k: Annotated[int, typer.Option("-k", help="Training samples for each picture.")] = 5,
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Where the training data are now. Default: where they were."),
    ] = None,
    data_dir: DataDir = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Go from one picture to another through the latents of a run that makes pictures; the sources change on the way.

    Writes report.html, sheet.png (a row a step), path.gif (there and back) and path.json.
    """
    from provnet.atomic import write_bytes
    from provnet.cli.cards import as_picture
    from provnet.cli.inputs import Query, read_queries
    from provnet.data.hashing import hash_rows
    from provnet.generation import interpolate as between
    from provnet.modelfile import read_run
    from provnet.report.generation import GenerationReport, animation, generation_html, sheet_png
    from provnet.safejson import write_json

    if k < 1:
        raise UsageError(f"-k must be 1 or more, got {k}")
    own_folder(out)
    where = pick_device(device)
    loaded = read_run(run)
    need_generator(loaded)
    loaded.network.to(where)
    ends = [read_queries(loaded, [text], data_dir, strict=True)[0] for text in (first, last)]
    path = between(loaded, ends[0].image, ends[1].image, steps, min(k, int((~loaded.samples.withheld).sum())))
    moving = between(loaded, ends[0].image, ends[1].image, min((steps - 1) * FRAMES + 1, 200), 1)
    frames = [picture for image in moving.images if (picture := as_picture(image)) is not None]
    names = [f"{share:.0%} of the way" for share in path.shares.tolist()]
    hashes = [bytes(h).hex() for h in hash_rows(path.images)]
    queries = [Query(*parts) for parts in zip(names, path.images, hashes, strict=True)]
    about = {"run": str(run), "first": first, "last": last, "steps": steps, "model_sha256": model_sha256(run)}
    records = path.explanation.to_records(names)
    changes = sum(a["exemplars"][:1] != b["exemplars"][:1] for a, b in itertools.pairwise(records))
    cards = source_cards(loaded, path.explanation, queries, data, data_dir, ["Seen as"] * steps)
    report = GenerationReport(
        title="From one picture to another",
        intro=f"{steps} pictures between {first} and {last}, in equal steps of their latents, each with the training "
        f"samples behind it. The first of these changes {changes} times on the way.",
        cards=cards,
        run=str(run),
        network=network_in_words(loaded),
        facts=(("From", first), ("To", last), ("Weights, SHA-256", model_sha256(run))),
        moving=animation(frames),
    )
    values = {"about": {**about, "changes": changes}, "steps": records}
    files = {
        "report.html": generation_html(report).encode("utf-8", "backslashreplace"),
        "sheet.png": sheet_png(cards),
        "path.gif": report.moving or b"",
        "path.json": write_json(values, "path.json"),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(out / name, content)
    if json:
        emit_json(values)
        return
    show(facts([("from", first), ("to", last), ("steps", str(steps)), ("first source changes", f"{changes} times")]))
    say(f"written to {out}: report.html, sheet.png, path.gif, path.json")
