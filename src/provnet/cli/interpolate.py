"""`provnet interpolate`: from one picture to another, with the training samples behind every step."""

from __future__ import annotations

import itertools

from provnet.base.options import Interpolate
from provnet.cli.generate import (
    made_queries,
    network_in_words,
    open_generator,
    source_cards,
)
from provnet.cli.inputs import as_picture, read_queries
from provnet.cli.output import emit_json, facts, say, show
from provnet.cli.targets import write_outputs
from provnet.runs.safe import write_json
from provnet.tools.generate import interpolate as between
from provnet.tools.generate.page import GenerationReport, animation, generation_html, sheet_png

FRAMES = 4  # of the animation for each step


def interpolate(asked: Interpolate) -> None:
    """Go from one picture to another through the latents of a run that makes pictures."""
    loaded, weights, _, k = open_generator(asked.run, asked.out, asked.k, asked.device, [asked.data], asked.data_dir)
    ends = [read_queries(loaded, [text], asked.data_dir, strict=True)[0] for text in (asked.first, asked.last)]
    path = between(loaded, ends[0].image, ends[1].image, asked.steps, k)
    moving = between(loaded, ends[0].image, ends[1].image, min((asked.steps - 1) * FRAMES + 1, 200), 1)
    frames = [picture for image in moving.images if (picture := as_picture(image)) is not None]
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
