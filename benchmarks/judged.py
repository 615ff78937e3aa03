"""Labels of CIFAR-10 and MNIST test that people judged: wrong ones by our order, and by the probabilities of cleanlab.

    python benchmarks/judged.py FEATURES LABELS PROBABILITIES --out FILE

FEATURES holds cifar10_test.npz and mnist_test.npz, each with features `a` of the 10,000 test pictures, in their order,
that were not learned from the test labels, and these labels `y`: photo_sets.py makes those of CIFAR-10 (frozen
EfficientNet-Lite0), `--mnist DIR` those of MNIST (a network trained on the training digits of DIR). LABELS holds
label_errors_{cifar10,mnist}_test.csv (suspects with the votes of five people each) and cifar10h.csv (about 51 votes for
each picture). PROBABILITIES holds {cifar10,mnist}_test_set_pyx.npy of the public repository cleanlab/label-errors:
cleanlab chose the suspects by them, from networks that were trained on the training set and tuned out of fold.
Nothing is chosen here. Intervals are paired: suspects, or pictures, drawn again 1,000 times.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from label_baselines import average_precision, by_probabilities
from machine import machine

import provnet
from provnet.answers.attributor import Attributor
from provnet.tools.debug.assess import assess
from provnet.training.config import train_config
from provnet.training.fit import fit

DRAWS = 1000
SETS = ("cifar10", "mnist")


def digits(folder: str, samples: int | None, to: Path) -> None:
    """Features of MNIST's test digits from a network that saw the training digits alone."""
    data = provnet.open_data("mnist", data_dir=folder, limit=samples)
    test = provnet.open_data("mnist", data_dir=folder, split="test")
    run = fit(data, train_config("robust", network="class-independent", epochs=12))
    found = Attributor(run).each(test.inputs, lambda answered: {"a": answered.support_features.float().cpu()})
    np.savez(to, a=found["a"].numpy(), y=test.labels.numpy(), trained_on=len(data))


def rows_of(path: Path) -> list[dict[str, int]]:
    """A table of whole numbers."""
    with path.open(newline="") as file:
        return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]


def ranks(values: np.ndarray) -> np.ndarray:
    """(N,) ranks, equal values sharing their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[place])


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of ranks."""
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def paired(measure: Any, truth: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Both figures, their difference and its 95 % interval."""
    chance, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        rows = chance.integers(0, len(truth), len(truth))
        drawn.append(measure(truth[rows], ours[rows]) - measure(truth[rows], theirs[rows]))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    one, other = measure(truth, ours), measure(truth, theirs)
    return {"ours": one, "theirs": other, "difference": one - other, "low": low, "high": high, "n": len(truth)}


def judge(name: str, features: Path, labels: Path, probabilities: Path) -> dict[str, Any]:
    """One data set."""
    held = np.load(features / f"{name}_test.npz", allow_pickle=False)
    given = held["y"].astype(np.int64)
    p = np.load(probabilities / f"{name}_test_set_pyx.npy", allow_pickle=False)
    assert p.shape == (len(given), 10) and (p.argmax(1) == given).mean() > 0.9, "the probabilities are of others"
    found = assess(torch.from_numpy(held["a"].astype(np.float32)), given, 10)
    ours, theirs = found.as_mislabels().odds, by_probabilities(p, given)
    suspects = rows_of(labels / f"label_errors_{name}_test.csv")
    rows, wrong = np.array([one["index"] for one in suspects]), np.array([one["error"] == 1 for one in suspects])
    assert all(given[one["index"]] == one["given"] for one in suspects), "the labels are of other pictures"
    said = {
        "suspects": len(rows),
        "judged_wrong": int(wrong.sum()),
        "ap_among_suspects": {key: paired(average_precision, wrong, ours[rows], s[rows]) for key, s in theirs.items()},
        "ap_by_chance": float(wrong.mean()),
        "expected": vars(found.expected) | {"cannot_tell": found.doubt},
        "accuracy_out_of_fold": {"ours": found.accuracy, "theirs": float((p.argmax(1) == given).mean())},
    }
    if name == "cifar10":
        votes = np.array([[one[f"votes_{c}"] for c in range(10)] for one in rows_of(labels / "cifar10h.csv")])
        doubt = 1 - votes[np.arange(len(given)), given] / votes.sum(1)
        said["human_doubt"] = {key: paired(spearman, doubt, ours, score) for key, score in theirs.items()}
    return said


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("features", "labels", "probabilities"):
        asked.add_argument(name, type=Path)
    asked.add_argument("--mnist", metavar="DIR")
    asked.add_argument("--samples", type=int, help="training digits; all else")
    asked.add_argument("--out", type=Path, required=True)
    given = asked.parse_args()
    if given.mnist:
        digits(given.mnist, given.samples, given.features / "mnist_test.npz")
    found: dict[str, Any] = {"machine": machine(rates=False), "seed": 0}
    for name in SETS:
        if (given.features / f"{name}_test.npz").exists():
            found[name] = judge(name, given.features, given.labels, given.probabilities)
            print(name, json.dumps(found[name], indent=1), flush=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
