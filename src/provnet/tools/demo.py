"""The story page of `provnet demo`: what was trained, how good it is, ten explained samples, what the figures mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provnet.answers.evaluation import Evaluation
from provnet.answers.explanation import Explanation
from provnet.answers.queries import Query, exemplar_evidence, explanation_cards
from provnet.base.words import path_word
from provnet.data.apply import apply_decisions
from provnet.data.dataset import ImageData
from provnet.models.network import parameter_count
from provnet.report.charts import Plot, line_chart
from provnet.report.page import render
from provnet.report.records import (
    DemoReport,
    EpochRow,
    EvaluationRow,
    ExplanationCard,
    FileRow,
    NextStep,
    evaluation_rows,
    percent,
)
from provnet.runs.fileset import read_set
from provnet.runs.run import FILES, Run
from provnet.samples.decisions import Decision


@dataclass(frozen=True)
class Tile:
    """One figure with its name and one sentence on what it measures."""

    title: str
    meaning: str
    row: EvaluationRow


@dataclass(frozen=True)
class Cell:
    """One cell of the confusion matrix: how many, how strongly it is tinted (0..1), whether it is a right answer."""

    count: int
    tint: float
    right: bool


@dataclass(frozen=True)
class MixUp:
    """A class taken for another one, how often, of how many."""

    truth: str
    predicted: str
    count: int
    of: int


def demo_html(report: DemoReport) -> str:
    """Draw the page of `provnet demo` as one self-contained HTML file."""
    right = sum(card.truth == card.predicted for card in report.explanations)
    return render(
        "demo.html.j2",
        title="provnet demo",
        report=report,
        lead=_lead(report.explanations),
        unseen=_tiles(report.evaluation, UNSEEN),
        own=_tiles(report.evaluation, OWN),
        conditional=report.network.startswith("class-conditional"),
        charts=training_charts(report.epochs),
        matrix=confusion_cells(report.confusion) if len(report.confusion) <= _LARGEST_MATRIX else (),
        mixups=mixups(report.confusion, report.class_names),
        right=right,
        wrong=len(report.explanations) - right,
    )


def training_charts(epochs: Sequence[EpochRow]) -> tuple[Plot, ...]:
    """Lay out loss and accuracies over the epochs; none without epochs.

    >>> [chart.title for chart in training_charts([EpochRow(1, 5.0, 0.6, 0.1), EpochRow(2, 1.0, 0.9, 0.8)])]
    ['Loss', 'Accuracy on the training samples']
    """
    if not epochs:
        return ()
    numbers = [row.epoch for row in epochs]
    shares = [("class", [row.class_accuracy for row in epochs]), ("index", [row.index_accuracy for row in epochs])]
    return (
        line_chart("Loss", numbers, [("loss", [row.loss for row in epochs])], write="{:.3g}".format),
        line_chart(
            "Accuracy on the training samples",
            numbers,
            shares,
            highest=1.0,
            write=percent,
            write_tick=lambda share: f"{share:.0%}".replace("%", " %"),
        ),
    )


def confusion_cells(confusion: Sequence[Sequence[int]]) -> tuple[tuple[Cell, ...], ...]:
    """Tint the counts: right answers by their share of the class, wrong ones by the most frequent mix-up.

    >>> [[cell.tint for cell in row] for row in confusion_cells([[9, 1], [0, 10]])]
    [[0.9, 1.0], [0.0, 1.0]]
    """
    worst = max((count for i, row in enumerate(confusion) for j, count in enumerate(row) if i != j), default=0)
    return tuple(
        tuple(
            Cell(count, round(count / max(sum(row) if i == j else worst, 1), 3), i == j) for j, count in enumerate(row)
        )
        for i, row in enumerate(confusion)
    )


def mixups(confusion: Sequence[Sequence[int]], names: Sequence[str], most: int = 8) -> tuple[MixUp, ...]:
    """List the most frequent wrong answers.

    >>> mixups([[9, 1], [0, 10]], ["cat", "dog"])
    (MixUp(truth='cat', predicted='dog', count=1, of=10),)
    """
    found = [
        MixUp(names[i], names[j], count, sum(row))
        for i, row in enumerate(confusion)
        for j, count in enumerate(row)
        if i != j and count
    ]
    return tuple(sorted(found, key=lambda mixup: -mixup.count)[:most])


def _lead(cards: Sequence[ExplanationCard]) -> ExplanationCard | None:
    """The card for the head of the page: a right, supported one with its picture, if there is one."""
    good = (card for card in cards if card.supported and card.truth == card.predicted and card.query is not None)
    return max(good, key=lambda card: len(card.exemplars), default=None)


def _tiles(rows: Sequence[EvaluationRow], table: dict[str, tuple[str, str]]) -> list[Tile]:
    by_key = {row.key: row for row in rows}
    return [Tile(*words, by_key[key]) for key, words in table.items() if key in by_key]


UNSEEN = {
    "class_accuracy": ("Class accuracy", "The predicted class is the right one."),
    "any_at_1": ("any@1", "The first exemplar is of the right class."),
    "any_at_5": ("any@5", "At least one of five exemplars is of the right class."),
    "majority_at_5": ("majority@5", "Most of five exemplars are of the right class."),
}

OWN = {
    "index_accuracy": ("Exact index", "Shown a training sample, it names that very sample."),
    "index_at_5": ("index@5", "The sample is among the first five."),
    "index_accuracy_perturbed.noise": ("Under noise", "Named although noise (σ = 0.1) was added."),
    "index_accuracy_perturbed.shift": ("Under shift", "Named although moved by one pixel."),
    "index_accuracy_perturbed.jpeg": ("Under JPEG", "Named although saved as JPEG, quality 50."),
}

_LARGEST_MATRIX = 20


SHARE = 0.1  # of the labels are made wrong


def plant_wrong_labels(data: ImageData, seed: int) -> tuple[ImageData, dict[str, str]]:
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
