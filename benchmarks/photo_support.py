"""Support of answers behind frozen features: right against wrong, and foreign pictures against known ones.

    python benchmarks/photo_support.py CACHE --out FILE [--draws 6]

10 % of the training labels are wrong. The answers are those of a logistic regression on the same features, whose plain
confidence is compared with. How distances from known samples count was chosen on other draws of dogs (20 of 120 breeds,
64 pixels). CACHE is made by photo_sets.py; foreign pictures are others than those among the samples.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import photo_sets
import torch
from label_baselines import answers, out_of_fold, softmax_regression
from machine import machine

from provnet.answers.metrics import roc
from provnet.heads.support import Support, measure_held_out, normalise_features
from provnet.training.calibration import RIGHT, evidence_of

BOOTSTRAP = 200


def one(cache: Path, name: str, seed: int) -> dict[str, Any]:
    """One draw of one set."""
    if name == "pets":
        data, (x, truth) = photo_sets.pets(cache, seed), photo_sets.pets_test(cache)
    elif name == "dogs":
        data, (x, truth) = photo_sets.dogs(cache, seed, 0.1)
    else:
        data, held = photo_sets.cifar10(cache, seed, 0.1), photo_sets.read(cache, "cifar10_test")
        rows = np.random.default_rng(3000 + seed).permutation(len(held["y"]))[-2000:]
        x, truth = held["a"][rows].astype(np.float32), held["y"][rows].astype(np.int64)
    strangers = photo_sets.read(cache, "foreign")[photo_sets.FOREIGN[1 + seed % 2 if name == "cifar10" else seed % 3]][
        -160:
    ]
    given, labels, test = torch.from_numpy(data.x), torch.from_numpy(data.given), torch.from_numpy(x)
    other, classes = torch.from_numpy(strangers.astype(np.float32)), data.classes
    mean, spread = given.mean(0), given.std(0) + 1e-6
    z = (given - mean) / spread
    _, penalty = out_of_fold(z, labels, classes, seed)
    weight = softmax_regression(z, labels, classes, penalty)
    p, far = (answers((each - mean) / spread, weight) for each in (test, other))
    torch.manual_seed(seed)
    support, seen = Support(classes, given.shape[1]), normalise_features(given)
    support.fit(seen, labels)
    distance = -measure_held_out(seen, labels, seen, labels, torch.arange(len(labels)), classes)[0]
    support.evidence, _ = evidence_of(seen, labels, classes, distance)
    ours, strange = support(test, p.argmax(1)).numpy(), support(other, far.argmax(1)).numpy()
    right, confidence = p.argmax(1).numpy() == truth, p.amax(1).numpy()
    supported = ours >= RIGHT
    chance, drawn = np.random.default_rng(seed), []
    for _ in range(BOOTSTRAP):
        rows = chance.integers(0, len(right), len(right))
        drawn.append(roc(right[rows], ours[rows]).auc - roc(right[rows], confidence[rows]).auc)
    kinds = np.append(np.ones(len(ours), dtype=np.bool_), np.zeros(len(strange), dtype=np.bool_))
    return {
        "set": name,
        "n": len(right),
        "accuracy": float(right.mean()),
        "auroc_support": roc(right, ours).auc,
        "auroc_confidence": roc(right, confidence).auc,
        "difference": [float(np.mean(drawn)), *np.quantile(drawn, [0.025, 0.975]).tolist()],
        "supported": float(supported.mean()),
        "accuracy_if_supported": float(right[supported].mean()) if supported.any() else None,
        "accuracy_if_not": float(right[~supported].mean()) if (~supported).any() else None,
        "mean_support": float(ours.mean()),
        "auroc_known_against_foreign": roc(kinds, np.append(ours, strange)).auc,
        "foreign_supported": float((strange >= RIGHT).mean()),
    }


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("cache", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--draws", type=int, default=6)
    given = asked.parse_args()
    rows = []
    for number in range(given.draws):
        for name in ("pets", "dogs", "cifar10"):
            rows.append(one(given.cache, name, number))
            print(json.dumps(rows[-1]), flush=True)
    given.out.write_text(json.dumps({"machine": machine(rates=False), "draws": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
