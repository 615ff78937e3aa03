"""`provnet audit`: how well members of the training set are told from pictures that were never trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from provnet.base.errors import UsageError
from provnet.cli.heldout import NAME, drawn, heldout_file, open_members, open_others
from provnet.cli.output import (
    AsJson,
    DataDir,
    Device,
    RunFolder,
    check_seed,
    emit_json,
    facts,
    folder_name,
    note,
    pick_device,
    say,
    show,
)
from provnet.cli.rundata import keep_measured, open_run, spec_name, with_state
from provnet.cli.targets import PAGE, SHEET, check_outputs, write_outputs

if TYPE_CHECKING:
    from provnet.data.dataset import ImageData
    from provnet.runs.run import Run
    from provnet.tools.membership.audit import Audit
    from provnet.tools.membership.page import AuditReport

FIGURES = {".png": SHEET, ".pdf": b"%PDF", ".svg": b"<?xml"}  # how they begin
ENOUGH = 10_000  # nonmembers of which 0.1 % are ten
EXAMPLE = "Example: [bold]provnet audit runs/mnist --out audit[/bold]"


def audit(
    run: RunFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", parser=folder_name, metavar="DIR", help="Folder of the report.", show_default=False
        ),
    ],
    members: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="Pictures that were trained on (their train split). Default: the run's own data."
        ),
    ] = None,
    nonmembers: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Pictures that were not (their test split). Default: the run's test split."),
    ] = None,
    null: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run that saw neither. Default: the same network, weights drawn anew."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many of each, drawn by the seed.")] = 10_000,
    distort: Annotated[bool, typer.Option(help="Also distorted copies of both.")] = True,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also one figure for print: .png, .pdf or .svg (matplotlib).")
    ] = None,
    card: Annotated[bool, typer.Option(help="Write the figures into the run's model card.")] = True,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(callback=check_seed, help="Of draws and distortions.")] = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Measure how well the run tells its training pictures from others: ROC, AUC, hits at few false alarms.

    Writes audit.json and report.html into DIR, and into the run folder the scores that `provnet member` compares with.
    """
    from provnet.runs.card import audit_figures
    from provnet.tools.membership.audit import audit as measure
    from provnet.tools.membership.member import Heldout

    if limit < 2:
        raise UsageError(f"--limit must be 2 or more, got {limit}")
    inputs = [members, nonmembers]
    drawn_as = None if figure is None else FIGURES.get(figure.suffix.lower())
    first = {out / "report.html": PAGE} | ({} if figure is None or drawn_as is None else {figure: drawn_as})
    check_outputs(first, [run], inputs, data_dir=data_dir)  # before long work
    where = pick_device(device)
    loaded, state = with_state(run, open_run)
    others = drawn(open_others(loaded, nonmembers, data_dir), limit, seed)
    own = drawn(open_members(loaded, members, data_dir), limit, seed)
    loaded.network.to(where)
    unseen = None if null is None else _unseen(null, (own, others), where)
    found = measure(loaded, own, others, null=unseen, distort=distort, seed=seed, progress=True, warn=False)
    _warn(found)
    values = found.to_json()
    about = {"model_sha256": state["model.safetensors"], "data_fingerprint": loaded.samples.fingerprint, "seed": seed}
    sources = (spec_name(own.spec), spec_name(others.spec))
    about |= {"run": str(run), "members": sources[0], "nonmembers": sources[1], "device": where}
    report = _report(loaded, run, sources, values, about)
    _write(out, [run, *([] if null is None else [null])], inputs, {**values, "about": about}, report, figure)
    if json:
        emit_json(brief(values))
    else:
        _show(values, report)
        say(f"written to {out / 'report.html'} and {out / 'audit.json'}" + (f", {figure}" if figure else ""))
    scores = Heldout(found.decides, found.heldout, found.copies, about=sources[1])
    files = {NAME: heldout_file(scores, state)} if found.copies.size else {}
    outcome = {"audit": audit_figures(values, loaded.samples)} if card else {}
    # last: where another process holds the run, all else is there
    if (files or outcome) and keep_measured(run, state, files, **outcome) and files:
        note(f"scores that provnet member compares with: {run / NAME}")


def brief(values: dict[str, Any]) -> dict[str, Any]:
    """The figures without curves and histograms.

    >>> brief({"scores": {"a": {"auc": 1, "roc": [], "histogram": {}}}})
    {'scores': {'a': {'auc': 1}}}
    """
    left = ("roc", "histogram")
    scores = {name: {k: v for k, v in one.items() if k not in left} for name, one in values["scores"].items()}
    return {**values, "scores": scores}


def _unseen(folder: Path, sides: tuple[ImageData, ImageData], where: str) -> Run:
    unseen = open_run(folder)
    seen = [unseen.seen(side) for side in sides]
    if any(seen):
        raise UsageError(f"--null {folder} was trained on {sum(seen):,} of these pictures; give a run that saw neither")
    if unseen.config.network.input_shape != sides[0].shape:
        raise UsageError(
            f"--null {folder} takes samples of shape {unseen.config.network.input_shape}, these pictures have "
            f"{sides[0].shape}; give a run that was trained on pictures of that shape and saw none of these"
        )
    unseen.network.to(where)
    return unseen


def _warn(found: Audit) -> None:
    for why, number in found.left_out.items():
        if number:
            note(f"{number:,} {why} are left out", "warning")
    known = found.lookup["pixels"]["members"].value or 0.0
    if known < 1:
        note(
            f"only {known:.1%} of the members have the pixels of a training sample: are all of them members?", "warning"
        )
    off = [name for name, one in found.null.items() if not (one.low or 0) <= 0.5 <= (one.high or 1)]
    if len(off) > 1:
        words = f"{len(off)} of {len(found.null)} scores of {found.null_about} tell the two sets apart"
        note(f"{words}: the sets differ in themselves, so part of every AUC is not memory", "warning")


def _report(
    run: Run, folder: Path, sources: tuple[str, str], values: dict[str, Any], about: dict[str, Any]
) -> AuditReport:
    from provnet.data.modalities.distort import WORDS
    from provnet.tools.membership.page import AuditReport

    config = run.config.network
    network = f"{config.network}, {config.backbone}, head {config.head}, {len(run.samples):,} training samples"
    lines = (("Weights, SHA-256", about["model_sha256"]), ("Data fingerprint", about["data_fingerprint"]))
    return AuditReport(str(folder), network, sources, values, WORDS, (*lines, ("Seed", str(about["seed"]))))


def _write(
    out: Path,
    runs: list[Path],
    inputs: list[str | None],
    values: dict[str, Any],
    report: AuditReport,
    figure: Path | None,
) -> None:
    """All files, made before the first one is written."""
    from provnet.runs.safe import write_json
    from provnet.tools.membership.page import audit_html

    files = {out / "audit.json": write_json(values, "audit.json")}
    files[out / "report.html"] = audit_html(report).encode("utf-8", "backslashreplace")
    if figure is not None:
        from provnet.tools.membership.page import audit_figure

        files[figure] = audit_figure(report, figure.suffix.lower().lstrip("."))
    write_outputs(files, runs, inputs)


def _show(values: dict[str, Any], report: AuditReport) -> None:
    from provnet.tools.membership.page import SCORES, SIDES, auc_cell, interval_cell, score_cells

    sizes = [(side, f"{values[side]:,} of {source}") for side, source in zip(SIDES, report.sources, strict=True)]
    show(facts(sizes))
    table = Table(title="Membership", title_justify="left", box=None, padding=(0, 2, 0, 0))
    stored = values["null_keys"]
    controls = ("null AUC", *(("untrained, own keys",) if stored else ()))
    for name in ("score", "AUC", "95 % interval", "found at 1 % FPR", "at 0.1 % FPR", *controls):
        table.add_column(name)
    for name, (words, _, _) in SCORES.items():
        cells = score_cells(values["scores"][name])
        nulls = [auc_cell(one["auc"][name]).value for one in (values["null"], stored) if one]
        table.add_row(words, cells[0].value, cells[0].ends, *(cell.value for cell in cells[1:]), *nulls)
    show(table)
    if values["nonmembers"] < ENOUGH:
        note(f'a rate marked "-" would rest on fewer than ten nonmembers; 0.1 % takes {ENOUGH:,} of them')
    for kind, of in values["lookup"].items():
        found = [f"{interval_cell(of[side]).value} of {side}" for side in SIDES]
        say(f"hash of the {kind} is in the table: {', '.join(found)}")
    for kind, of in values["distorted"].items():
        best = max(of, key=lambda name: of[name]["auc"]["value"])
        cell = auc_cell(of[best]["auc"])
        say(f"{report.copies[kind]}: AUC {cell.value} ({cell.ends}) by {SCORES[best][0]}")
