"""`provnet demo`: the whole story on the embedded digits, in about a minute and without any download."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.answers.evaluation import Evaluation, evaluate
from provnet.answers.explanation import Explanation
from provnet.base.options import Audit, AuditOptions, Debug, Demo, RunOptions
from provnet.base.stats import Interval, wilson
from provnet.base.words import path_word
from provnet.cli.audit import audit
from provnet.cli.debug import debug
from provnet.cli.evaluate import NAME, evaluation_file, figures_table
from provnet.cli.inputs import Query, exemplar_evidence, explanation_cards
from provnet.cli.output import facts, note, say, show
from provnet.cli.rundata import keep_measured, run_state, spec_name
from provnet.cli.targets import PAGE, check_outputs
from provnet.cli.traindata import data_words, network_words
from provnet.data.apply import apply_decisions
from provnet.data.dataset import ImageData
from provnet.data.open import open_data
from provnet.models.network import parameter_count
from provnet.report.records import DemoReport, EpochRow, FileRow, Finding, NextStep, evaluation_rows
from provnet.report.text import seconds
from provnet.runs.fileset import read_set
from provnet.runs.run import FILES, Run
from provnet.samples.decisions import Decision
from provnet.tools.debug.files import SAMPLES
from provnet.tools.demo import demo_html
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet.training.session import refuse_strangers

SHARE = 0.1  # of the labels are made wrong
DIGITS = 2000  # that they are planted among
EPOCHS = 12
PICTURES = 1000  # of each kind in the audit


def planted(data: ImageData, seed: int) -> tuple[ImageData, dict[str, str]]:
    """The data with a tenth of the labels replaced by wrong ones, and the right labels of those, by sample id."""
    chance, samples, names = np.random.default_rng(seed), data.samples, data.class_names
    rows = np.sort(chance.choice(len(data), max(1, round(SHARE * len(data))), replace=False))
    wrong = (samples.labels[rows] + chance.integers(1, len(names), len(rows))) % len(names)
    decisions = [
        Decision(samples.sample_ids[i], samples.hex(i), "relabel", names[label])
        for i, label in zip(rows.tolist(), wrong.tolist(), strict=True)
    ]
    right = {samples.sample_ids[i]: names[samples.labels[i]] for i in rows.tolist()}
    return apply_decisions(data, decisions), right


def find_planted(out: Path, *, seed: int, epochs: int | None, limit: int | None) -> tuple[Finding, ...]:
    """Train on digits with planted wrong labels, debug the run, and count what was found."""
    data, right = planted(open_data("embedded", limit=limit or DIGITS), seed)
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

    refuse_others(out)
    data = open_data("embedded", limit=limit)
    test = open_data("embedded", split="test", limit=limit)
    config = train_config("fast", seed=seed, epochs=epochs)
    show(
        facts(
            [
                ("data", data_words(data)),
                ("test", f"{len(test):,} others"),
                ("network", network_words(data, config)),
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


def refuse_others(out: Path) -> None:
    """Refuse a folder with something of somebody else where the demo will write, before anything is trained."""
    for folder in (out, out / "planted"):
        if folder.is_dir():
            refuse_strangers(folder, overwrite=True)
    pages = {out / tool / "report.html": PAGE for tool in ("debug", "audit")}
    check_outputs({**pages, out / "audit" / "audit.json": b"{"}, [])


def choose_inputs(right: np.ndarray, labels: np.ndarray, count: int = 10, most_wrong: int = 4) -> np.ndarray:
    """Up to four wrong answers and the rest right ones, of as many classes as possible, in order of position.

    >>> import numpy as np
    >>> choose_inputs(np.array([True, False, True, True]), np.array([0, 0, 0, 1]), count=3).tolist()
    [0, 1, 3]
    """
    wrong = _spread(np.flatnonzero(~right), labels)[:most_wrong]
    good = _spread(np.flatnonzero(right), labels)[: count - len(wrong)]
    return np.sort(np.concatenate([wrong, good]))


def _spread(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The rows, first one of each class, then a second one, and so on."""
    seen: dict[int, int] = {}
    turn = []
    for label in labels[rows].tolist():
        turn.append(seen.get(label, 0))
        seen[label] = turn[-1] + 1
    return rows[np.argsort(np.array(turn, dtype=np.int64), kind="stable")]


def make_report(
    run: Run,
    data: ImageData,
    test: ImageData,
    course: list[Mapping[str, Any]],
    found: Evaluation,
    explanation: Explanation,
    seconds: tuple[float, float],
) -> DemoReport:
    """Everything that the page shows."""
    truth = test.samples.labels
    chosen = choose_inputs(explanation.predicted == truth, truth)
    part = explanation[chosen]
    names = data.class_names
    queries = [
        Query(f"test:{i}", test.images[i].numpy(), test.samples.hex(i), names[truth[i]]) for i in chosen.tolist()
    ]
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (truth, explanation.predicted), 1)
    folder = Path(run.folder or ".")
    word = path_word(folder)
    machine = run.config.training["machine"]
    device = device_in_words(machine["device"])
    return DemoReport(
        data="handwritten digits",
        network=run.config.network.network,
        backbone=run.config.network.backbone,
        parameters=parameter_count(run.network),
        train_count=len(data),
        test_count=len(test),
        class_names=names,
        device=device,
        seed=run.config.training["training"]["seed"],
        train_seconds=seconds[0],
        total_seconds=seconds[1],
        epochs=tuple(EpochRow(r["epoch"], r["loss"], r["class_accuracy"], r["index_accuracy"]) for r in course),
        evaluation=evaluation_rows(found.to_json()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        explanations=tuple(explanation_cards(part, queries, exemplar_evidence(part, data))),
        fingerprint=run.samples.fingerprint,
        run=str(folder),
        files=tuple(FileRow(n, e.sha256, e.size) for n, e in read_set(folder, FILES).entries.items()),
        versions=run.config.versions,
        next_steps=(
            NextStep(f"provnet explain {word} test:0..9 --html because.html", "explain ten other test digits"),
            NextStep(f"provnet debug {word} --out debugged", "look for wrong labels and odd digits in the data"),
            NextStep(f"provnet verify {word}", "check every file and every training sample by its hash"),
            NextStep("provnet train PATH/TO/PICTURES --holdout 0.1 --out runs/mine", "train on your own pictures"),
        ),
    )


def device_in_words(device: str) -> str:
    """Where a run was trained.

    >>> device_in_words("cuda")
    'GPU'
    """
    threads = torch.get_num_threads()
    return "GPU" if device == "cuda" else f"CPU, {threads} {'thread' if threads == 1 else 'threads'}"


def _finish(report: DemoReport, found: Evaluation, path: Path, began: float) -> Path:

    show(figures_table(found.to_json()))
    wrong = sum(card.truth != card.predicted for card in report.explanations)
    show(facts([(item.title, str(item.figure)) for item in report.findings], "Wrong labels, and who was in the data"))
    say(f"explained {len(report.explanations)} test digits, {wrong} of them answered wrong")
    note(f"trained in {seconds(report.train_seconds)}, all in {seconds(time.perf_counter() - began)}")
    say(f"report: {path.absolute()}", "bold")
    return path
