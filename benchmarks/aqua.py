"""The four kinds of noise of AQuA (Goswami 2023) on CIFAR-10: weighted F1 of flags, as its authors measure it.

    python benchmarks/aqua.py FEATURES --out FILE [--samples N]

FEATURES is a file with features `a` of pictures of CIFAR-10 and their labels `y`, or a folder of files of which each
holds some: photo_sets.py makes those of the 10,000 test pictures, cifar10n.py `--keep` those of all 50,000. Noise is
drawn as AQuA draws it: asymmetric (the next class), class (by the confusions of a classifier on its own training
samples), instance (by random weights of the features, rates from a truncated normal) and uniform, at rates of .1 and .4
(class has one rate). Flags are those from a probability of .5 on; nothing is chosen here. Each baseline gets the same
features. The published rows are for other features, those of networks that were trained for this.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from label_baselines import answers, confident_learning, neighbours_votes, out_of_fold, softmax_regression
from machine import machine
from torch import Tensor

from provnet.tools.debug.assess import assess

CLASSES, RATES, SEED = 10, (0.1, 0.4), 42
PUBLISHED = {  # weighted F1 in per cent, means over both rates (README of autonlab/aqua, table 2)
    "asymmetric": {"AUM": 65.4, "CINCER": 70.9, "cleanlab": 25.2, "SimiFeat": 68.6},
    "class": {"AUM": 94.7, "CINCER": 86.1, "cleanlab": 17.9, "SimiFeat": 94.4},
    "instance": {"AUM": 59.4, "CINCER": 70.6, "cleanlab": 26.9, "SimiFeat": 64.8},
    "uniform": {"AUM": 65.4, "CINCER": 75.4, "cleanlab": 25.1, "SimiFeat": 72.3},
}


def noisy(kind: str, rate: float, x: np.ndarray, y: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Labels with noise."""
    chance, n = np.random.default_rng(SEED), len(y)
    if kind == "asymmetric":
        given = y.copy()
        rows = chance.choice(n, int(rate * n), replace=False)
        given[rows] = (given[rows] + 1) % CLASSES
        return given
    if kind == "uniform":
        p = np.full((n, CLASSES), rate / (CLASSES - 1))
        p[np.arange(n), y] = 1 - rate
    elif kind == "class":
        p = confusion[y] + 1e-7
    else:
        q = rate + 0.1 * _half_normal(chance, n)[:, None]
        score = x @ chance.normal(size=(x.shape[1], CLASSES))
        score[np.arange(n), y] = -np.inf
        p = np.exp(score - score.max(1, keepdims=True))
        p = q * p / p.sum(1, keepdims=True)
        p[np.arange(n), y] = 1 - q[:, 0]
    p = np.cumsum(p / p.sum(1, keepdims=True), 1)
    return np.asarray((chance.random((n, 1)) > p).sum(1).clip(max=CLASSES - 1))


def _half_normal(chance: np.random.Generator, n: int) -> np.ndarray:
    """(n,) standard normal numbers between 0 and 1."""
    drawn = np.abs(chance.normal(size=8 * n + 100))
    return np.asarray(drawn[drawn <= 1][:n])


def weighted_f1(wrong: np.ndarray, flags: np.ndarray) -> float:
    """F1 of the flagged and of the others, each weighted by how many there are."""
    found = 0.0
    for truth, said in ((wrong, flags), (~wrong, ~flags)):
        found += truth.mean() * 2 * (truth & said).sum() / max(int(truth.sum() + said.sum()), 1)
    return float(found)


def one(x: Tensor, y: np.ndarray, kind: str, rate: float, confusion: np.ndarray) -> dict[str, Any]:
    """All methods on one draw."""
    given = noisy(kind, rate, x.cpu().numpy(), y, confusion)
    wrong, began = given != y, time.perf_counter()
    found = assess(x, given, CLASSES, draws=2)
    seconds = time.perf_counter() - began
    z = (x - x.mean(0)) / (x.std(0) + 1e-6)
    p, _ = out_of_fold(z, torch.from_numpy(given).to(x.device), CLASSES, SEED)
    flags = {
        "provnet": found.mislabel >= 0.5,
        "confident learning, 5-fold": confident_learning(p, given),
        "outvoted by ten neighbours (SimiFeat)": neighbours_votes(x, given, CLASSES)[1],
        "none flagged": np.zeros(len(y), dtype=np.bool_),
    }
    scores = {name: 100 * weighted_f1(wrong, each) for name, each in flags.items()}
    return {"kind": kind, "rate": rate, "wrong": float(wrong.mean()), "weighted_f1": scores, "seconds": seconds}


def measured(x: Tensor, y: np.ndarray) -> dict[str, Any]:
    """All kinds at both rates, and the means over the rates beside what is published."""
    z = (x - x.mean(0)) / (x.std(0) + 1e-6)
    labels = torch.from_numpy(y).to(x.device)
    said = answers(z, softmax_regression(z, labels, CLASSES, 1e-4)).argmax(1).cpu().numpy()
    confusion = np.stack([np.bincount(said[y == c], minlength=CLASSES) / (y == c).sum() for c in range(CLASSES)])
    cells = []
    for kind in PUBLISHED:
        for rate in RATES[: 1 if kind == "class" else None]:
            cells.append(one(x, y, kind, rate, confusion))
            print(json.dumps(cells[-1]), flush=True)
    means = {}
    for kind, published in PUBLISHED.items():
        mine = [cell["weighted_f1"] for cell in cells if cell["kind"] == kind]
        here = {name: float(np.mean([each[name] for each in mine])) for name in mine[0]}
        means[kind] = {
            "here": here,
            "published": published,
            "ours_minus_best": here["provnet"] - max(published.values()),
        }
    return {"n": len(y), "classifier_of_class_noise": float((said == y).mean()), "means": means, "cells": cells}


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("features", type=Path)
    asked.add_argument("--samples", type=int)
    asked.add_argument("--out", type=Path, required=True)
    given = asked.parse_args()
    files = sorted(given.features.glob("*.npz")) if given.features.is_dir() else [given.features]
    held = [np.load(file, allow_pickle=False) for file in files]
    x, y = (np.concatenate([one[key] for one in held])[: given.samples] for key in ("a", "y"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = measured(torch.from_numpy(x.astype(np.float32)).to(device), y.astype(np.int64))
    given.out.write_text(json.dumps({"machine": machine(rates=False), "seed": SEED} | found, indent=1) + "\n")
    print(json.dumps(found["means"], indent=1))


if __name__ == "__main__":
    main()
