"""`provnet attribute`: images of any generator traced to training samples, and checked for near-copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from provnet.answers.explanation import exemplar_card
from provnet.base.errors import ProvnetError, UsageError
from provnet.base.files import shown
from provnet.base.options import Attribute
from provnet.cli.heldout import open_others
from provnet.cli.inputs import Query, as_picture, explanation_cards, read_queries
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    refuse_file,
    say,
    show,
)
from provnet.cli.rundata import open_run, training_data, with_state
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.dataset import ImageData
from provnet.data.evidence import Evidence, evidence
from provnet.report.records import ExemplarCard
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.samples.csvfile import csv_text, quoted
from provnet.samples.identity import Exemplar
from provnet.tools.copies.compute import Traced, attribute_generated
from provnet.tools.copies.page import AttributionReport, CopyCard, SourceCard, attribution_html, difference
from provnet.training.setup import pick_device


def attribute_report(
    run: Run,
    folder: Path,
    found: Traced,
    queries: list[Query],
    values: dict[str, Any],
    notes: Sequence[str],
    parts: Sequence[ImageData],
    top: int,
) -> bytes:
    """The page; `parts` are the training data as they are now, `top` limits what is shown of each kind."""
    order = np.lexsort((found.ratio, ~found.near_copy))[:top]
    flagged = order[found.near_copy[order]]
    sources = found.sources(min(top, 24))
    index = found.explanation.index[order]
    wanted = np.unique(
        np.concatenate([index[index >= 0], found.copy_index[flagged], [one.sample.index for one in sources]])
    ).astype(np.int64)
    pictures = dict(zip(wanted.tolist(), evidence(run.samples, parts, wanted), strict=True))
    config, about, nearest = run.config.network, values["about"], found.copies
    copies = []
    for row in flagged.tolist():
        image, sample = as_picture(queries[row].image), _card(nearest[row], pictures)
        copies.append(
            CopyCard(
                picture=image,
                difference=difference(image if queries[row].image.dtype == np.uint8 else None, sample.picture),
                name=queries[row].name,
                sample=sample,
                ratio=float(found.ratio[row]),
                p_value=float(found.p_value[row]),
                exact=bool(found.exact[row]),
            )
        )
    chosen = [queries[row] for row in order.tolist()]
    page = attribution_html(
        AttributionReport(
            run=str(folder),
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            images="; ".join(about["images"][:5]) + ("; and more" if len(about["images"]) > 5 else ""),
            values=values,
            ratios=found.ratio.tolist(),
            reference=found.calibration.scores.tolist(),
            copies=tuple(copies),
            cards=tuple(explanation_cards(found.explanation[order], chosen, pictures)),
            sources=tuple(SourceCard(_card(one.sample, pictures), one.first, one.copies) for one in sources),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
            hidden=(int(found.near_copy.sum()) - len(flagged), len(found) - len(order)),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _card(sample: Exemplar, pictures: dict[int, Evidence]) -> ExemplarCard:

    return exemplar_card(sample, pictures[sample.index])


def images_csv(records: list[dict[str, Any]]) -> str:
    """One line an image; a name that a spreadsheet would take for a formula gets a quote."""
    head = ["input", "near_copy", "equal_pixels", "copy_of", "copy_sha256", "ratio", "p_value", "predicted"]
    head += ["confidence", "supported", "first_exemplar", "first_sha256", "first_weight", "pixel_distance"]
    rows = []
    for one in records:
        copy, first = one["near_copy"], next(iter(one["exemplars"]), None)
        rows.append([
            quoted(one["input"]), copy["verdict"], copy["equal_pixels"], quoted(copy["of"]["sample_id"]),
            copy["of"]["sha256"], f"{copy['ratio']:.6f}", f"{copy['p_value']:.6g}", quoted(one["predicted"]),
            f"{one['confidence']:.6f}", one["supported"], quoted(first["sample_id"]) if first else "",
            first["sha256"] if first else "", f"{first['weight']:.6f}" if first else "",
            f"{one['control']['pixels']['distance']:.6f}", f"{one['control']['features']['distance']:.6f}",
        ])  # fmt: skip
    return csv_text([[*head, "feature_distance"], *rows])


def sources_csv(found: Traced) -> str:
    """One line a training sample behind the images."""
    head = ["sample_id", "sha256", "label", "share", "first_of_images", "near_copies"]
    rows: list[list[Any]] = []
    for one in found.sources():
        sample = one.sample
        names = [quoted(sample.sample_id), sample.sha256, quoted(sample.label)]
        rows.append([*names, f"{sample.weight:.8f}", one.first, one.copies])
    return csv_text([head, *rows])


SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".pgm", ".ppm", ".npy", ".npz")


def attribute(asked: Attribute) -> None:
    """Trace images from any generator to training samples, or abstain; flag near-copies of one training image."""
    if asked.how.k < 1 or asked.top < 1:
        raise UsageError(f"-k and --top must be 1 or more, got {asked.how.k} and {asked.top}")
    refuse_file(asked.out)
    inputs = [*asked.folder, asked.data, asked.heldout]
    if asked.out is not None:
        check_outputs(
            {asked.out / "report.html": PAGE}, [asked.run], inputs, data_dir=asked.data_dir
        )  # before long work
    where = pick_device(asked.device)
    loaded, state = with_state(asked.run, open_run)
    loaded.network.to(where)
    queries = [
        _short(query, asked.folder)
        for query in read_queries(loaded, _files(asked.folder), asked.data_dir, strict=False)
    ]
    opened = training_data(loaded, asked.data, asked.data_dir)
    others = _others(loaded, asked.heldout, asked.data_dir)
    images = np.stack([query.image for query in queries])
    found = attribute_generated(
        images, loaded, data=opened.kept.there, heldout=others, options=asked.how, progress=True, warn=False
    )
    notes = _notes(found)
    for line in notes:
        note(line, "warning" if "too few" in line else "note")
    names = [query.name for query in queries]
    records = found.to_records(names)
    values = {
        **found.to_json(),
        "about": _about(asked.run, state, loaded, asked.folder, asked.how.seed, others),
        "inputs": records,
    }
    if asked.out is not None:
        page = attribute_report(loaded, asked.run, found, queries, values, notes, opened.parts, asked.top)
        _write(asked.out, asked.run, inputs, {"report.html": page}, values, found, records)
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
