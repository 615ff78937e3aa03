"""Abstention by data set: which strangers the default network calls unsupported, and how many of its own pictures.

    python benchmarks/abstain.py --data-dir DIR [--data mnist cifar10-grey ...] [--sizes 500 1000]
        [--heads default keys] [--seeds 0 1 2] [--out FILE.json]

DIR holds the data sets under their usual names, and `pets` as class folders under train and test. From the first 5,000
training pictures (taken evenly from the classes) a seed draws as many as are wanted, or all there are. The network is
trained without the last class. Then it is shown 1,000 unseen pictures of the other classes, those of the class left
out, 300 of each kind of made strangers, and 300 of another data set in the same shape. Rates of several seeds are
pooled; intervals: Wilson. What FILE holds already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from torch import Tensor

from provnet import explain, open_data
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.tools.trust.compute import strangers
from provnet.training.config import train_config
from provnet.training.fit import fit

POOL, UNSEEN, MADE = 5_000, 1_000, 300
SETS: dict[str, dict[str, Any]] = {
    "digits": {"source": "digits", "foreign": "fashion-mnist"},
    "fashion-mnist": {"source": "fashion-mnist", "foreign": "mnist"},
    "mnist": {"source": "mnist", "foreign": "fashion-mnist"},
    "cifar10-grey": {"source": "cifar10", "mode": "grey", "foreign": "pets"},
    "pets-grey": {"source": "pets", "size": 32, "mode": "grey", "foreign": "cifar10"},
    "cifar10": {"source": "cifar10", "foreign": "pets"},  # if asked for: its network takes minutes on a CPU
}
CHOSEN_ON = ("digits", "fashion-mnist")  # what support measures, and its share of the level, was chosen on these
HEADS = {"default": {}, "keys": {"network": "class-independent", "head": "exemplar"}}
COLUMNS = {
    "own": "own", "right": "own, right", "noise": "uniform noise", "gaussian": "Gaussian noise",
    "shuffled": "shuffled", "constant": "one colour", "letters": "letters", "shapes": "shapes",
    "foreign": "other data", "left out": "left-out class",
}  # fmt: skip


def opened(source: str, split: str, given: argparse.Namespace, **how: Any) -> ImageData:
    """A data set by its name, or the folder of that name."""
    folder = given.data_dir / source / split
    if folder.is_dir():
        return open_data(folder, limit=POOL, **how)
    return open_data(source, split=split, data_dir=given.data_dir, limit=POOL, **how)


def made(images: Tensor, unseen: Tensor, seed: int) -> dict[str, Tensor]:
    """Strangers by kind, in the shape of the pictures; the first of one colour are black and white."""
    chance = np.random.default_rng([seed, 1])
    values = images.numpy()
    shape = (MADE, *values.shape[1:])
    gaussian = chance.normal(values.mean((0, 2, 3), keepdims=True), values.std((0, 2, 3), keepdims=True), shape)
    shuffled = chance.permuted(unseen[:MADE].numpy().reshape(min(MADE, len(unseen)), shape[1], -1), axis=2)
    return {
        **strangers(images, MADE, seed),
        "gaussian": torch.from_numpy(gaussian.clip(0, 255).round().astype(np.uint8)),
        "shuffled": torch.from_numpy(shuffled.reshape(-1, *shape[1:])),
    }


def measure(name: str, size: int, head: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train once; counts of unsupported pictures of each kind."""
    how = {key: value for key, value in SETS[name].items() if key in ("size", "mode")}
    train, test = (opened(SETS[name]["source"], split, given, **how) for split in ("train", "test"))
    last = len(train.class_names) - 1
    chance = np.random.default_rng([seed, 0])
    rows = chance.permutation(np.flatnonzero(train.samples.labels != last))[:size]
    data = train.select(np.sort(rows))
    began = time.perf_counter()
    run = fit(data, train_config("fast", seed=seed, **HEADS[head]), RunOptions(device="cpu"))
    seconds = round(time.perf_counter() - began, 1)
    own = test.select(chance.permutation(np.flatnonzero(test.samples.labels != last))[:UNSEEN])
    _, channels, height, width = data.images.shape
    foreign = opened(
        SETS[name]["foreign"], "test", given, size=(height, width), mode="grey" if channels == 1 else "rgb"
    )
    sets = made(data.images, own.images, seed)
    sets["foreign"] = foreign.images[torch.from_numpy(chance.permutation(len(foreign))[:MADE])]
    sets["left out"] = test.select(np.flatnonzero(test.samples.labels == last)).images
    found = explain(run, own, k=1)
    right = found.predicted == own.samples.labels
    away = {"own": ~found.supported, "right": ~found.supported[right]}
    away |= {kind: ~explain(run, images, k=1, warn=False).supported for kind, images in sets.items()}
    return {
        "data": name,
        "size": size,
        "samples": len(data),
        "head": head,
        "seed": seed,
        "backbone": run.config.network.backbone,
        "accuracy": wilson(int(right.sum()), len(right)).to_json(),
        "unsupported": {kind: [int(one.sum()), len(one)] for kind, one in away.items()},
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Percentages called unsupported, pooled over seeds, as Markdown."""
    lines = [f"| data, network, samples, seeds | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["backbone"], row["head"], row["samples"]), []).append(row)
    for (name, backbone, head, samples), some in cells.items():
        words = []
        for kind in COLUMNS:
            counts = np.sum([row["unsupported"][kind] for row in some], axis=0)
            rate = wilson(int(counts[0]), int(counts[1]))
            words.append(f"{100 * rate.value:.1f} ({100 * rate.low:.1f}–{100 * rate.high:.1f})")
        network = backbone if head == "default" else f"{backbone}, {head}"
        lines.append(f"| {name}, {network}, {samples:,}, {len(some)} | {' | '.join(words)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=list(SETS)[:-1], choices=list(SETS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--heads", nargs="+", default=["default"], choices=list(HEADS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    about = machine(rates=False)
    rows = json.loads(given.out.read_text("utf-8"))["rows"] if given.out is not None and given.out.is_file() else []
    known = {(row["data"], row["head"], row["size"], row["seed"]) for row in rows}
    for name, head, size, seed in product(given.data, given.heads, sorted(given.sizes), given.seeds):
        if (name, head, size, seed) in known:
            continue
        rows.append(measure(name, size, head, seed, given))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        if given.out is not None:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            written = {"machine": about, "chosen_on": CHOSEN_ON, "rows": rows}
            given.out.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
