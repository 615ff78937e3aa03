"""Few training samples: how many unseen digits are supported, and whether planted oddities are found among them.

    python benchmarks/few.py [--sizes 100 200 400 1000 4000] [--epochs 12] [--seed 0] [--threads 1] [--out FILE.json]

Needs nothing but the embedded digits. `robust` is the recipe that the documents recommend, `fast` the default. Of each
size a run is trained on clean digits: the share of 1,000 unseen ones that are supported, and of 300 pictures each of
noise, inverted digits, drawn letters and shapes. Then one on the same digits with 2 % of them (5 to 20) inverted or
noise: how well `provnet debug` finds these, by its score and by two of its parts. Intervals: Wilson, DeLong.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine

from provnet import explain, open_data
from provnet.answers.metrics import auc
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.debug.compute import debug
from provnet.tools.trust.compute import strangers
from provnet.training.config import train_config
from provnet.training.fit import fit

RECIPES: dict[str, dict[str, Any]] = {
    "robust": {"network": "class-independent", "head": "exemplar"},
    "fast": {"network": "class-conditional"},
}
STRANGERS = 300


def trained(data: ImageData, recipe: str, given: argparse.Namespace) -> Run:
    """A run of a recipe."""
    return fit(data, train_config(recipe, epochs=given.epochs, seed=given.seed, **RECIPES[recipe]))


def support(run: Run, test: ImageData, seed: int) -> dict[str, Any]:
    """Shares of unseen digits and of strangers that are supported."""
    drawn = strangers(test.images, STRANGERS, seed)
    sets = {"unseen": test.images, "inverted": 255 - test.images[:STRANGERS]}
    sets |= {name: drawn[name] for name in ("noise", "letters", "shapes")}
    shares = {name: explain(run, images, k=1).supported for name, images in sets.items()}
    return {name: wilson(int(found.sum()), len(found)).to_json() for name, found in shares.items()}


def planted(data: ImageData, seed: int) -> tuple[ImageData, np.ndarray]:
    """Some digits replaced, inverted ones and noise in turn, and which."""
    chance = np.random.default_rng(seed)
    images = data.images[:, 0].numpy().copy()
    rows = chance.choice(len(data), min(20, max(5, len(data) // 50)), replace=False)
    for number, row in enumerate(rows):
        images[row] = chance.integers(0, 256, images[row].shape) if number % 2 else 255 - images[row]
    odd = np.zeros(len(data), dtype=np.bool_)
    odd[rows] = True
    return open_data(images, data.samples.labels), odd


def oddities(data: ImageData, recipe: str, given: argparse.Namespace) -> dict[str, Any]:
    """How well planted oddities are found."""
    replaced, odd = planted(data, given.seed)
    found = debug(trained(replaced, recipe, given), replaced).anomalies
    flagged = found.score >= 0.5
    return {
        "planted": int(odd.sum()),
        "flagged": int(flagged.sum()),
        "flagged_planted": int((flagged & odd).sum()),
        "score": auc(odd, found.score).to_json(),
        **{name: auc(odd, found.parts[name]).to_json() for name in ("distance", "isolation")},
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 200, 400, 1000, 4000])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    about, rows = machine(rates=False), []
    settings = {name: getattr(given, name) for name in ("sizes", "epochs", "seed", "threads")}
    test = open_data("embedded", split="test")
    for size in given.sizes:
        data = open_data("embedded", limit=size)
        for recipe in RECIPES:
            row = {
                "samples": size,
                "recipe": recipe,
                "supported": support(trained(data, recipe, given), test, given.seed),
            }
            row["odd"] = oddities(data, recipe, given)
            rows.append(row)
            shares = ", ".join(f"{name} {one['value']:.1%}" for name, one in row["supported"].items())
            areas = ", ".join(f"{name} {row['odd'][name]['value']:.3f}" for name in ("score", "distance", "isolation"))
            told = f"{row['odd']['flagged_planted']} of {row['odd']['planted']} flagged, {row['odd']['flagged']} in all"
            print(f"{size:5d} {recipe}: supported: {shares}; odd: AUROC {areas}; {told}", flush=True)
            if given.out is not None:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                written = json.dumps({"machine": about, "settings": settings, "rows": rows}, indent=1)
                given.out.write_text(written + "\n", "utf-8")


if __name__ == "__main__":
    main()
