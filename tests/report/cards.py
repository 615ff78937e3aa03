"""Made cards for the report tests: small random pictures, names that try to break out."""

from __future__ import annotations

import hashlib

import numpy as np

from provnet.report.records import (
    DemoReport,
    EpochRow,
    ExemplarCard,
    ExplanationCard,
    FileRow,
    NextStep,
    evaluation_rows,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "<!--",
    "]]>",
    "&lt;b&gt; &amp;",
    "ESC \x1b[31m red \x1b]0;owned\x07",
    "nul\x00byte\x7f\x85",
    "line\r\nbreak\ttab",
    "over\u202eride\u2066",
    "broken \udce9\ud800 utf-8",
    "שלום עולם",
    "Größe ßüöä Ł ő",
    "👩‍👩‍👧‍👦 🐶",
    "Z̷̢̛a̶̡l̵g̸o̷",
    "W" * 200,
    "long name " * 20,
    "",
)


def picture(seed: int = 0, shape: tuple[int, ...] = (28, 28)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def exemplar(number: int = 0, weight: float = 0.2, label: str = "7", **changes: object) -> ExemplarCard:
    sha256 = hashlib.sha256(str(number).encode()).hexdigest()
    values = {"picture": picture(number), "sample_id": f"train/{number:05d}", "note": "", **changes}
    return ExemplarCard(sha256=sha256, label=label, weight=weight, **values)


def card(name: str = "test/00001", *, supported: bool = True, truth: str | None = "7", k: int = 5) -> ExplanationCard:
    weights = [0.5, 0.25, 0.125, 0.0625, 0.03125, *[0.001] * 20][:k]
    exemplars = tuple(exemplar(number, weight) for number, weight in enumerate(weights))
    return ExplanationCard(picture(99), name, "7", 0.875, supported, exemplars, truth)


def hostile_card(text: str) -> ExplanationCard:
    items = (
        exemplar(1, 0.5, text, sample_id=text, note=text),
        exemplar(2, 0.5, text, sample_id=text, note=text, picture=None),
    )
    return ExplanationCard(picture(3), text, text, 0.5, True, items, text + "!")


def demo_report(**changes: object) -> DemoReport:
    share = {"value": 0.9, "n": 1000, "low": 0.88, "high": 0.92}
    evaluation = {
        "class_accuracy": {"value": 0.978, "n": 1000, "low": 0.967, "high": 0.985},
        "index_accuracy": {"value": 0.999, "n": 4000, "low": 0.997, "high": 0.9996},
        "index_at_5": {"value": 1.0, "n": 4000, "low": 0.999, "high": 1.0},
        "index_accuracy_perturbed": {"noise": share, "shift": share, "jpeg": share},
        "any_at_1": share,
        "any_at_5": share,
        "majority_at_5": share,
        "duplicates": 0,
        "made_up_figure": {"value": 0.123, "n": 7, "low": 0.1, "high": 0.2},
    }
    values = {
        "data": "handwritten digits",
        "network": "class-conditional",
        "backbone": "small",
        "parameters": 1234567,
        "train_count": 4000,
        "test_count": 1000,
        "class_names": ("0", "1", "2"),
        "device": "CPU, 2 threads",
        "seed": 5,
        "train_seconds": 21.43,
        "total_seconds": 47.9,
        "epochs": tuple(EpochRow(n, 5 / n, 1 - 0.5 / n, 1 - 0.9 / n) for n in range(1, 9)),
        "evaluation": evaluation_rows(evaluation),
        "confusion": ((9, 1, 0), (0, 10, 0), (3, 0, 7)),
        "explanations": (card(), card("test/00002", truth="1"), card("test/00003", supported=False)),
        "fingerprint": "ab" * 32,
        "run": "runs/demo",
        "files": (FileRow("model.safetensors", "cd" * 32, 4_200_000),),
        "versions": {"torch": "2.13.0"},
        "next_steps": (NextStep("provnet verify runs/demo", "check every hash"),),
        "facts": (("Threshold", "0.41"),),
        **changes,
    }
    return DemoReport(**values)
