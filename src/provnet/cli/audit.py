"""`provnet audit`: how well members of the training set are told from pictures that were never trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from provnet.base import options
from provnet.base.errors import UsageError
from provnet.cli.output import (
    emit_json,
    facts,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, keep_measured, open_members, open_others, open_run
from provnet.cli.targets import SHEET, write_outputs
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import WORDS
from provnet.runs.card import audit_figures
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.tools.membership.compute import Audit
from provnet.tools.membership.compute import audit as measure
from provnet.tools.membership.member import HELDOUT, Heldout, draw_samples, heldout_file
from provnet.tools.membership.page import (
    SCORES,
    SIDES,
    AuditReport,
    auc_cell,
    audit_figure,
    audit_html,
    interval_cell,
    score_cells,
    shadow_claims,
    shadow_html,
    shadow_rows,
)
from provnet.tools.membership.shadows import ShadowScores, audit_shadows, joined, read_scores, scores_of_runs

FIGURES = {".png": SHEET, ".pdf": b"%PDF", ".svg": b"<?xml"}  # how they begin
ENOUGH = 10_000  # nonmembers of which 0.1 % are ten


def audit(asked: options.Audit) -> None:
    """Measure how well the run tells its training pictures from others: ROC, AUC, hits at few false alarms."""
    if asked.run is None or asked.scores is not None or asked.shadow:
        _with_shadows(asked)
        return
    inputs = [asked.members, asked.nonmembers]
    drawn_as = None if asked.figure is None else FIGURES.get(asked.figure.suffix.lower())
    more = {} if asked.figure is None or drawn_as is None else {asked.figure: drawn_as}
    folder = asked.run
    loaded, state, where = begin(_Asked(folder, asked.data_dir, asked.device), asked.out, inputs, more)
    others = draw_samples(open_others(loaded, asked.nonmembers, asked.data_dir), asked.limit, asked.how.seed)
    own = draw_samples(open_members(loaded, asked.members, asked.data_dir), asked.limit, asked.how.seed)
    unseen = None if asked.null is None else _unseen(asked.null, (own, others), where)
    found = measure(loaded, own, others, null=unseen, options=asked.how, progress=True, warn=False)
    _warn(found)
    values = found.to_json()
    about = {
        "model_sha256": state["model.safetensors"],
        "data_fingerprint": loaded.samples.fingerprint,
        "seed": asked.how.seed,
    }
    sources = (spec_name(own.spec), spec_name(others.spec))
    about |= {"run": str(folder), "members": sources[0], "nonmembers": sources[1], "device": where}
    report = _report(loaded, folder, sources, values, about)
    files = {
        asked.out / "audit.json": write_json({**values, "about": about}, "audit.json"),
        asked.out / "report.html": audit_html(report).encode("utf-8", "backslashreplace"),
    }
    if asked.figure is not None:
        files[asked.figure] = audit_figure(report, asked.figure.suffix.lower().lstrip("."))
    write_outputs(files, [folder, *([] if asked.null is None else [asked.null])], inputs)
    if asked.json:
        emit_json(brief(values))
    else:
        _show(values, report)
        words = f"written to {asked.out / 'report.html'} and {asked.out / 'audit.json'}"
        say(words + (f", {asked.figure}" if asked.figure else ""))
    scores = Heldout(found.decides, found.heldout, found.copies, about=sources[1])
    kept = {HELDOUT: heldout_file(scores, state)} if found.copies.size else {}
    outcome = {"audit": audit_figures(values, loaded.samples)} if asked.card else {}
    # last: where another process holds the run, all else is there
    if (kept or outcome) and keep_measured(folder, state, kept, **outcome) and kept:
        note(f"scores that provnet member compares with: {folder / HELDOUT}")


def _with_shadows(asked: options.Audit) -> None:
    """Attacks with shadow models, on a file of scores or on runs."""
    if (asked.run is None) == (asked.scores is None):
        given = "both" if asked.run else "neither"
        raise UsageError(f"audit a run (RUN, with --shadow RUN for each shadow) or a file (--scores FILE); got {given}")
    if asked.scores is not None:
        refused = ("shadow", "members", "nonmembers", "null", "figure")
        if wrong := [name for name in refused if getattr(asked, name)]:
            raise UsageError(f"--scores FILE holds all that is audited; leave --{wrong[0]} out")
        scores, runs, source, model = read_scores(asked.scores), [], str(asked.scores), "the model behind the scores"
    else:
        scores = _of_runs(asked)
        runs, source, model = [asked.run, *(asked.shadow or [])], f"{len(asked.shadow or [])} runs", str(asked.run)
    values = audit_shadows(scores).to_json()
    files = {
        asked.out / "audit.json": write_json({**values, "about": {"model": model, "scores": source}}, "audit.json"),
        asked.out / "report.html": shadow_html(values, model, source).encode("utf-8", "backslashreplace"),
    }
    write_outputs(files, [run for run in runs if run], [asked.scores])
    if asked.json:
        emit_json({**values, "found": brief({"scores": values["found"]})["scores"]})
        return
    show(facts([(name, f"{values[name]:,}") for name in ("members", "others", "candidates", "shadows")]))
    columns, rows = shadow_rows(values)
    table = Table(title="Membership", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("attack", *columns):
        table.add_column(name)
    for words, chosen, cells in rows:
        table.add_row(f"{words} *" if chosen else words, *(f"{one.value} ({one.ends})" for one in cells))
    show(table)
    say("* what the claims below rest on")
    for words, figure, more in shadow_claims(values):
        say(f"{words}: {figure}. {more}")
    say(f"written to {asked.out / 'report.html'} and {asked.out / 'audit.json'}")


def _of_runs(asked: options.Audit) -> ShadowScores:
    """The scores of a run and of its shadows, of members and of others."""
    inputs = [asked.members, asked.nonmembers]
    assert asked.run is not None, "it was asked for"
    loaded, _, where = begin(_Asked(asked.run, asked.data_dir, asked.device), asked.out, inputs)
    sides = [
        draw_samples(side, asked.limit, asked.how.seed)
        for side in (
            open_members(loaded, asked.members, asked.data_dir),
            open_others(loaded, asked.nonmembers, asked.data_dir),
        )
    ]
    shadows = [open_run(folder) for folder in asked.shadow or []]
    for one in shadows:
        one.network.to(where)
    own = set(sides[0].samples.sample_ids)
    sides[1] = sides[1].select(np.flatnonzero([name not in own for name in sides[1].samples.sample_ids]))
    return joined([scores_of_runs(loaded, shadows, side) for side in sides])


class _Asked(NamedTuple):
    """The run that is asked, where it is given."""

    run: Path
    data_dir: str | None
    device: str | None


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
    if unseen.config.network.input_shape != sides[0].shape:
        raise UsageError(
            f"--null {folder} takes samples of shape {unseen.config.network.input_shape}, these pictures have "
            f"{sides[0].shape}; give a run that was trained on pictures of that shape and saw none of these"
        )
    seen = [unseen.seen(side) for side in sides]
    if any(seen):
        raise UsageError(f"--null {folder} was trained on {sum(seen):,} of these pictures; give a run that saw neither")
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

    config = run.config.network
    network = f"{config.network}, {config.backbone}, head {config.head}, {len(run.samples):,} training samples"
    lines = (("Weights, SHA-256", about["model_sha256"]), ("Data fingerprint", about["data_fingerprint"]))
    return AuditReport(str(folder), network, sources, values, WORDS, (*lines, ("Seed", str(about["seed"]))))


def _show(values: dict[str, Any], report: AuditReport) -> None:

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
        note(f'a rate marked "-" would rest on fewer than ten nonmembers; 0.1 % needs {ENOUGH:,} of them')
    for kind, of in values["lookup"].items():
        found = [f"{interval_cell(of[side]).value} of {side}" for side in SIDES]
        say(f"hash of the {kind} is in the table: {', '.join(found)}")
    for kind, of in values["distorted"].items():
        best = max(of, key=lambda name: of[name]["auc"]["value"])
        cell = auc_cell(of[best]["auc"])
        say(f"{report.copies.get(kind, kind)}: AUC {cell.value} ({cell.ends}) by {SCORES[best][0]}")
