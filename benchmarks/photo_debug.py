"""Wrong labels and foreign pictures among 728 photographs of pets: ours beside others, from the same frozen features.

    python benchmarks/photo_debug.py CACHE --out FILE [--draws 6]

CACHE is made by photo_sets.py. Tuned on Stanford Dogs and CIFAR-100; reported here. Each draw flips 10 % of the
labels to similar breeds and adds 4 % foreign pictures. cleanlab's scores and flags are made by published formulas; the
penalty of the logistic regression behind them is chosen by cross-validation in every draw.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import photo_sets
import torch
from label_baselines import (
    average_precision,
    by_probabilities,
    confident_learning,
    margin_over_course,
    neighbours_votes,
    out_of_fold,
    standard,
)
from machine import machine

from provnet.answers.metrics import roc
from provnet.tools.debug.assess import assess
from provnet.tools.debug.compute import certain

CERTAINTY, DRAWS = 0.9, 100
Scores = dict[str, dict[str, np.ndarray]]


def one(cache: Path, seed: int) -> tuple[photo_sets.Planted, Scores, dict[str, Any]]:
    """A draw: what is planted, scores of wrong labels, of any issue and of foreign pictures, and counts."""
    data, began = photo_sets.pets(cache, seed), time.process_time()
    x, labels = torch.from_numpy(data.x), torch.from_numpy(data.given)
    found = assess(x, data.given, data.classes, seed=seed)
    ours = time.process_time() - began
    z, issue = standard(x), found.mislabel + found.foreign
    p, penalty = out_of_fold(z, labels, data.classes, seed)
    votes, outvoted = neighbours_votes(x, data.given, data.classes)
    order = found.as_mislabels().odds
    others = by_probabilities(p, data.given) | {"votes of ten neighbours (SimiFeat)": votes}
    others["margin over the course (AUM), linear"] = margin_over_course(z, labels, data.classes)
    scores = {name: {"wrong": each, "any": each, "foreign": each} for name, each in others.items()}
    scores["provnet"] = {"wrong": order, "any": issue + 1e-9 * order, "foreign": found.foreign + 1e-9 * found.far}
    rows = certain(found.sure, found.foreign, CERTAINTY)
    anything = data.wrong | data.foreign
    flags = {
        "provnet": issue >= 0.5,
        "confident learning, 5-fold": confident_learning(p, data.given),
        "outvoted by ten neighbours": outvoted,
    }
    counts = {
        "expected": vars(found.expected) | {"wrong": int(data.wrong.sum()), "cannot_tell": found.doubt},
        "flags": {name: [int(f.sum()), int(anything[f].sum()), int(anything.sum())] for name, f in flags.items()},
        "corrections": {
            "changed": len(rows),
            "right": int((found.suggested[rows] == data.right[rows]).sum()),
            "broke": int((data.right[rows] == data.given[rows]).sum()),
            "wrong": int(data.wrong.sum()),
        },
        "penalty": penalty,
        "cpu_seconds": ours,
    }
    return data, scores, counts


def summary(drawn: list[tuple[photo_sets.Planted, Scores, dict[str, Any]]]) -> dict[str, Any]:
    """Means over the draws with their smallest and largest, and paired differences."""
    table: dict[str, Any] = {}
    for name in drawn[0][1]:
        row = {}
        for kind, measure in (("wrong", _ap), ("any", _ap), ("foreign", _auc)):
            values = [measure(_truth(data, kind), scores[name][kind]) for data, scores, _ in drawn]
            row[kind] = {"mean": float(np.mean(values)), "least": min(values), "most": max(values)}
        if name != "provnet":
            row |= {f"ours_minus_this_{kind}": paired(drawn, kind, name) for kind in ("wrong", "any")}
        table[name] = row
    flags = {}
    for name in drawn[0][2]["flags"]:
        flagged, hit, there = np.sum([counts["flags"][name] for _, _, counts in drawn], axis=0).tolist()
        flags[name] = {"precision": hit / max(flagged, 1), "recall": hit / there, "n": flagged}
    keys = drawn[0][2]["corrections"]
    corrections = {key: sum(counts["corrections"][key] for _, _, counts in drawn) for key in keys}
    return {"orders": table, "flags_any_issue": flags, "corrections": corrections, "draws": [c for _, _, c in drawn]}


def _truth(data: photo_sets.Planted, kind: str) -> np.ndarray:
    return {"wrong": data.wrong, "any": data.wrong | data.foreign, "foreign": data.foreign}[kind]


def _ap(truth: np.ndarray, score: np.ndarray) -> float:
    return average_precision(truth, score)


def _auc(truth: np.ndarray, score: np.ndarray) -> float:
    return roc(truth, score).auc


def paired(drawn: list[tuple[photo_sets.Planted, Scores, dict[str, Any]]], kind: str, other: str) -> dict[str, Any]:
    """Mean difference over the draws; intervals over samples (drawn again) and over draws."""
    chance, found = np.random.default_rng(0), np.zeros((len(drawn), DRAWS + 1))
    for i, (data, scores, _) in enumerate(drawn):
        truth, ours, theirs = _truth(data, kind), scores["provnet"][kind], scores[other][kind]
        for j in range(DRAWS + 1):
            rows = chance.integers(0, len(truth), len(truth)) if j else np.arange(len(truth))
            found[i, j] = average_precision(truth[rows], ours[rows]) - average_precision(truth[rows], theirs[rows])
    mean = float(found[:, 0].mean())
    half = 1.96 * float(found[:, 0].std(ddof=1)) / np.sqrt(len(drawn)) if len(drawn) > 1 else 0.0
    low, high = np.quantile(found[:, 1:].mean(0), [0.025, 0.975]).tolist()
    return {"value": mean, "over_samples": [low, high], "over_draws": [mean - half, mean + half]}


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("cache", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--draws", type=int, default=6)
    given = asked.parse_args()
    drawn = []
    for seed in range(given.draws):
        drawn.append(one(given.cache, seed))
        print(seed, json.dumps(drawn[-1][2]), flush=True)
    found = summary(drawn)
    about = {"machine": machine(rates=False), "n": len(drawn[0][0].given)}
    given.out.write_text(json.dumps(about | found, indent=1) + "\n")
    print(json.dumps({key: found[key] for key in ("orders", "flags_any_issue", "corrections")}, indent=1))


if __name__ == "__main__":
    main()
