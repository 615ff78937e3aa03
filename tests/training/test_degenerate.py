"""Odd data sets: they train, are evaluated and explained, and nothing is named that is not there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.base.errors import DataError
from provnet.data.dataset import ImageData
from provnet.runs.run import read_run
from tests.cases import cases
from tests.fitting import fit

from .made import BATCH, NETWORKS, recipe, same_bits

# Labels of each set; names of classes beyond them are empty classes.
SETS: dict[str, tuple[list[int], list[str]]] = {
    "a class with one sample": ([0] * 6 + [1] * 6 + [2], ["a", "b", "c"]),
    "only classes with one sample": ([0, 1, 2, 3], ["a", "b", "c", "d"]),
    "an empty class": ([0, 1] * 6, ["a", "b", "empty"]),
    "an empty class before others": ([1, 2] * 6, ["empty", "b", "c"]),
    "a single class": ([0] * 12, ["a"]),
    "one sample": ([0], ["a"]),
    "one sample of the second class": ([1], ["empty", "b"]),
    "two samples": ([0, 1], ["a", "b"]),
    "two samples of one class": ([0, 0], ["a"]),
    "three samples": ([0, 1, 1], ["a", "b"]),
    "a batch and one more": ([i % 3 for i in range(BATCH + 1)], ["a", "b", "c"]),
    "two batches and one more": ([i % 3 for i in range(2 * BATCH + 1)], ["a", "b", "c"]),
}
KINDS = {"pictures": (1, 8, 8), "vectors": (5,)}
NETWORK_NAMES = ("single", "class-independent", "class-conditional", "class-conditional-heads")
TRAINED = [  # every set with every network, and each of both with both kinds
    (name, network, list(KINDS)[(row + column) % 2])
    for row, name in enumerate(SETS)
    for column, network in enumerate(NETWORK_NAMES)
]


def odd_data(name: str, kind: str) -> ImageData:
    labels, classes = SETS[name]
    chance = np.random.default_rng(1)
    if kind == "pictures":
        images: Any = chance.integers(0, 256, (len(labels), *KINDS[kind]), dtype=np.uint8)
    else:
        images = chance.normal(size=(len(labels), *KINDS[kind])).astype(np.float32)
    return provnet.open_data(images, np.array([classes[i] for i in labels]), class_names=classes)


@pytest.mark.parametrize(("name", "network", "kind"), TRAINED)
def test_odd_data_train_are_evaluated_and_explained(tmp_path: Path, name: str, network: str, kind: str) -> None:
    data = odd_data(name, kind)
    assert data.samples.labels.tolist() == SETS[name][0]
    run = fit(data, network=network, config=recipe(), out=tmp_path / "run")
    same_bits(read_run(tmp_path / "run"), run)
    assert run.history is not None
    assert run.history.shape == (3, len(data))
    for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert math.isfinite(row["loss"])
        assert 0 <= row["class_accuracy"] <= 1
        assert 0 <= row["index_accuracy"] <= 1

    queries = torch.cat([data.images, data.images.flip(-1)])
    found = explain(run, queries, k=50)
    sizes = np.bincount(data.samples.labels, minlength=len(data.class_names))
    assert (sizes[found.predicted] > 0).all()  # an empty class is never the answer
    assert np.isfinite(found.confidence).all()
    assert (found.confidence > 0).all()
    assert np.isfinite(found.support).all()
    for predicted, index, weight in zip(found.predicted, found.index, found.weight, strict=True):
        named = index[index >= 0]
        all_of = np.flatnonzero(data.samples.labels == predicted) if "conditional" in network else np.arange(len(data))
        assert sorted(named) == list(all_of)  # each sample that can be named once, none else
        assert weight[index < 0].sum() == 0
        assert weight.sum() == pytest.approx(1, abs=1e-5)

    figures = evaluate(run, test=data, train=data).to_json()
    assert figures["class_accuracy"]["n"] == figures["index_accuracy"]["n"] == len(data)
    assert 0 <= figures["index_accuracy"]["low"] <= figures["index_accuracy"]["high"] <= 1
    json.dumps(figures, allow_nan=False)
    nothing = evaluate(run).to_json()
    assert nothing["class_accuracy"]["n"] == 0
    json.dumps(nothing, allow_nan=False)


@cases("name", NETWORKS)
def test_equal_samples_are_told_apart_by_nothing_and_break_nothing(name: str) -> None:
    images = np.full((10, 1, 8, 8), 7, np.uint8)
    run = fit(provnet.open_data(images, np.arange(10) % 2), config=recipe(), **NETWORKS[name])
    assert np.isfinite(explain(run, torch.from_numpy(images)).support).all()


def test_no_samples_at_all_are_refused() -> None:
    data = odd_data("two samples", "pictures")
    with pytest.raises(DataError, match="no samples"):
        fit(data.select(np.array([], dtype=np.int64)), config=recipe())
