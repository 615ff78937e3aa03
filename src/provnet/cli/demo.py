"""`provnet demo`: the whole story on the embedded digits, in about a minute and without any download."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from provnet.answers.attributor import explain
from provnet.answers.evaluation import Evaluation, evaluate
from provnet.base.options import Audit, AuditOptions, Debug, Demo, RunOptions
from provnet.base.stats import Interval, wilson
from provnet.cli.audit import audit
from provnet.cli.debug import debug
from provnet.cli.evaluate import NAME, evaluation_file, figures_table
from provnet.cli.output import facts, note, say, show
from provnet.cli.rundata import keep_measured, run_state
from provnet.cli.targets import PAGE, check_outputs
from provnet.cli.train import data_words, network_words
from provnet.data.apply import spec_name
from provnet.data.open import open_data
from provnet.report.records import DemoReport, Finding, seconds
from provnet.tools.debug.files import SAMPLES
from provnet.tools.demo import demo_html, make_report, plant_wrong_labels
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet.training.session import refuse_strangers

DIGITS = 2000  # that they are planted among
EPOCHS = 12
PICTURES = 1000  # of each kind in the audit


def find_planted(out: Path, *, seed: int, epochs: int | None, limit: int | None) -> tuple[Finding, ...]:
    """Train on digits with planted wrong labels, debug the run, and count what was found."""
    data, right = plant_wrong_labels(open_data("embedded", limit=limit or DIGITS), seed)
    say(f"planting {len(right)} wrong labels among {len(data):,} digits, training on them, looking for them", "bold")
    config = train_config("robust", seed=seed, epochs=epochs or EPOCHS, network="class-independent")
    run = out / "planted"
    fit(data, config, RunOptions(out=run, overwrite=True, progress=True))
    debug(Debug(run=run, out=out / "debug"))
    with (out / "debug" / SAMPLES).open(encoding="utf-8", newline="") as file:
        flagged = {row["sample_id"]: row for row in csv.DictReader(file) if float(row["mislabel"]) >= 0.5}
    hits = [name for name in flagged if name in right]
    corrected = sum(flagged[name]["suggested_label"] == right[name] for name in hits)
    link = "debug/report.html"
    return (
        Finding("Wrong labels found", wilson(len(hits), len(right)), "Of the labels made wrong, those flagged.", link),
        Finding("Flags that are right", wilson(len(hits), len(flagged)), "Of the labels flagged, those wrong.", link),
        Finding("Right label suggested", wilson(corrected, len(hits)), "Of the wrong labels found.", link),
    )


def ask_membership(out: Path, *, seed: int, limit: int | None) -> tuple[Finding, ...]:
    """Audit the demo's own run: how well training digits are told from others."""
    say("telling training digits from others", "bold")
    audit(Audit(run=out, out=out / "audit", limit=limit or PICTURES, how=AuditOptions(distort=False, seed=seed)))
    scores: dict[str, Any] = json.loads((out / "audit" / "audit.json").read_text("utf-8"))["scores"]
    words = {"index_confidence": "index branch", "class_confidence": "class branch"}
    return tuple(
        Finding(
            f"AUC of membership, {branch}",
            Interval(**{key: scores[name]["auc"][key] for key in ("value", "n", "low", "high")}),
            "The chance that a training digit scores above another one; 50 % is guessing.",
            "audit/report.html",
        )
        for name, branch in words.items()
    )


def demo(asked: Demo) -> None:
    """Train on 4,000 digits, evaluate, explain ten others, find planted wrong labels; leave a page to open."""
    run_demo(asked.out, seed=asked.seed)


def run_demo(out: Path, *, seed: int = 0, epochs: int | None = None, limit: int | None = None) -> Path:
    """Do the demo in a folder and return the path of its report; `epochs` and `limit` make it smaller."""
    began = time.perf_counter()

    refuse_foreign(out)
    data = open_data("embedded", limit=limit)
    test = open_data("embedded", split="test", limit=limit)
    config = train_config("default", seed=seed, epochs=epochs)
    show(
        facts(
            [
                ("data", data_words(data)),
                ("test", f"{len(test):,} others"),
                ("network", network_words(data, config)[1]),
            ]
        )
    )
    course: list[Mapping[str, Any]] = []
    start = time.perf_counter()
    run = fit(data, config, RunOptions(out=out, overwrite=True, progress=True), test=test.spec, on_epoch=course.append)
    train_seconds = time.perf_counter() - start
    state = run_state(out)
    found = evaluate(run, test, data, progress=True)
    about = {
        "test": {"data": spec_name(test.spec), "fingerprint": test.samples.fingerprint},
        "train": {"data": spec_name(data.spec), "left_out": 0},
        "seed": 0,
    }
    figures = evaluation_file(found.to_json(), about, state)
    keep_measured(out, state, {NAME: figures}, evaluation=found.to_json())
    explanation = explain(run, test.images, k=5)
    findings = find_planted(out, seed=seed, epochs=epochs, limit=limit) + ask_membership(out, seed=seed, limit=limit)
    seconds = (train_seconds, time.perf_counter() - began)
    report = replace(make_report(run, data, test, course, found, explanation, seconds), findings=findings)
    keep_measured(out, state, {"report.html": demo_html(report).encode("utf-8", "backslashreplace")})
    return _finish(report, found, out / "report.html", began)


def refuse_foreign(out: Path) -> None:
    """Refuse a folder with something of somebody else where the demo will write, before anything is trained."""
    for folder in (out, out / "planted"):
        if folder.is_dir():
            refuse_strangers(folder, overwrite=True)
    pages = {out / tool / "report.html": PAGE for tool in ("debug", "audit")}
    check_outputs({**pages, out / "audit" / "audit.json": b"{"}, [])


def _finish(report: DemoReport, found: Evaluation, path: Path, began: float) -> Path:

    show(figures_table(found.to_json()))
    wrong = sum(card.truth != card.predicted for card in report.explanations)
    show(facts([(item.title, str(item.figure)) for item in report.findings], "Wrong labels, and who was in the data"))
    say(f"explained {len(report.explanations)} test digits, {wrong} of them answered wrong")
    note(f"trained in {seconds(report.train_seconds)}, all in {seconds(time.perf_counter() - began)}")
    say(f"report: {path.absolute()}", "bold")
    return path
