"""`provnet credit`: whose samples stand behind the answers to a set of queries."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from provnet.base import options
from provnet.base.errors import UsageError
from provnet.base.files import shown
from provnet.cli.heldout import open_others
from provnet.cli.inputs import read_queries
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    refuse_file,
    say,
    show,
)
from provnet.cli.rundata import open_run, picture_data, spec_name, with_state
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.evidence import evidence
from provnet.data.sources.folder import loose_pictures
from provnet.data.sources.known import NAMES
from provnet.report.records import ExemplarCard
from provnet.report.text import percent
from provnet.runs.inputs import pixel_hashes, raw_tensor
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.samples.csvfile import csv_text, quoted
from provnet.tools.credit.compute import Contributors, Credit, contributors_of
from provnet.tools.credit.compute import credit as share
from provnet.tools.credit.page import CreditReport, Leader, credit_html
from provnet.training.setup import pick_device


def open_queries(run: Run, given: Sequence[str], data_dir: str | None) -> tuple[np.ndarray, str]:
    """Raw queries (n, ...) in the order given, and where they come from, in words."""
    parts: list[np.ndarray] = []
    names: list[str] = []
    for is_data, texts in itertools.groupby(given, _is_data):
        if is_data:
            for text in texts:
                data = open_others(run, text, data_dir)
                parts.append(data.images.numpy())
                names.append(f"{len(data):,} of {spec_name(data.spec)}")
            continue
        files: list[str] = []  # together, so that what is to be said of them is said once
        for text in texts:
            inside = _loose(text)
            files += inside or [text]
            names.append(f"{len(inside):,} pictures in {text}" if inside else text)
        parts.append(np.stack([query.image for query in read_queries(run, files, data_dir, strict=False)]))
    kinds = {part.dtype for part in parts}
    images = np.concatenate([part.astype(np.float32) for part in parts] if len(kinds) > 1 else parts)
    words = "; ".join(names[:5]) + (f"; and {len(names) - 5:,} more" if len(names) > 5 else "")
    _note_members(run, images)
    return images, words


def _is_data(text: str) -> bool:
    """A name of data, a folder of class folders, an .npz with labels or a manifest; anything else explain takes, too.

    A folder of pictures alone has no labels, which are not needed here: its pictures are taken one by one.
    """
    path = Path(text)
    if text in NAMES or path.is_dir():
        return text in NAMES or not _loose(text)
    if path.suffix.lower() == ".npz" and path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(Path(name).stem in ("labels", "y", "y_test", "test_labels") for name in archive.namelist())
    return path.suffix.lower() == ".csv" and path.is_file()


def _loose(text: str) -> list[str]:
    """The pictures in a folder without class folders; nothing of anything else."""
    return [str(path) for path in loose_pictures(Path(text))] if Path(text).is_dir() else []


def _note_members(run: Run, images: np.ndarray) -> None:
    """A query that is a training sample finds itself: its contributor gets nearly all of it."""
    known = {row.tobytes() for row in run.samples.pixel_sha256[~run.samples.withheld]}
    own = sum(row.tobytes() in known for row in pixel_hashes(run, raw_tensor(images)))
    if own:
        note(f"{own:,} of {len(images):,} queries are training samples: they credit themselves most", "warning")


SAMPLES = 5


def credit_report(
    run: Run,
    folder: Path,
    found: Credit,
    values: dict[str, Any],
    notes: Sequence[str],
    source: tuple[str | None, str | None],
    top: int,
) -> bytes:
    """The page; `source` is where the training data are now, and the folder that names resolve under."""
    config, about = run.config.network, values["about"]
    page = credit_html(
        CreditReport(
            run=str(folder),
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            queries=about["queries"],
            by=about["by"],
            values=values,
            leaders=_leaders(run, found, source, top),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _leaders(run: Run, found: Credit, source: tuple[str | None, str | None], top: int) -> tuple[Leader, ...]:

    first = [(place, one) for place, one in enumerate(found.ranking) if one.share.value][:top]
    if not first:
        return ()
    opened = picture_data(run, *source)
    leaders = []
    for place, one in first:
        best = found.top(place, SAMPLES)
        whole = max(one.share.value or 0.0, 1e-12)
        cards = tuple(
            ExemplarCard(
                picture=seen.picture,
                sample_id=run.samples.sample_ids[i],
                sha256=run.samples.hex(i),
                label=run.samples.class_names[int(run.samples.labels[i])],
                weight=min(float(found.by_sample[i]) / whole, 1.0),
                note=seen.words,
            )
            for i, seen in zip(best.tolist(), evidence(run.samples, opened.parts, best), strict=True)
        )
        leaders.append(Leader(one.name, f"{percent(one.share.value or 0.0)} of the credit", cards))
    return tuple(leaders)


def credit(asked: options.Credit) -> None:
    """Share the credit for the answers to some queries among the contributors of the training samples."""
    if asked.k < 0 or asked.top < 0:
        raise UsageError(f"-k and --top must be 0 or more, got {asked.k} and {asked.top}")
    refuse_file(asked.out)
    inputs = [asked.by, asked.data, *asked.queries]
    if asked.out is not None:
        check_outputs(
            {asked.out / "report.html": PAGE}, [asked.run], inputs, data_dir=asked.data_dir
        )  # before long work
    where = pick_device(asked.device)
    loaded, state = with_state(asked.run, open_run)
    people = contributors_of(loaded.samples, asked.by)
    notes = _notes(people, int(loaded.samples.withheld.sum()))
    for line in notes:
        note(line, "warning" if "not listed" in line else "note")
    images, about = open_queries(loaded, asked.queries, asked.data_dir)
    loaded.network.to(where)
    found = share(
        loaded, images, people.names, k=asked.k, weights=asked.weights, seed=asked.seed, progress=True, warn=False
    )
    values = {**found.to_json(), "unlisted_samples": people.unlisted, "unknown_ids": people.strangers}
    values["about"] = {"run": str(asked.run), "queries": about, "by": people.about, "seed": asked.seed}
    values["about"] |= {"model_sha256": state["model.safetensors"], "data_fingerprint": loaded.samples.fingerprint}
    if asked.out is not None:
        page = credit_report(loaded, asked.run, found, values, notes, (asked.data, asked.data_dir), asked.top)
        _write(asked.out, asked.run, inputs, values, found, page)
    if asked.json:
        emit_json(values)
        return
    _show(found)
    if asked.out is not None:
        say(f"written to {asked.out}: report.html, credit.json, credit.csv")


def _notes(people: Contributors, withheld: int) -> list[str]:
    """What does not fit together, in words."""
    lines = []
    if people.unlisted:
        whole = len(people.names)
        lines.append(f"{people.unlisted:,} of {whole:,} samples have no contributor: they are credited as (not listed)")
    if people.strangers:
        lines.append(f"{people.strangers:,} ids of {shown(people.about)} are no samples of the run and are passed over")
    if withheld:
        lines.append(f"{withheld:,} samples are withheld: they are never credited, others take their share")
    return lines


def _write(
    out: Path, run: Path, inputs: list[str | Path | None], values: dict[str, Any], found: Credit, page: bytes
) -> None:

    files = {
        "credit.json": write_json(values, "credit.json"),
        "credit.csv": credit_csv(found).encode("utf-8", "backslashreplace"),
        "report.html": page,
    }
    write_outputs({out / name: content for name, content in files.items()}, [run], inputs)


def credit_csv(found: Credit) -> str:
    """The ranking as CSV, one line a contributor; a name that a spreadsheet would take for a formula gets a quote."""
    lines: list[list[object]] = [["rank", "contributor", "share", "low", "high", "queries", "samples", "lift", "first"]]
    for one in found.ranking:
        numbers = [one.share.value, one.share.low, one.share.high]
        cells = ["" if value is None else f"{value:.8f}" for value in numbers]
        lift = "" if one.lift is None else f"{one.lift:.6f}"
        lines.append([one.rank, quoted(one.name), *cells, one.share.n, one.samples, lift, f"{one.first:.4f}"])
    return csv_text(lines)


def _show(found: Credit, most: int = 20) -> None:

    rows = [("queries", f"{found.queries:,}, of them {found.supported:,} credit somebody")]
    if found.unsupported:
        rows.append(("no supporting sample", f"{found.unsupported:,} queries credit nobody"))
    if found.unnamed:
        rows.append(("only withheld samples", f"{found.unnamed:,} queries credit nobody"))
    if found.gini.value is not None:
        gini = found.gini
        rows.append(("Gini", f"{gini.value:.3f} ({gini.low:.3f} to {gini.high:.3f}); samples {found.gini_samples:.3f}"))
    show(facts(rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in (("", True), ("contributor", False), ("credit", True), ("95 % interval", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "contributor")
    for name in ("rank in 95 %", "lift", "samples"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.ranking[:most]:
        share = one.share
        if share.value is None or share.low is None or share.high is None:
            table.add_row("-", shown(one.name), "-", share.why, "-", "-", f"{one.samples:,}")
            continue
        ends = f"{percent(share.low).removesuffix(' %')} to {percent(share.high)}"
        ranks = f"{one.rank_low} to {one.rank_high}"
        cells = [percent(share.value), ends, ranks, f"{one.lift:.2f}", f"{one.samples:,}"]
        table.add_row(str(one.rank), shown(one.name), *cells)
    show(table)
    if len(found.ranking) > most:
        say(f"and {len(found.ranking) - most:,} contributors more")
