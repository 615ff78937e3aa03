"""What `provnet fix` is worth on labels that people gave (CIFAR-10N): accuracy on right test labels before and after.

    python benchmarks/fix_accuracy.py FOLDER --out FILE [--labels worst] [--samples N] [--backbone residual]

FOLDER holds the files that cifar10n.py names. A network is trained from scratch on the labels as they are; frozen
features of EfficientNet-Lite0 say which are wrong; `fix` corrects and leaves out by its usual settings and trains the
same network again by the same seed. Beside it: the same network on the right labels. The settings of `fix` were chosen
on planted flips and on labels drawn from CIFAR-10H; nothing is chosen here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cifar10n import HALF, unpacked
from machine import machine

import provnet
from provnet.answers.attributor import explain
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.models.pretrained import LITE0
from provnet.tools.debug.compute import debug
from provnet.tools.debug.fix import fix
from provnet.training.config import train_config
from provnet.training.fit import fit


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--labels", default="worst")
    asked.add_argument("--samples", type=int, default=50_000)
    asked.add_argument("--backbone", default="residual")
    asked.add_argument("--epochs", type=int)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    halves = ("train_a", "train_b")[: 1 if given.samples <= HALF else 2]
    parts = [unpacked(given.folder / f"cifar10_{name}.npz") for name in halves]
    pictures, right = (np.concatenate(each)[: given.samples] for each in zip(*parts, strict=True))
    shown, answer = (each[: max(given.samples // 5, 100)] for each in unpacked(given.folder / "cifar10_test.npz"))
    labels = np.load(given.folder / "cifar10n_train.npz", allow_pickle=False)[given.labels][: len(right)].astype(
        np.int64
    )
    recipe = train_config(backbone=given.backbone, epochs=given.epochs, seed=given.seed)
    found: dict[str, Any] = {"machine": machine(rates=False), "labels": given.labels, "n": len(right)}
    found |= {"wrong": float((labels != right).mean()), "seed": given.seed, "backbone": given.backbone}
    with tempfile.TemporaryDirectory() as name:
        sets = {"given": labels, "right": right}
        for what, these in sets.items():
            held = {"images": pictures, "labels": these, "test_images": shown, "test_labels": answer}
            np.savez(Path(name) / f"{what}.npz", **held)
        data, test = (provnet.open_data(Path(name) / "given.npz", split=split) for split in ("train", "test"))
        began = time.perf_counter()
        looked = debug(fit(data, train_config(backbone=LITE0, seed=given.seed), RunOptions()))
        found["seconds_to_find"] = time.perf_counter() - began
        before = fit(data, recipe, RunOptions(), test=test)
        made = fix(before, found=looked)
        best = fit(provnet.open_data(Path(name) / "right.npz"), recipe, RunOptions())
        said = explain(best, test.images, k=1, warn=False).predicted
    places = {one: row for row, one in enumerate(data.samples.sample_ids)}
    relabelled = [(places[one.sample_id], int(one.new_label)) for one in made.changes if one.kind == "relabel"]
    dropped = np.array([places[one.sample_id] for one in made.changes if one.kind == "drop"], dtype=np.int64)
    kept, after = np.ones(len(right), dtype=np.bool_), labels.copy()
    for row, label in relabelled:
        after[row] = label
    kept[dropped] = False
    about = made.to_json()
    found |= {key: about[key] for key in ("before", "after", "difference", "relabelled", "dropped")}
    found["labels_right"] = {"before": float((labels == right).mean()), "after": float((after == right)[kept].mean())}
    found["on_right_labels"] = wilson(int((said == test.samples.labels).sum()), len(said)).to_json()
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
