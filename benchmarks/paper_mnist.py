"""Table 2, MNIST row: the paper's four settings with preset `paper`, one seed, beside the paper's numbers.

    python benchmarks/paper_mnist.py --data-dir DIR --out results.json [--only single-0 ...] [--preset fast]
        [--epochs 80] [--batch-size 128] [--runs FOLDER]

With --runs the runs are kept there, and an interrupted one goes on.

Prints one JSON line a setting: accuracies with n and Wilson interval, seconds, parameters, device. A cell counts as met
when it is at or above the paper's value less the half-width of its own Wilson interval, and as won when it is above.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import provnet
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.models.network import parameter_count
from provnet.training.config import train_config
from provnet.training.fit import fit

# name: (network, alpha, {figure: (paper's value, n)})
SETTINGS = {
    "class-conditional": ("class-conditional", 0.0, {"class_accuracy": 0.9908, "stage_2": 0.9816}),
    "class-independent": ("class-independent", 0.0, {"class_accuracy": 0.9941, "index_accuracy": 0.9941}),
    "single-0": ("single", 0.0, {"any_at_1": 0.846, "any_at_5": 0.98, "index_accuracy": 1.0}),
    "single-0.5": (
        "single",
        0.5,
        {"any_at_1": 0.988, "any_at_5": 0.997, "index_accuracy_sampled_targets": 0.496},
    ),
}


def measure(name: str, given: argparse.Namespace) -> dict:
    """Train and evaluate one setting."""
    network, alpha, paper = SETTINGS[name]
    train, test = (provnet.open_data("mnist", split=s, data_dir=given.data_dir) for s in ("train", "test"))
    began = time.perf_counter()
    config = train_config(given.preset, epochs=given.epochs, batch_size=given.batch_size, seed=given.seed)
    kept = {"out": given.runs / name, "resume": True, "checkpoint_seconds": 120.0} if given.runs else {}
    run = fit(train, config.using(network=network, alpha=alpha), RunOptions(progress=True, **kept))
    seconds = time.perf_counter() - began
    device = "cuda" if torch.cuda.is_available() else "cpu"
    run.network.to(device)
    began = time.perf_counter()
    figures = provnet.evaluate(run, test, train).to_json()
    cells = {}
    for figure, value in paper.items():
        got = figures[figure]
        interval = wilson(round(value * got["n"]), got["n"])
        least = value - (interval.high - interval.low) / 2
        cells[figure] = {
            "ours": got["value"],
            "paper": value,
            "met": got["value"] >= least,
            "won": got["value"] > value,
        }
    return {
        "setting": name,
        "preset": given.preset,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "seed": given.seed,
        "parameters": parameter_count(run.network),
        "train_seconds": round(seconds, 1),
        "evaluate_seconds": round(time.perf_counter() - began, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cells": cells,
        "figures": figures,
    }


def main() -> None:
    """Run the settings asked for and append them to the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    results = []
    for name in given.only:
        results.append(measure(name, given))
        print(json.dumps(results[-1]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
