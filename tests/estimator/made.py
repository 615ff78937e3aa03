"""Small pictures and a small classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from provnet import ProvenanceClassifier


def pictures(n: int = 36, dtype: str = "float32", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(N, 3, 6, 7) pictures in 0..1 (or bytes) of three classes: each brightens its own third."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    values = random.uniform(0, 0.4, (n, 3, 6, 7))
    for row, label in enumerate(labels):
        values[row, :, 2 * label : 2 * label + 2] += 0.6
    return (values * 255).astype("uint8") if dtype == "uint8" else values.astype(dtype), labels


def small(**changes: Any) -> ProvenanceClassifier:
    return ProvenanceClassifier(**{"backbone": "small", "epochs": 12, "batch_size": 12, "lr": 4e-3, **changes})


def same(one: Any, other: Any) -> None:
    """Two explanations name the same samples with the same weights."""
    assert one.to_records() == other.to_records()
