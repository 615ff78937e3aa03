"""The linear datamodeling score on provnet's own network: its weights, beside TRAK and EK-FAC on its class branch.

    python benchmarks/own_lds.py --data-dir DIR [--seed 1] [--limit 5000] [--out benchmarks/results/own_lds.json]

`peers.py` asks every method about a plain CNN, which provnet has never seen. Here one provenance network is trained,
and trained again on random halves of the data; methods foretell the margin of its class branch on unseen digits.
Gradient methods are given that branch, from the pictures to the classes, as it is in evaluation mode. One thread; the
row of a library that is not there says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from copy import deepcopy
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from peers_cnn import Subject, Trained, logits, margins
from peers_lds import Say, averaged, foretold, halves, spearman
from peers_methods import PEERS
from peers_ours import nearest_of_ours, nearest_pixels, our_logarithms, ours
from torch import Tensor, nn

from provnet import open_data
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit

ROOT = Path(__file__).resolve().parents[1]
GRADIENTS = ("TRAK, one network", "kronfluence EK-FAC")  # which take any layers


def trained(data: ImageData, seed: int, epochs: int | None) -> Run:
    """Two branches, a key for every sample, preset `fast`."""
    changes = {} if epochs is None else {"epochs": epochs}
    config = train_config("fast", seed=seed, **changes)
    return fit(data, config.using(network="class-independent", head="exemplar"), RunOptions(device="cpu"))


def class_branch(run: Run) -> nn.Module:
    """From normalised pictures to logits; linear layers as plain ones, since kronfluence knows no others."""
    branch = deepcopy(nn.Sequential(run.network.backbone, run.network.task_head)).eval()
    for each in branch.modules():
        if isinstance(each, nn.Linear):
            each.__class__ = nn.Linear
    return branch


def subject_of(run: Run, data: ImageData, seed: int) -> Subject:
    """The class branch in the form that the libraries are given."""
    normalise = run.network.normalise
    branch: Any = class_branch(run)
    inputs, labels = normalise(data.images), torch.from_numpy(data.samples.labels)
    return Subject(inputs, labels, [Trained(branch, [], np.zeros((0, len(data))), 0.0)], normalise, seed)


def retrained(
    data: ImageData, subsets: np.ndarray, images: Tensor, classes: Tensor, given: argparse.Namespace, say: Say
) -> np.ndarray:
    """(2, Q, S) margins of the class branch after training on each half, twice from other initial weights."""
    found = np.empty((2, len(images), len(subsets)))
    for number, subset in enumerate(subsets):
        half = data.select(torch.from_numpy(np.flatnonzero(subset)))
        for turn in range(2):
            run = trained(half, given.seed + 1000 + 2 * number + turn, given.epochs)
            scores = logits(class_branch(run), run.network.normalise(images))
            found[turn, :, number] = margins(scores, classes).numpy()
        if number % 5 == 4:
            say(f"{number + 1} of {len(subsets)} halves trained twice")
    return found


def measure(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Train, have every method score all samples for the same digits, train on halves, compare."""
    data = open_data("mnist", data_dir=given.data_dir, limit=given.limit)
    test = open_data("mnist", split="test", data_dir=given.data_dir, limit=1000)
    images = test.images[np.linspace(0, len(test) - 1, given.queries).astype(np.int64)]
    run = trained(data, given.seed, given.epochs)
    subject = subject_of(run, data, given.seed)
    say("trained")
    makers = {
        "provnet, plain weights": partial(ours, run, "plain"),
        "provnet, joint weights": partial(ours, run, "joint"),
        "provnet, before the softmax": partial(our_logarithms, run),
        "kNN on features of provnet's network": partial(nearest_of_ours, run, data.images),
        "kNN on pixels": partial(nearest_pixels, data.images, data.samples.labels),
    }
    scores = {name: make().scores(images) for name, make in makers.items()}
    packages: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in GRADIENTS:
        package, module, _, method = PEERS[name]
        try:
            importlib.import_module(module)
            packages[package] = version(package)
        except (ImportError, PackageNotFoundError):
            missing[name] = package
            continue
        with tempfile.TemporaryDirectory() as folder:
            scores[name] = method(subject, Path(folder)).scores(images)
        say(name)
    inputs, classes = subject.queries(images)
    right = int((logits(subject.net, subject.prepared(test.images)).argmax(1).numpy() == test.samples.labels).sum())
    subsets = halves(len(data), given.subsets, given.seed)
    actual = retrained(data, subsets, images, classes, given, say)
    mean = actual.mean(0)
    return {
        "seed": given.seed,
        "samples": len(data),
        "epochs": len(run.history) if run.history is not None else None,
        "class_accuracy": wilson(right, len(test)).to_json(),
        "packages": packages,
        "missing": missing,
        "subsets": len(subsets),
        "queries": len(inputs),
        "one_training_against_the_other": averaged(spearman(*actual), given.seed),
        "methods": {
            name: averaged(spearman(foretold(each, subsets), mean), given.seed) for name, each in scores.items()
        },
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=5000)
    parser.add_argument("--epochs", type=int, help="the preset's without it")
    parser.add_argument("--subsets", type=int, default=60)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/own_lds.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    began, about = time.perf_counter(), machine(rates=False)
    result = measure(given, lambda words: print(f"{time.perf_counter() - began:7.1f} s  {words}", flush=True))
    result = {"machine": about, "seconds": time.perf_counter() - began, **result}
    given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result["methods"], indent=1))


if __name__ == "__main__":
    main()
