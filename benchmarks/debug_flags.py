"""Flagged labels and expected wrong ones of `provnet debug`, where features are good and where they are weak.

    python benchmarks/debug_flags.py --keep DIR [--data-dir DIR] [--seed 1] [--threads 1] [--only NAME ...]
        [--name after] [--beside before] [--out FILE.json]

Cases: embedded digits (4,000), and 5,000 samples each of MNIST, FashionMNIST and CIFAR-10 where `--data-dir` is given;
labels as they are, or some flipped, at random (`random`) or to the next class (`next`). Recipes: `own`, the narrow
backbone of docs/pretrained.md, which is weak (preset fast); `fast`, the default (10 epochs beyond the digits);
`robust`, the one that the documents recommend. Runs are kept in DIR and not trained again, and so are the scores, under
`--name`: the same command with the source of another version and another name scores the same runs by another rule, and
`--beside` then sets the two side by side. Intervals: Wilson for shares, DeLong for AUROC, paired bootstrap for AP.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from torch import nn

import provnet
from provnet.answers.metrics import auc, calibration_error, difference, with_interval
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.tools.debug.compute import FLAGGED, debug
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_paper.samples import wrong_labels

SAMPLES = {"embedded": 4_000, "mnist": 5_000, "fashion-mnist": 5_000, "cifar10": 5_000}
NONE, FEW, SOME, MANY = ("random", 0.0), ("random", 0.02), ("random", 0.05), ("random", 0.2)
NEXT, MANY_NEXT = ("next", 0.05), ("next", 0.2)
CASES = {
    ("embedded", "own"): (NONE, FEW, SOME, MANY, NEXT, MANY_NEXT),
    ("embedded", "fast"): (NONE, SOME, MANY, NEXT, MANY_NEXT),
    ("embedded", "robust"): (NONE, SOME),
    ("mnist", "own"): (NONE, SOME),
    ("mnist", "fast"): (NONE, SOME),
    ("mnist", "robust"): (SOME,),
    ("fashion-mnist", "own"): (NONE, SOME),
    ("fashion-mnist", "fast"): (NONE, SOME),
    ("fashion-mnist", "robust"): (SOME,),
    ("cifar10", "own"): (NONE, SOME),
}


def body(channels: int) -> nn.Module:
    """The backbone of the example in docs/pretrained.md."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
    )  # fmt: skip


def flipped(data: ImageData, how: str, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some labels changed, and (N,) which."""
    if share == 0:
        return data, np.zeros(len(data), dtype=np.bool_)
    changed, wrong = wrong_labels(data, share, seed)
    if how == "next":
        labels = np.where(wrong, (data.samples.labels + 1) % len(data.class_names), data.samples.labels)
        changed = replace(data, samples=replace(data.samples, labels=labels))
    return changed, wrong


def kept(folder: Path, data: ImageData, recipe: str, epochs: int | None, seed: int) -> Any:
    """The run in a folder; trained where there is none yet."""
    torch.manual_seed(seed)
    own = {"backbone": body(data.images.shape[1])} if recipe == "own" else {}
    if not (folder / "manifest.json").exists():
        how = {"network": "class-independent", "head": "exemplar"} if recipe == "robust" else own
        epochs = 12 if recipe == "robust" else epochs
        config = train_config("robust" if recipe == "robust" else "fast", epochs=epochs, seed=seed)
        fit(data, config.using(**how), RunOptions(out=folder, overwrite=True, device="cpu"))
    return provnet.load(folder, **own)


def figures(wrong: np.ndarray, odds: np.ndarray) -> dict[str, Any]:
    """What a rule says of labels of which (N,) are wrong."""
    score = 1 / (1 + np.exp(-np.clip(odds, -40, 40)))
    flags = score >= FLAGGED
    told: dict[str, Any] = {"flagged": int(flags.sum()), "expected": round(float(score.sum()), 1)}
    told["calibration_error"] = calibration_error(score, wrong)
    if wrong.any():
        told["right"] = wilson(int((flags & wrong).sum()), int(flags.sum())).to_json() if flags.any() else None
        told["found"] = wilson(int((flags & wrong).sum()), int(wrong.sum())).to_json()
        told["auroc"] = auc(wrong, odds).to_json()
        told["ap"] = with_interval(wrong, odds, draws=300).to_json()
    return told


def words(told: dict[str, Any]) -> str:
    """The figures in a line."""
    line = f"{told['flagged']:5d} flagged, {told['expected']:6.0f} expected"
    if "found" in told:
        right = f"{told['right']['value']:.1%}" if told["right"] else "-"
        line += f", {right} of the flags right, {told['found']['value']:.1%} of the wrong flagged"
        line += f", AUROC {told['auroc']['value']:.4f}, AP {told['ap']['value']:.4f}"
    return line


def case(given: argparse.Namespace, source: str, recipe: str, how: str, share: float) -> dict[str, Any] | None:
    """A run scored by this rule, and by the one beside; None where it is not asked for."""
    name = f"{source}-{recipe}-{how}-{share:g}-{given.seed}"
    if (source != "embedded" and given.data_dir is None) or (given.only and not any(w in name for w in given.only)):
        return None
    clean = provnet.open_data(
        source, limit=SAMPLES[source], **({} if source == "embedded" else {"data_dir": given.data_dir})
    )
    data, wrong = flipped(clean, how, share, given.seed)
    epochs = 10 if recipe == "fast" and source != "embedded" else None
    found = debug(kept(given.keep / name, data, recipe, epochs, given.seed), data).mislabels
    np.save(given.keep / f"{name}.{given.name}.npy", found.odds)
    row = {"data": source, "samples": len(data), "recipe": recipe, "flips": how, "wrong": int(wrong.sum())}
    row |= {"seed": given.seed, given.name: figures(wrong, found.odds)}
    print(f"{name} ({int(wrong.sum())} wrong)\n  {given.name:>8}: {words(row[given.name])}", flush=True)
    if given.beside:
        other = np.load(given.keep / f"{name}.{given.beside}.npy")
        row[given.beside] = figures(wrong, other)
        print(f"  {given.beside:>8}: {words(row[given.beside])}", flush=True)
        if wrong.any():
            apart = difference(wrong, found.odds, other, measure="average precision", draws=300)
            row["ap_difference"] = apart.to_json()
            ends = f"({apart.low:+.4f} to {apart.high:+.4f})"
            print(f"  AP, {given.name} minus {given.beside}: {apart.value:+.4f} {ends}", flush=True)
    return row


def main() -> None:
    """Train what is not kept, score, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="parts of the names of cases")
    parser.add_argument("--name", default="after")
    parser.add_argument("--beside")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.keep.mkdir(parents=True, exist_ok=True)
    about, rows = machine(rates=False), []
    for (source, recipe), flips in CASES.items():
        for how, share in flips:
            row = case(given, source, recipe, how, share)
            if row is None:
                continue
            rows.append(row)
            if given.out is not None:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
