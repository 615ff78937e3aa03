"""`provnet attribute`: images of any generator traced to training samples, and checked for near-copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.cli.attribute_files import images_csv, sources_csv
from provnet.cli.opened import open_run, with_state
from provnet.cli.options import (
    AsJson,
    DataDir,
    Device,
    RunFolder,
    TrainingData,
    check_seed,
    folder_name,
    pick_device,
    refuse_file,
)
from provnet.cli.output import emit_json, facts, note, say, show
from provnet.cli.rundata import need_training
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.files import shown
from provnet.errors import ProvnetError, UsageError

if TYPE_CHECKING:
    from provnet.applications.generated_records import Traced
    from provnet.cli.inputs import Query
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run

EXAMPLE = "Example: [bold]provnet attribute runs/mnist samples/ --out traced[/bold]"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".pgm", ".ppm", ".npy", ".npz")


def attribute(
    run: RunFolder,
    folder: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER",
            help="Folders of pictures, picture files, .npy or .npz arrays; from any generator.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=folder_name,
            metavar="DIR",
            help="Folder for report.html, attribution.json, attribution.csv, sources.csv.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Exemplars for each image.")] = 5,
    heldout: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Real pictures that were never trained on, for the threshold. Default: the run's test split, else "
            "training pictures each against all others.",
        ),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(metavar="RATE", help="Share of fresh pictures that may be flagged as near-copies.")
    ] = 0.005,
    top: Annotated[int, typer.Option(metavar="N", help="Images, near-copies and sources shown on the page.")] = 24,
    data: TrainingData = None,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of the pictures that the threshold is set on.")] = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Trace images from any generator to training samples, or abstain; flag near-copies of one training image.

    The threshold for near-copies is set on real pictures that are no copies, to a stated rate of false alarms.
    """
    import numpy as np

    from provnet.applications.generated import attribute_generated
    from provnet.cli.attribute_report import attribute_report
    from provnet.cli.inputs import read_queries

    if k < 1 or top < 1:
        raise UsageError(f"-k and --top must be 1 or more, got {k} and {top}")
    refuse_file(out)
    inputs = [*folder, data, heldout]
    if out is not None:
        check_outputs({out / "report.html": PAGE}, [run], inputs, data_dir=data_dir)  # before long work
    where = pick_device(device)
    loaded, state = with_state(run, open_run)
    loaded.network.to(where)
    queries = [_short(query, folder) for query in read_queries(loaded, _files(folder), data_dir, strict=False)]
    opened, resolved = need_training(loaded, data, data_dir)
    others = _others(loaded, heldout, data_dir)
    images = np.stack([query.image for query in queries])
    settings: dict[str, Any] = {"k": k, "false_alarms": false_alarms, "seed": seed}
    found = attribute_generated(
        images, loaded, data=resolved.data, heldout=others, progress=True, warn=False, **settings
    )
    notes = _notes(found)
    for line in notes:
        note(line, "warning" if "too few" in line else "note")
    names = [query.name for query in queries]
    records = found.to_records(names)
    values = {**found.to_json(), "about": _about(run, state, loaded, folder, seed, others), "inputs": records}
    if out is not None:
        page = attribute_report(loaded, run, found, queries, values, notes, opened.parts, top)
        _write(out, run, inputs, {"report.html": page}, values, found, records)
    if json:
        emit_json(values)
        return
    _show(found, queries)
    if out is not None:
        say(f"written to {out}: report.html, attribution.json, attribution.csv, sources.csv")


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
    from provnet.cli.heldout import open_others

    try:
        return open_others(run, source, data_dir, option="--heldout")
    except ProvnetError as error:
        if source is not None:
            raise
        note(f"there are no held-out pictures, training pictures set the threshold: {error}")
        return None


def _notes(found: Traced) -> list[str]:
    lines = []
    if not found.calibration.enough:
        n, rate = len(found.calibration.scores), found.calibration.false_alarms
        lines.append(f"{n:,} pictures are too few for a rate of {rate:g}: only equal pixels are flagged as copies")
    if found.heldout_trained:
        lines.append(f"{found.heldout_trained:,} held-out pictures are training samples and were left out")
    if found.missing:
        lines.append(
            f"{found.missing:,} training samples were not compared with: they are gone, or decoded differently"
        )
    if found.withheld:
        lines.append(f"{found.withheld:,} withheld samples are neither named nor compared with")
    return lines


def _about(
    run: Path, state: Mapping[str, str], loaded: Run, folder: list[str], seed: int, others: ImageData | None
) -> dict[str, Any]:
    return {
        "run": str(run),
        "images": folder,
        "heldout": None if others is None else str(others.spec.source),
        "seed": seed,
        "model_sha256": state["model.safetensors"],
        "data_fingerprint": loaded.samples.fingerprint,
    }


def _write(
    out: Path,
    run: Path,
    inputs: list[str | None],
    files: dict[str, bytes],
    values: dict[str, Any],
    found: Traced,
    records: list[dict[str, Any]],
) -> None:
    from provnet.safejson import write_json

    files["attribution.json"] = write_json(values, "attribution.json")
    files["attribution.csv"] = images_csv(records).encode("utf-8", "backslashreplace")
    files["sources.csv"] = sources_csv(found).encode("utf-8", "backslashreplace")
    write_outputs({out / name: content for name, content in files.items()}, [run], inputs)


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
        say(f"and {len(flagged) - most:,} near-copies more")
