"""`provnet credit`: whose samples stand behind the answers to a set of queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from provnet.cli.credit_report import credit_report
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
from provnet.cli.targets import PAGE, check_outputs, write_outputs
from provnet.data.csvfile import csv_text, quoted
from provnet.data.files import shown
from provnet.errors import UsageError

if TYPE_CHECKING:
    from provnet.applications.contributors import Contributors
    from provnet.applications.credit import Credit

EXAMPLE = "Example: [bold]provnet credit runs/mnist test:0..199 --by sources.csv --out credit[/bold]"


def credit(
    run: RunFolder,
    queries: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERIES",
            help="Data (name, folder, .npz), pictures (files or a folder), .npy arrays, test:0..99 (the test split).",
            show_default=False,
        ),
    ],
    by: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV with sample_id,contributor. Default: the sources that the training data have."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", parser=folder_name, metavar="DIR", help="Folder for report.html, credit.json and credit.csv."
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Count only the k largest weights of each query. 0: all.")] = 0,
    weights: Annotated[
        str,
        typer.Option(
            metavar="plain|joint",
            help="The index branch's own shares, or P(class) times the share within the class.",
        ),
    ] = "plain",
    top: Annotated[int, typer.Option(metavar="N", help="Leading contributors whose samples are shown.")] = 8,
    data: TrainingData = None,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of the draws that give the intervals.")] = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Share the credit for the answers to some queries among the contributors of the training samples.

    Queries without a supporting sample credit nobody and are counted apart; withheld samples are never credited.
    """
    from provnet.applications.contributors import contributors_of
    from provnet.applications.credit import credit as share
    from provnet.cli.credit_queries import open_queries

    if k < 0 or top < 0:
        raise UsageError(f"-k and --top must be 0 or more, got {k} and {top}")
    refuse_file(out)
    inputs = [by, data, *queries]
    if out is not None:
        check_outputs({out / "report.html": PAGE}, [run], inputs, data_dir=data_dir)  # before long work
    where = pick_device(device)
    loaded, state = with_state(run, open_run)
    people = contributors_of(loaded.samples, by)
    notes = _notes(people, int(loaded.samples.withheld.sum()))
    for line in notes:
        note(line, "warning" if "not listed" in line else "note")
    images, about = open_queries(loaded, queries, data_dir)
    loaded.network.to(where)
    found = share(loaded, images, people.names, k=k, weights=weights, seed=seed, progress=True, warn=False)
    values = {**found.to_json(), "unlisted_samples": people.unlisted, "unknown_ids": people.strangers}
    values["about"] = {"run": str(run), "queries": about, "by": people.about, "seed": seed}
    values["about"] |= {"model_sha256": state["model.safetensors"], "data_fingerprint": loaded.samples.fingerprint}
    if out is not None:
        page = credit_report(loaded, run, found, values, notes, (data, data_dir), top)
        _write(out, run, inputs, values, found, page)
    if json:
        emit_json(values)
        return
    _show(found)
    if out is not None:
        say(f"written to {out}: report.html, credit.json, credit.csv")


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
    from provnet.safejson import write_json

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
    from provnet.report.text import percent

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
