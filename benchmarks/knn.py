"""Ours against exact nearest neighbours on pixels and on features, in one run; prints a table, writes JSON and a plot.

Usage: python benchmarks/knn.py [--data mnist] [--data-dir DIR] [--limit 5000] [--epochs N] [--out benchmarks/results]

One network is trained (class-independent, preset robust, exemplar head). Its index branch is compared with nearest
neighbours on the pixels, on the penultimate features of the same network, and on those of a plain classifier of the
same backbone (preset fast, no index loss): class of the best match for unseen samples, training samples found again
under distortions, and milliseconds for a query (all include the pass through the network).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor

from provnet import open_data
from provnet.answers.attributor import explain
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.heads.retrieval import top_k
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit

Search = Callable[[Tensor], np.ndarray]  # raw images (B, ...) -> (B, 5) training samples, best first
K = 5


def crop(images: Tensor) -> Tensor:
    """Cut a border of a fourteenth of each side off and enlarge the rest."""
    height, width = images.shape[2:]
    inner = images[:, :, height // 14 : height - height // 14, width // 14 : width - width // 14].float()
    larger = F.interpolate(inner, (height, width), mode="bilinear", align_corners=False)
    return larger.round().clamp(0, 255).to(torch.uint8)


def on_pixels(train: Tensor) -> Search:
    """Nearest by Euclidean distance: |x - y|^2 = |x|^2 - 2 x.y + |y|^2, so one more column does it."""
    keys = train.flatten(1).float() / 255
    keys = torch.cat([keys, -0.5 * keys.square().sum(1, keepdim=True)], 1)

    def search(images: Tensor) -> np.ndarray:
        flat = images.flatten(1).float() / 255
        return np.asarray(top_k(torch.cat([flat, torch.ones(len(flat), 1)], 1), keys, K).row.numpy())

    return search


def unit_features(run: Run) -> Callable[[Tensor], Tensor]:
    """Penultimate features of pictures, which the class layer sees, at length one."""
    net = run.network.eval()

    def features(images: Tensor) -> Tensor:
        with torch.inference_mode():
            parts = [net.backbone(net.normalise(part)) for part in torch.split(images, 256)]
        return F.normalize(torch.cat(parts), dim=1)

    return features


def on_features(run: Run, train: Tensor) -> Search:
    """Nearest by cosine of the penultimate features."""
    features = unit_features(run)
    keys = features(train)
    return lambda images: np.asarray(top_k(features(images), keys, K).row.numpy())


def by_index(run: Run, weights: str) -> Search:
    """Ours."""
    return lambda images: explain(run, images, k=K, weights=weights).index


def milliseconds(search: Search, images: Tensor, batch: int, repeats: int) -> float:
    """Median time of a query in batches of this size."""
    times = []
    for number in range(repeats):
        part = images[number * batch % (len(images) - batch + 1) :][:batch]
        began = time.perf_counter()
        search(part)
        times.append((time.perf_counter() - began) / batch * 1e3)
    return statistics.median(times)


def measure(data: str, data_dir: str | None, limit: int, epochs: int | None, seed: int) -> dict[str, Any]:
    """Train, then ask every method the same questions."""
    train = open_data(data, data_dir=data_dir, limit=limit)
    test = open_data(data, split="test", data_dir=data_dir, limit=1000)
    began = time.perf_counter()
    run = fit(
        train, train_config("robust", epochs=epochs, seed=seed, network="class-independent"), RunOptions(progress=True)
    )
    seconds = time.perf_counter() - began
    plain = fit(
        train, train_config("fast", index_weight=0.0, seed=seed, network="class-independent"), RunOptions(progress=True)
    )
    methods: dict[str, Search] = {
        "kNN on pixels": on_pixels(train.images),
        "kNN on features, plain classifier": on_features(plain, train.images),
        "kNN on features, same network": on_features(run, train.images),
        "ours, plain weights": by_index(run, "plain"),
        "ours, joint weights": by_index(run, "joint"),
    }
    own = np.linspace(0, len(train) - 1, 1000).astype(np.int64)
    some = train.images[own]
    copies = {
        "exact": some,
        "noise": add_noise(some, 0),
        "shift": shift(some, 0),
        "jpeg": jpeg(some),
        "crop": crop(some),
    }
    rows = {}
    for name, search in methods.items():
        labels = train.samples.labels[search(test.images)]
        row: dict[str, Any] = {
            "class_top_1": wilson(int((labels[:, 0] == test.samples.labels).sum()), len(test)).to_json(),
            "class_top_5": wilson(int((labels == test.samples.labels[:, None]).sum()), labels.size).to_json(),
        }
        for kind, copy in copies.items():
            row[kind] = wilson(int((search(copy)[:, 0] == own).sum()), len(own)).to_json()
        row["ms_1"], row["ms_256"] = milliseconds(search, test.images, 1, 50), milliseconds(search, test.images, 256, 9)
        rows[name] = row
    right = int((explain(run, test.images, k=1).predicted == test.samples.labels).sum())
    return {
        "data": data,
        "samples": len(train),
        "test": len(test),
        "seed": seed,
        "key_width": run.network.index_head.keys.shape[1],
        "epochs": run.config.training["training"]["epochs"],
        "fit_seconds": round(seconds, 1),
        "class_accuracy": wilson(right, len(test)).to_json(),
        "methods": rows,
    }


FIGURES = ("class_top_1", "class_top_5", "exact", "noise", "shift", "jpeg", "crop")


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "| method | " + " | ".join(FIGURES) + " | ms, batch 1 | ms, batch 256 |",
        "|---" * (len(FIGURES) + 3) + "|",
    ]
    for name, row in result["methods"].items():
        values = [f"{row[figure]['value']:.3f}" for figure in FIGURES]
        lines.append(f"| {name} | {' | '.join(values)} | {row['ms_1']:.2f} | {row['ms_256']:.3f} |")
    return "\n".join(lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars of each figure, one colour a method."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4.2), layout="constrained")
    methods = list(result["methods"].items())
    width = 0.8 / len(methods)
    colours = ("#b8b2a7", "#8b857c", "#5d5a55", "#7aa2e8", "#2b5bb8")
    for number, (name, row) in enumerate(methods):
        places = np.arange(len(FIGURES)) + (number - (len(methods) - 1) / 2) * width
        values = [row[each]["value"] for each in FIGURES]
        spread = [
            [v - row[e]["low"] for v, e in zip(values, FIGURES, strict=True)],
            [row[e]["high"] - v for v, e in zip(values, FIGURES, strict=True)],
        ]
        axes.bar(places, values, width, label=name, color=colours[number], yerr=spread, error_kw={"lw": 0.7})
    words = [
        "class,\nbest match",
        "class,\nall five",
        "same\npicture",
        "noise\nσ = .1",
        "shift\n1 pixel",
        "JPEG\nq = 50",
        "crop\n2 pixels",
    ]
    axes.set_xticks(np.arange(len(FIGURES)), words)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of right answers")
    axes.set_title(f"{result['data']}, {result['samples']:,} training samples, n = 1,000 each, 95 % intervals")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--limit", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    result = measure(given.data, given.data_dir, given.limit, given.epochs, given.seed)
    print(table(result))
    print(f"class accuracy {result['class_accuracy']['value']:.4f}, trained in {result['fit_seconds']} s")
    name = f"knn-{given.data}-{given.limit}"
    (given.out / f"{name}.json").write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    plot(result, given.out / f"{name}.png")


if __name__ == "__main__":
    main()
