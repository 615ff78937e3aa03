"""Preset `robust` on whole data sets, one network each, against the bars that we set ourselves; table and JSON.

    python benchmarks/robust.py --data-dir DIR [--data mnist cifar10] [--seeds 0] [--out benchmarks/results/robust.json]
        [--limit N] [--epochs N] [--runs DIR]

The clock runs for `fit` as a whole: training, keys, calibration. Unseen samples: class by the class branch, class of
the best match by plain scores and by joint weights, and whether one of five is right. Training samples look for
themselves among all, as they are and as noisy, shifted, JPEG-coded and (photos) mirrored copies.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  its first import from a slow disk is not training
import numpy as np
import torch
from machine import machine

from provnet import open_data
from provnet.answers.attributor import explain
from provnet.answers.metrics import any_at_k, index_hit
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit

BARS = {
    "mnist": {
        "class": 0.996,
        "exact": 0.9999,
        "noise": 0.999,
        "shift": 0.999,
        "plain_at_1": 0.975,
        "joint_at_1": 0.995,
        "seconds": 30.0,
    },
    "cifar10": {
        "class": 0.94,
        "exact": 0.9999,
        "noise": 0.999,
        "shift": 0.99,
        "flip": 0.995,
        "plain_at_1": 0.75,
        "joint_at_1": 0.93,
        "plain_at_5": 0.93,
        "seconds": 180.0,
    },
}


def rate(hits: np.ndarray) -> dict[str, Any]:
    """A share with n and interval."""
    return wilson(int(hits.sum()), len(hits)).to_json()


def figures(run: Run, train: ImageData, test: ImageData) -> dict[str, Any]:
    """What the network says of unseen samples and of its own."""
    truth, own = test.samples.labels, np.arange(len(train))
    plain = explain(run, test.images, batch_size=1024)
    joint = explain(run, test.images, batch_size=1024, weights="joint")
    found = {"class": rate(plain.predicted == truth)}
    for name, told in (("plain", plain), ("joint", joint)):
        found |= {f"{name}_at_{k}": rate(any_at_k(told.label, truth, k)) for k in (1, 5)}
    copies = {"exact": train.images, "noise": add_noise(train.images, 0), "shift": shift(train.images, 0)}
    copies["jpeg"] = jpeg(train.images)
    if train.shape[0] == 3:
        copies["flip"] = train.images.flip(3)
    for name, copy in copies.items():
        found[name] = rate(index_hit(explain(run, copy, k=1, batch_size=1024).index, own))
    return found


def measure(name: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train one network and ask it everything."""
    train, test = (open_data(name, split=s, data_dir=given.data_dir, limit=given.limit) for s in ("train", "test"))
    config = train_config("robust", seed=seed, epochs=given.epochs)
    began = time.perf_counter()
    folder = None if given.runs is None else given.runs / f"robust-{name}"
    run = fit(train, config.using(network="class-independent"), RunOptions(out=folder, progress=True))
    seconds = time.perf_counter() - began
    device = "cuda" if torch.cuda.is_available() else "cpu"
    run.network.to(device)
    found = {"seconds": round(seconds, 1), **figures(run, train, test)}
    bars = BARS.get(name, {})
    met = {
        bar: found[bar] <= least if bar == "seconds" else found[bar]["value"] >= least for bar, least in bars.items()
    }
    settings = run.config.training["training"]
    return {"data": name, "n": len(train), "seed": seed, **found, "bars": bars, "met": met, "training": settings}


def show(row: dict[str, Any]) -> None:
    """A line a figure."""
    print(f"{row['data']}, {row['n']:,} samples, seed {row['seed']}: {row['seconds']} s")
    for name, found in row.items():
        if isinstance(found, dict) and "low" in found:
            bar = row["bars"].get(name)
            note = "" if bar is None else f"  bar {bar:.2%} {'met' if row['met'][name] else 'MISSED'}"
            interval = f"({found['low']:.2%} to {found['high']:.2%}, n {found['n']:,})"
            print(f"  {name:<12}{found['value']:>8.2%}  {interval}{note}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--data", nargs="+", default=["mnist", "cifar10"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--runs", type=Path, default=None, help="keep the runs here")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    report: dict[str, Any] = {**machine(), "rows": []}
    for name in given.data:
        for seed in given.seeds:
            row = measure(name, seed, given)
            show(row)
            report["rows"].append(row)
            if given.out is not None:
                given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
