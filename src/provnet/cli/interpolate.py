"""`provnet interpolate`: from one picture to another, with the training samples behind every step."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from provnet.cli.generate import (
    OutFolder,
    SourceCount,
    made_queries,
    network_in_words,
    open_generator,
    source_cards,
)
from provnet.cli.output import AsJson, DataDir, Device, RunFolder, TrainingData, emit_json, facts, say, show

EXAMPLE = "Example: [bold]provnet interpolate runs/vae test:0 test:1 --out path[/bold]"
FRAMES = 4  # of the animation for each step


def interpolate(
    run: RunFolder,
    first: Annotated[str, typer.Argument(metavar="IMAGE", help="A picture file, or test:12.", show_default=False)],
    last: Annotated[str, typer.Argument(metavar="IMAGE", help="Another one.", show_default=False)],
    out: OutFolder,
    steps: Annotated[int, typer.Option(help="Pictures on the way, both ends included.")] = 9,
    k: SourceCount = 5,
    data: TrainingData = None,
    data_dir: DataDir = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Go from one picture to another through the latents of a run that makes pictures; the sources change on the way.

    Writes report.html, sheet.png (a row a step), path.gif (there and back) and path.json.
    """
    from provnet.cli.inputs import as_picture, read_queries
    from provnet.cli.targets import write_outputs
    from provnet.runs.safe import write_json
    from provnet.tools.generate import interpolate as between
    from provnet.tools.generate.page import GenerationReport, animation, generation_html, sheet_png

    loaded, weights, _, k = open_generator(run, out, k, device, [data], data_dir)
    ends = [read_queries(loaded, [text], data_dir, strict=True)[0] for text in (first, last)]
    path = between(loaded, ends[0].image, ends[1].image, steps, k)
    moving = between(loaded, ends[0].image, ends[1].image, min((steps - 1) * FRAMES + 1, 200), 1)
    frames = [picture for image in moving.images if (picture := as_picture(image)) is not None]
    names = [f"{share:.0%} of the way" for share in path.shares.tolist()]
    queries = made_queries(names, path.images)
    about = {"run": str(run), "first": first, "last": last, "steps": steps, "model_sha256": weights}
    records = path.explanation.to_records(names)
    firsts = [[one["sample_id"] for one in record["exemplars"][:1]] for record in records]  # weights always change
    changes = sum(one != other for one, other in itertools.pairwise(firsts))
    times = "once" if changes == 1 else f"{changes} times"
    cards = source_cards(loaded, path.explanation, queries, data, data_dir, ["Seen as"] * steps)
    report = GenerationReport(
        title="From one picture to another",
        intro=f"{steps} pictures between {first} and {last}, in equal steps of their latents, each with the training "
        f"samples behind it. The first of these changes {times} on the way.",
        cards=cards,
        run=str(run),
        network=network_in_words(loaded),
        facts=(("From", first), ("To", last), ("Weights, SHA-256", weights)),
        moving=animation(frames),
    )
    values = {"about": {**about, "changes": changes}, "steps": records}
    files = {
        "report.html": generation_html(report).encode("utf-8", "backslashreplace"),
        "sheet.png": sheet_png(cards),
        "path.gif": report.moving or b"",
        "path.json": write_json(values, "path.json"),
    }
    write_outputs({out / name: content for name, content in files.items()}, [run], [first, last, data])
    if json:
        emit_json(values)
        return
    show(facts([("from", first), ("to", last), ("steps", str(steps)), ("first source changes", times)]))
    say(f"written to {out}: report.html, sheet.png, path.gif, path.json")
