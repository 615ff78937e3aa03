"""`provnet attribute`: images of any generator traced to training samples, and checked for near-copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from provnet.answers.queries import Query, read_queries
from provnet.base.errors import ProvnetError, UsageError
from provnet.base.files import shown
from provnet.base.options import Attribute
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, open_others, training_data
from provnet.cli.targets import write_into
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.tools.copies.compute import Traced, attribute_generated
from provnet.tools.copies.page import (
    attribute_report,
    images_csv,
    sources_csv,
)

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".pgm", ".ppm", ".npy", ".npz")


def attribute(asked: Attribute) -> None:
    """Trace images from any generator to training samples, or abstain; flag near-copies of one training image."""
    if asked.how.k < 1 or asked.top < 1:
        raise UsageError(f"-k and --top must be 1 or more, got {asked.how.k} and {asked.top}")
    inputs = [*asked.folder, asked.data, asked.heldout]
    loaded, state, _ = begin(asked, asked.out, inputs)
    given = read_queries(loaded, _files(asked.folder), asked.data_dir, strict=False)
    queries = [_short(query, asked.folder) for query in given]
    opened = training_data(loaded, asked.data, asked.data_dir)
    others = _others(loaded, asked.heldout, asked.data_dir)
    images = np.stack([query.image for query in queries])
    found = attribute_generated(
        images, loaded, data=opened.kept.there, heldout=others, options=asked.how, progress=True, warn=False
    )
    notes = _notes(found)
    for line in notes:
        note(line, "warning" if "too few" in line else "note")
    records = found.to_records([query.name for query in queries])
    about = {
        "run": str(asked.run),
        "images": asked.folder,
        "heldout": None if others is None else str(others.spec.source),
        "seed": asked.how.seed,
        "model_sha256": state["model.safetensors"],
        "data_fingerprint": loaded.samples.fingerprint,
    }
    values = {**found.to_json(), "about": about, "inputs": records}
    if asked.out is not None:
        files: dict[str, bytes | str] = {
            "report.html": attribute_report(loaded, found, queries, values, notes, opened.parts, asked.top),
            "attribution.json": write_json(values, "attribution.json"),
            "attribution.csv": images_csv(records),
            "sources.csv": sources_csv(found),
        }
        write_into(asked.out, files, [asked.run], inputs)
    if asked.json:
        emit_json(values)
        return
    _show(found, queries)
    if asked.out is not None:
        say(f"written to {asked.out}: report.html, attribution.json, attribution.csv, sources.csv")


def _files(given: list[str]) -> list[str]:
    """Folders replaced by the picture and array files in them, in order of their names."""
    found: list[str] = []
    for text in given:
        path = Path(text)
        if not path.is_dir():
            found.append(text)
            continue
        inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
        if not inside:
            raise UsageError(f"{shown(text)} holds no pictures and no arrays ({', '.join(SUFFIXES)})")
        found += [str(each) for each in inside]
    return found


def _short(query: Query, given: list[str]) -> Query:
    """An image of the only folder that was given is called by its name within it."""
    if len(given) > 1 or not Path(given[0]).is_dir():
        return query
    return query._replace(name=query.name.removeprefix(str(Path(given[0]))).lstrip("/\\"))


def _others(run: Run, source: str | None, data_dir: str | None) -> ImageData | None:

    try:
        return open_others(run, source, data_dir, option="--heldout")
    except ProvnetError as error:
        if source is not None:
            raise
        note(f"there are no held-out pictures, so training pictures set the threshold: {error}")
        return None


def _notes(found: Traced) -> list[str]:
    lines = []
    if not found.calibration.enough:
        n, rate = len(found.calibration.scores), found.calibration.false_alarms
        lines.append(f"{n:,} pictures are too few for a rate of {rate:g}: only equal pixels are flagged as copies")
    if found.photos is not None and found.photos.threshold is None:
        n, rate = found.photos.calibrated_on, found.photos.false_alarms
        lines.append(f"{n:,} pictures are too few for a rate of {rate:g}: no photograph is called a copy by its places")
    if found.heldout_trained:
        lines.append(f"{found.heldout_trained:,} held-out pictures are training samples and were left out")
    if found.missing:
        lines.append(f"{found.missing:,} training samples were not compared: they are missing, or decoded differently")
    if found.withheld:
        lines.append(f"{found.withheld:,} withheld samples are neither named nor compared")
    return lines


def _show(found: Traced, queries: list[Query], most: int = 10) -> None:
    rates = found.rates
    rows = [("images", f"{len(found):,}"), *((name.replace("_", "-"), str(rate)) for name, rate in rates.items())]
    if found.calibration.enough:
        rows.append(("threshold", f"ratio {found.calibration.threshold:.3f}, set on {found.calibration.about}"))
    show(facts(rows))
    flagged = [row for row in found.ratio.argsort(kind="stable").tolist() if found.near_copy[row]]
    copies = found.copies
    for row in flagged[:most]:
        words = "equal pixels" if found.exact[row] else f"ratio {found.ratio[row]:.3f}, p = {found.p_value[row]:.2g}"
        of = f"{shown(copies[row].sample_id)} (sha256 {copies[row].sha256[:12]})"
        say(f"near-copy: {shown(queries[row].name)} of {of}: {words}")
    if len(flagged) > most:
        say(f"and {len(flagged) - most:,} more near-copies")
    if found.photos is not None:
        for row in np.flatnonzero(found.photos.near_copy)[:most].tolist():
            of = found.explanation.samples.sample_ids[int(found.photos.row[row])]
            words = f"their places agree, {found.photos.agreement[row]:.2f} (more than {found.photos.threshold:.2f})"
            say(f"copy of a photograph: {shown(queries[row].name)} of {shown(of)}: {words}")
