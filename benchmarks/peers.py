"""Ours beside other ways to name training samples: nearest neighbours, Captum, TRAK, kronfluence, dattri, cleanlab.

    python benchmarks/peers.py --data-dir DIR [--seed 0] [--limit 5000] [--out benchmarks/results/peers.json]
    python benchmarks/peers.py --page      # docs/peers.md and its picture from the JSON, nothing is measured

One run on one machine, one thread: class of the samples named for unseen digits, training digits found again, times,
wrong labels, and the linear datamodeling score (peers_lds.py). The gradient methods attribute one small plain CNN
(peers_cnn.py) and are asked about the class that it predicts, as queries carry no label. The other libraries are no
dependencies; the row of one that is not there says so: pip install -c constraints.txt captum traker kronfluence dattri
cleanlab.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from knn import milliseconds
from machine import machine
from peers_cnn import Subject, normaliser, train_cnn
from peers_lds import Say, averaged, foretold, halves, retrained, spearman
from peers_methods import PEERS, Method
from peers_ours import nearest_features, nearest_of_ours, nearest_pixels, our_logarithms, ours
from peers_page import draw, results_table, rewrite
from peers_wrong import wrong_labels

from provnet import open_data
from provnet.answers.attributor import explain
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import add_noise, shift
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit

ROOT = Path(__file__).resolve().parents[1]
OURS = "provnet, plain weights"  # what ratios of times are of
PATIENCE = 10.0  # seconds of trying, for a time


@dataclass(frozen=True, eq=False)
class Questions:
    """What every method is asked."""

    train: ImageData
    test: ImageData
    own: np.ndarray  # training samples that shall find themselves
    copies: dict[str, torch.Tensor]
    foretelling: torch.Tensor  # unseen pictures whose margins are to be foretold


def questions(given: argparse.Namespace) -> Questions:
    """Training digits, unseen ones, and copies of training digits."""
    train = open_data("mnist", data_dir=given.data_dir, limit=given.limit)
    test = open_data("mnist", split="test", data_dir=given.data_dir, limit=given.unseen)
    own = np.linspace(0, len(train) - 1, min(1000, len(train))).astype(np.int64)
    some = train.images[own]
    copies = {"exact": some, "noise": add_noise(some, given.seed), "shift": shift(some, given.seed)}
    rows = np.linspace(0, len(test) - 1, min(given.queries, len(test))).astype(np.int64)
    return Questions(train, test, own, copies, test.images[rows])


def asked(method: Method, about: Questions) -> dict[str, Any]:
    """What a method answers, and how long it takes."""
    train, test = about.train.samples.labels, about.test.samples.labels
    began = time.perf_counter()
    method.best(about.test.images[:1])
    once = time.perf_counter() - began
    labels = train[method.best(about.test.images)]
    row: dict[str, Any] = {
        "class_top_1": wilson(int((labels[:, 0] == test).sum()), len(test)).to_json(),
        "class_top_5": wilson(int((labels == test[:, None]).sum()), labels.size).to_json(),
    }
    for kind, copy in about.copies.items():
        row[kind] = wilson(int((method.best(copy)[:, 0] == about.own).sum()), len(about.own)).to_json()
    tries = int(np.clip(PATIENCE / once, 3, 50))
    row["ms_1"] = milliseconds(method.best, about.test.images, 1, tries)
    row["ms_256"] = milliseconds(method.best, about.test.images, min(256, len(test)), 5)
    return row


def peer(name: str, subject: Callable[[int], Subject], use: Callable[[Method], Any]) -> dict[str, Any]:
    """One of the other libraries: version, seconds to prepare, and what `use` makes of it; or that it is missing."""
    package, module, networks, make = PEERS[name]
    try:
        importlib.import_module(module)
        found = version(package)
    except (ImportError, PackageNotFoundError):
        return {"package": package, "not_installed": package}
    taken = subject(networks)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        method = make(taken, Path(folder))
        prepared = time.perf_counter() - began
        train = sum(each.seconds for each in taken.trained)
        return {
            "package": package,
            "version": found,
            "train_seconds": train,
            "prepare_seconds": prepared,
            **use(method),
        }


def own_methods(run: Run, seconds: float, subject: Subject, data: ImageData) -> dict[str, tuple[float, Any]]:
    """Ours and nearest neighbours: seconds of training, and the function that prepares."""
    return {
        OURS: (seconds, partial(ours, run, "plain")),
        "provnet, joint weights": (seconds, partial(ours, run, "joint")),
        "kNN on features of provnet's network": (seconds, partial(nearest_of_ours, run, data.images)),
        "kNN on features of the plain CNN": (subject.trained[0].seconds, partial(nearest_features, subject)),
        "kNN on pixels": (0.0, partial(nearest_pixels, data.images, data.samples.labels)),
    }


def measure(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Train, then ask every method the same questions."""
    about = questions(given)
    data, labels = about.train, about.train.labels
    prepared = normaliser(data.images)
    inputs = prepared(data.images)
    say("training provnet")
    began = time.perf_counter()
    config = train_config("robust", epochs=given.epochs, seed=given.seed)
    run = fit(data, config.using(network="class-independent", head="exemplar"), RunOptions(progress=True))
    seconds = time.perf_counter() - began
    say(f"{seconds:.0f} s; training three plain CNNs")
    starts = range(given.seed, given.seed + 3)
    nets = [train_cnn(inputs, labels, len(data.class_names), epochs=given.cnn_epochs, seed=each) for each in starts]

    def subject(networks: int) -> Subject:
        return Subject(inputs, labels, nets[:networks], prepared, given.seed)

    foretelling: dict[str, np.ndarray] = {}

    def use(name: str, method: Method) -> dict[str, Any]:
        foretelling[name] = method.scores(about.foretelling)
        return asked(method, about)

    rows: dict[str, Any] = {}
    for name, (train, make) in own_methods(run, seconds, subject(1), data).items():
        say(name)
        began = time.perf_counter()
        method = make()
        times = {"train_seconds": train, "prepare_seconds": time.perf_counter() - began}
        rows[name] = times | use(name, method)
    foretelling["provnet, before the softmax"] = our_logarithms(run).scores(about.foretelling)
    for name in PEERS:
        say(name)
        rows[name] = peer(name, subject, partial(use, name))
    for row in rows.values():
        if "ms_1" in row:
            row["ours_over"] = {part: total(rows[OURS], part) / total(row, part) for part in ("fit", "ms_1", "ms_256")}
    say("training on halves of the data")
    queries, classes = subject(1).queries(about.foretelling)
    subsets = halves(len(data), given.subsets, given.seed)
    actual = retrained(subject(1), subsets, queries, classes, epochs=given.cnn_epochs, seed=given.seed, say=say)
    mean = actual.mean(0)
    correlations = {name: spearman(foretold(score, subsets), mean) for name, score in foretelling.items()}
    predicted = {
        "provnet": explain(run, about.test.images, k=1).predicted,
        "cnn": subject(1).queries(about.test.images)[1].numpy(),
    }
    right = {name: int((found == about.test.samples.labels).sum()) for name, found in predicted.items()}
    return {
        "seed": given.seed,
        "samples": len(data),
        "test": len(about.test),
        "provnet_epochs": len(run.history) if run.history is not None else None,
        "cnn": {"epochs": given.cnn_epochs, "parameters": sum(each.numel() for each in nets[0].net.parameters())},
        "class_accuracy": {name: wilson(found, len(about.test)).to_json() for name, found in right.items()},
        "methods": rows,
        "lds": {
            "subsets": len(subsets),
            "trainings_each": len(actual),
            "queries": len(queries),
            "one_training_against_the_other": averaged(spearman(*actual), given.seed),
            "methods": {name: averaged(each, given.seed) for name, each in correlations.items()},
        },
        "wrong_labels": wrong_labels(data, peer, given, say),
    }


def with_influence(path: Path) -> dict[str, Any]:
    """What this script measured, and what `influence/lds.py` did."""
    found = json.loads((path.parent / "influence-lds.json").read_text("utf-8"))
    return {**json.loads(path.read_text("utf-8")), "influence": found}


def total(row: dict[str, Any], part: str) -> float:
    """A time of a method; `fit` is training and preparing."""
    return float(row["train_seconds"] + row["prepare_seconds"] if part == "fit" else row[part])


def main() -> None:
    """Measure and write, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=5000)
    parser.add_argument("--unseen", type=int, default=1000)
    parser.add_argument("--epochs", type=int, help="of provnet's networks; the preset's and the recipe's without it")
    parser.add_argument("--cnn-epochs", type=int, default=12)
    parser.add_argument("--subsets", type=int, default=60)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/peers.json")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.page:
        result = with_influence(given.out)
        rewrite(ROOT / "docs/peers.md", result)
        draw(result, ROOT / "docs/images/peers.png")
        return
    torch.set_num_threads(1)
    began = time.perf_counter()
    about = machine(rates=False)
    result = measure(given, lambda words: print(f"{time.perf_counter() - began:7.1f} s  {words}", flush=True))
    result = {"machine": about, "seconds": time.perf_counter() - began, **result}
    given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(results_table(result))


if __name__ == "__main__":
    main()
