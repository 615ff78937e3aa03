"""How far one machine goes: digits with random affine jitter, as many as asked for; prints and writes JSON.

Usage: python benchmarks/scale.py --data-dir DIR [--samples 1200000] [--epochs 8] [--batch 4096] [--negatives 16384]
       [--backbone auto] [--key-width 128] [--queries 100000] [--out benchmarks/results]

Samples are made before the clock starts. The clock runs for `fit` as a whole: training, keys, calibration. Then random
training samples, plain, noisy and shifted, look for themselves among all keys, and the test digits are classified.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  its first import from a slow disk is not training
import numpy as np
import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor

from provnet import open_data
from provnet.answers.attributor import explain
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.modalities.augment import add_noise, shift
from provnet.training.config import train_config
from provnet.training.fit import fit

PIECE = 50_000


def jittered(digits: Tensor, n: int, device: torch.device) -> Tensor:
    """N digits in turn, each turned by up to 15 degrees, scaled by up to 10 % and moved by up to two pixels."""
    generator = torch.Generator(device).manual_seed(0)
    out = torch.empty((n, *digits.shape[1:]), dtype=torch.uint8)
    base = digits.to(device)
    for start in range(0, n, PIECE):
        index = torch.arange(start, min(start + PIECE, n), device=device) % len(digits)
        drawn = torch.rand((len(index), 4), generator=generator, device=device) * 2 - 1
        angle, size = drawn[:, 0] * (15 * torch.pi / 180), 1 + 0.1 * drawn[:, 1]
        cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
        move = drawn[:, 2:] * (2 * 2 / digits.shape[-1])
        theta = torch.stack([cosine, -sine, move[:, 0], sine, cosine, move[:, 1]], 1).view(-1, 2, 3)
        grid = F.affine_grid(theta, [len(index), *digits.shape[1:]], align_corners=False)
        moved = F.grid_sample(base[index].float(), grid, align_corners=False)
        out[start : start + len(index)] = moved.round().clamp(0, 255).to(torch.uint8).cpu()
    return out


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Make the data, train, look for samples among all keys."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    digits, test = (open_data("mnist", split=split, data_dir=given.data_dir) for split in ("train", "test"))
    images = jittered(digits.images, given.samples, device)
    labels = digits.samples.labels[np.arange(given.samples) % len(digits)]
    data = open_data(images, labels, class_names=list(digits.class_names))
    config = train_config(
        "robust", epochs=given.epochs, batch_size=given.batch, negatives=given.negatives, lr=given.lr, warmup=0.3
    )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ends = [time.perf_counter()]
    run = fit(
        data,
        config.using(network="class-independent", backbone=given.backbone, key_width=given.key_width),
        RunOptions(progress=True),
        on_epoch=lambda row: ends.append(time.perf_counter()),
    )
    seconds = time.perf_counter() - ends[0]
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    run.network.to(device)
    own = np.sort(np.random.default_rng(0).choice(given.samples, min(given.queries, given.samples), replace=False))
    some = data.images[torch.from_numpy(own)]
    found = {}
    for name, copy in (("exact", some), ("noise", add_noise(some, 0)), ("shift", shift(some, 0))):
        hits = explain(run, copy, k=1, batch_size=1024).index[:, 0] == own
        found[name] = wilson(int(hits.sum()), len(hits)).to_json()
    answers = explain(run, test.images, k=1, batch_size=1024)
    found["class"] = wilson(int((answers.predicted == test.samples.labels).sum()), len(test)).to_json()
    through = data.samples.labels[answers.index[:, 0]] == test.samples.labels
    found["class_through_index"] = wilson(int(through.sum()), len(test)).to_json()
    return {
        "samples": given.samples,
        "seconds": round(seconds, 1),
        "epoch_seconds": [round(later - earlier, 2) for earlier, later in itertools.pairwise(ends)],
        "peak_gb": None if peak is None else round(peak / 1e9, 2),
        "key_gb": round(run.network.index_head.keys.nbytes / 1e9, 3),
        "backbone": run.config.network.backbone,
        "training": run.config.training["training"],
        **found,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--samples", type=int, default=1_200_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--backbone", default="auto")
    parser.add_argument("--key-width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--negatives", type=int, default=16_384)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    result = {"machine": machine(), **measure(given)}
    text = json.dumps(result, indent=1)
    print(text)
    (given.out / f"scale-{given.samples}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
