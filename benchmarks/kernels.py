"""Where a step's time goes on a GPU: milliseconds a step of the paper's networks, and what takes them.

    python benchmarks/kernels.py [--only NAME ...] [--samples 60000] [--epochs 3] [--top 8] [--out FILE.json]

Pictures are noise, which costs as much as digits do. The first epoch, in which steps are recorded, does not count.
Then an epoch is profiled: the programs that take most of it, with their share. Without a GPU it shows that it works;
times there say nothing. Pairs of `sharing` are compiled; with TORCH_COMPILE_DISABLE=1 they are timed as they are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from provnet import open_data
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.tools.generate.compute import fit_generator
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_paper.two_cnns import built, pair, train_both

Ended = Callable[[Any], None]


def digits(network: str, batch: int, **changes: Any) -> Callable[[ImageData, int, str, Ended], int]:
    """The paper's layers for small pictures."""

    def run(data: ImageData, epochs: int, device: str, ended: Ended) -> int:
        config = train_config("paper", epochs=epochs, batch_size=batch, **changes)
        fit(data, config.using(network=network), RunOptions(device=device), on_epoch=ended)
        return -(-len(data) // batch)

    return run


def sharing(size: str, raised: int) -> Callable[[ImageData, int, str, Ended], int]:
    """The two CNNs of app. 7.6 at level 3."""

    def run(data: ImageData, epochs: int, device: str, ended: Ended) -> int:
        recipe = pair(size, 3, epochs, raised)
        train_both(built(data, recipe, 0, device), data, recipe, 0, ended)
        return sum(-(-len(data) // batch) for batch in recipe.batches)

    return run


def generator(name: str) -> Callable[[ImageData, int, str, Ended], int]:
    """A generator with its own batch size."""

    def run(data: ImageData, epochs: int, device: str, ended: Ended) -> int:
        found = fit_generator(data, name, changes={"epochs": epochs}, where=RunOptions(device=device), on_epoch=ended)
        return -(-len(data) // int(found.config.training["training"]["batch_size"]))

    return run


NETWORKS: dict[str, Callable[[ImageData, int, str, Ended], int]] = {
    "single, batch 512": digits("single", 512),
    "class alone, batch 512": digits("class-conditional", 512, index_weight=0.0),
    "class-conditional, batch 128": digits("class-conditional", 128),
    "sharing small": sharing("small", 8),
    "sharing medium": sharing("medium", 8),
    "sharing large": sharing("large", 8),
    "sharing xlarge": sharing("xlarge", 16),
    "generator paper": generator("paper"),
    "generator modern": generator("modern"),
}


def noise(count: int) -> ImageData:
    """Grey pictures of ten classes."""
    chance = np.random.default_rng(0)
    return open_data(chance.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count) % 10)


def timed(name: str, data: ImageData, epochs: int, device: str) -> float:
    """Milliseconds a step, over all epochs but the first."""
    ends: list[float] = []

    def ended(_: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    steps = NETWORKS[name](data, epochs, device, ended)
    return 1e3 * (ends[-1] - ends[0]) / (len(ends) - 1) / steps


def profiled(name: str, data: ImageData, device: str, top: int) -> list[dict[str, Any]]:
    """What takes most of the second epoch."""
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    watch, seen = profile(activities=kinds[-1:]), 0

    def ended(_: Any) -> None:
        nonlocal seen
        seen += 1
        if device == "cuda":
            torch.cuda.synchronize()
        if seen <= 2:
            (watch.start if seen == 1 else watch.stop)()

    NETWORKS[name](data, 2, device, ended)
    rows = watch.key_averages()
    times = {
        row.key: row.self_device_time_total if device == "cuda" else row.self_cpu_time_total
        for row in rows
        if device == "cpu" or row.device_type == DeviceType.CUDA
    }
    whole = sum(times.values())
    counts = {row.key: row.count for row in rows}
    best = sorted(times, key=lambda key: -times[key])[:top]
    return [{"what": key, "share": round(times[key] / whole, 4), "calls": counts[key]} for key in best]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    about, data, rows = machine(rates=False), noise(given.samples), []
    for name in given.only:
        row: dict[str, Any] = {"network": name, "ms": timed(name, data, given.epochs, device)}
        row["kernels"] = profiled(name, data, device, given.top)
        rows.append(row)
        print(f"{name}: {row['ms']:.3f} ms a step")
        for kernel in row["kernels"]:
            print(f"    {kernel['share']:6.1%} {kernel['calls']:7d} x {kernel['what'][:150]}", flush=True)
        if given.out is not None:
            settings = {"samples": given.samples, "epochs": given.epochs}
            written = {"machine": about, "settings": settings, "rows": rows}
            given.out.write_text(json.dumps(written, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
