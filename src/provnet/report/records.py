"""The plain records that reports are made of: text, numbers, tuples and small pictures, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from provnet.base.stats import Interval

Picture: TypeAlias = npt.NDArray[np.uint8]
"""uint8 pixels, (H, W) grey or (H, W, 3) colour."""


@dataclass(frozen=True, eq=False)
class ExemplarCard:
    """One training sample offered as explanation.

    Attributes:
        picture: its pixels, or None where they cannot be shown (then an id card stands for it).
        sample_id: the id that names the sample to people.
        sha256: 64 hex digits of its content.
        label: the name of its class.
        weight: its share of the explanation, 0..1.
        note: why there is no picture, or any other remark; usually empty.
    """

    picture: Picture | None
    sample_id: str
    sha256: str
    label: str
    weight: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class ExplanationCard:
    """One explained input.

    Attributes:
        query: the pixels of the input, or None.
        name: what the input is called: a file name or a sample id.
        predicted: the name of the predicted class.
        confidence: how sure the network is, 0..1.
        supported: whether training samples support the answer; if not, exemplars are near but no evidence.
        exemplars: training samples, largest weight first.
        truth: the name of the right class where it is known.
        rebuilt: the input as a generator makes it of its own latents, or None.
        over: what stands above the class.
    """

    query: Picture | None
    name: str
    predicted: str
    confidence: float
    supported: bool
    exemplars: tuple[ExemplarCard, ...] = ()
    truth: str | None = None
    rebuilt: Picture | None = None
    over: str = "Predicted"


@dataclass(frozen=True)
class EvaluationRow:
    """One measured share with its 95 % interval; `key` is its name in `evaluate --json`, parts joined by a dot."""

    key: str
    value: float
    n: int
    low: float
    high: float


@dataclass(frozen=True)
class EpochRow:
    """One epoch of training: mean loss, and the shares of right classes and right indices (0..1)."""

    epoch: int
    loss: float
    class_accuracy: float
    index_accuracy: float


@dataclass(frozen=True)
class FileRow:
    """One file of the run folder."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Finding:
    """A figure of another tool, one sentence on what it measures, and the page that shows more."""

    title: str
    figure: Interval
    meaning: str
    link: str


@dataclass(frozen=True)
class NextStep:
    """A command to try next, and what it does in a few words."""

    command: str
    does: str


@dataclass(frozen=True, eq=False)
class DemoReport:
    """Everything that the page of `provnet demo` shows.

    Attributes:
        data: what was learned, in words that fit "4,000 …": "handwritten digits".
        network: name of the network, such as `class-conditional`.
        backbone: name of the backbone.
        parameters: number of trained parameters.
        train_count: training samples.
        test_count: test samples.
        class_names: one name a class.
        device: where it ran, such as "CPU, 2 threads".
        seed: the seed of the run.
        train_seconds: time of training alone.
        total_seconds: time of the whole command so far.
        epochs: one row an epoch, in order.
        evaluation: rows in the order of `evaluate --json`; `evaluation_rows` makes them from it.
        confusion: counts, one row a true class, one column a predicted class; empty to leave it out.
        explanations: the explained test samples, right and wrong ones.
        fingerprint: the ordered fingerprint of the training data.
        run: the run folder.
        files: files of the run with their hashes.
        versions: name -> version of what it ran with.
        next_steps: commands to try next.
        facts: more `(name, value)` lines for the run's identity.
        findings: what other tools found, with links to their pages.
    """

    data: str
    network: str
    backbone: str
    parameters: int
    train_count: int
    test_count: int
    class_names: tuple[str, ...]
    device: str
    seed: int
    train_seconds: float
    total_seconds: float
    epochs: tuple[EpochRow, ...]
    evaluation: tuple[EvaluationRow, ...]
    confusion: tuple[tuple[int, ...], ...]
    explanations: tuple[ExplanationCard, ...]
    fingerprint: str
    run: str
    files: tuple[FileRow, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    next_steps: tuple[NextStep, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


def evaluation_rows(evaluation: Mapping[str, Any], prefix: str = "") -> tuple[EvaluationRow, ...]:
    """Flatten the dictionary of `evaluate --json` into rows; whatever is no share with an interval is left out.

    >>> figure = {"value": 0.5, "n": 4, "low": 0.15, "high": 0.85}
    >>> [row.key for row in evaluation_rows({"class_accuracy": figure, "index_accuracy_perturbed": {"noise": figure}})]
    ['class_accuracy', 'index_accuracy_perturbed.noise']
    """
    rows: list[EvaluationRow] = []
    for name, value in evaluation.items():
        if not isinstance(value, Mapping):
            continue
        if {"value", "n", "low", "high"} <= set(value):
            shares = (float(value[part]) for part in ("value", "low", "high"))
            share, low, high = shares
            rows.append(EvaluationRow(prefix + name, share, int(value["n"]), low, high))
        else:
            rows.extend(evaluation_rows(value, f"{prefix}{name}."))
    return tuple(rows)
