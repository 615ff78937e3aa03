"""Seconds of an epoch of the paper's single-branch layers: plain eager PyTorch, and what each means of ours gains.

    python benchmarks/speed.py --data-dir DIR [--batch 128] [--limit N] [--no-compile]
        [--quick] [--out benchmarks/results/speed.json]

Plain is what a careful user writes without provnet: data on the device, bf16 autocast, AdamW (foreach), no compile.
Each means is then added alone and all together, in the same loop, on the same network; last `fit` as it comes, whose
epochs also keep the record of every sample's loss. Times are medians over turns in which the variants alternate. Where
there is no GPU the loop runs a few steps on the CPU: it shows that it works, without bars.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor, nn

from provnet import open_data
from provnet.base.options import NetworkOptions, RunOptions
from provnet.data.dataset import ImageData
from provnet.models.network import build
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet.training.setup import plan

BAR = 0.5
WARM = 12


@dataclass(frozen=True)
class Variant:
    """How the loop is run."""

    name: str
    bf16: bool = True
    fused: bool = False
    recorded: bool = False
    compiled: bool = False
    channels_last: bool = False
    host_floats: bool = False  # float32 pictures in pinned main memory, copied batch by batch


PLAIN = Variant("plain eager")
VARIANTS = (
    PLAIN,
    replace(PLAIN, name="plain, fp32", bf16=False),
    replace(PLAIN, name="plain, pictures as floats in main memory", host_floats=True),
    replace(PLAIN, name="+ fused optimiser", fused=True),
    replace(PLAIN, name="+ recorded step", recorded=True),
    replace(PLAIN, name="+ channels last", channels_last=True),
    replace(PLAIN, name="+ compiled network", compiled=True),
    replace(PLAIN, name="fused and recorded", fused=True, recorded=True),
    replace(PLAIN, name="fused, recorded, channels last", fused=True, recorded=True, channels_last=True),
    replace(PLAIN, name="fused, recorded, compiled", fused=True, recorded=True, compiled=True),
)


def stepper(
    variant: Variant, data: ImageData, batch: int, device: torch.device
) -> tuple[Callable[[Tensor], None], float]:
    """A function that trains on the samples of an index, warmed up, and the seconds until it was ready."""
    torch.manual_seed(0)
    shape, index_map = plan(data, NetworkOptions(network="single"), "paper")
    with device:  # the layers are large: drawing them on a CPU takes seconds
        net = build(shape, index_map).to(device).train()
    net.normalise.channels_last = variant.channels_last
    if variant.channels_last:
        net = net.to(memory_format=torch.channels_last)
    images, labels = data.images.to(device), data.labels.to(device)
    if variant.host_floats:
        images = data.images.float()
        images = images.pin_memory() if device.type == "cuda" else images
    body: nn.Module = nn.Sequential(net.normalise, net.backbone, net.index_trunk.body, net.index_head.linear)
    body = torch.compile(body) if variant.compiled else body
    adamw = torch.optim.AdamW(
        body.parameters(),
        2e-3,
        weight_decay=2e-5,
        fused=variant.fused,
        foreach=not variant.fused,
        capturable=variant.recorded and device.type == "cuda",
    )

    def step(index: Tensor) -> None:
        some = images[index.cpu()].to(device, non_blocking=True) if variant.host_floats else images[index]
        with torch.autocast(device.type, torch.bfloat16, enabled=variant.bf16):
            scores = body(some)
            loss = F.cross_entropy(scores.float(), index, label_smoothing=0.05)
        loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    del labels
    began = time.perf_counter()
    first = torch.arange(batch, device=device)
    for _ in range(WARM):
        step(first)
    wait(device)
    if not variant.recorded or device.type != "cuda":
        return step, time.perf_counter() - began
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(first)

    def replay(index: Tensor, kept: object = step) -> None:  # `step` holds the memory that the recording uses
        first.copy_(index)
        graph.replay()

    wait(device)
    return replay, time.perf_counter() - began


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def epoch(step: Callable[[Tensor], None], n: int, batch: int, steps: int, device: torch.device) -> float:
    """Seconds of an epoch, from so many of its steps."""
    order = torch.randperm(n, device=device)
    wait(device)
    began = time.perf_counter()
    for start in range(0, steps * batch, batch):
        step(order[start : start + batch])
    wait(device)
    return (time.perf_counter() - began) * (n / batch) / steps


def ours(data: ImageData, batch: int, recorded: bool, epochs: int) -> float:
    """Median seconds of the epochs of `fit`, the first apart."""
    ends = []
    config = train_config("paper", epochs=epochs, batch_size=batch)
    fit(
        data,
        config.using(network="single"),
        RunOptions(recorded=recorded),
        on_epoch=lambda row: ends.append(time.perf_counter()),
    )
    return statistics.median([later - earlier for earlier, later in itertools.pairwise(ends)])


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Every variant alone on the device, in turns."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = open_data("mnist", data_dir=given.data_dir, limit=given.limit)
    n = len(data)
    steps = n // given.batch if device.type == "cuda" else 2
    chosen = [v for v in VARIANTS if not (v.compiled and given.no_compile)][:: len(VARIANTS) if given.quick else 1]
    times: dict[str, list[float]] = {v.name: [] for v in chosen}
    ready: dict[str, float] = {}
    for _ in range(given.turns):
        for variant in chosen:
            step, seconds = stepper(variant, data, given.batch, device)
            ready.setdefault(variant.name, seconds)
            times[variant.name].append(epoch(step, n, given.batch, steps, device))
            print(f"  {variant.name}: {times[variant.name][-1]:.3f} s", flush=True)
            del step
            torch.cuda.empty_cache()
    epochs = 4 if device.type == "cuda" else 2
    if device.type == "cuda" or n <= 1000:
        for name, recorded in (("provnet fit, not recorded", False), ("provnet fit", True)):
            times[name] = [ours(data, given.batch, recorded, epochs)]
    plain = statistics.median(times[PLAIN.name])
    rows = []
    for name, found in times.items():
        seconds = statistics.median(found)
        rows.append({"what": name, "seconds": seconds, "all": found, "ratio": seconds / plain})
        if name in ready:
            rows[-1]["ready_seconds"] = ready[name]
        if name == "provnet fit":
            rows[-1] |= {"bar": BAR, "met": seconds / plain <= BAR}
        print(f"{name:<44}{seconds:>9.3f} s  {seconds / plain:>6.2f} of plain  ready in {ready.get(name, 0):.1f} s")
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--quick", action="store_true", help="plain and fit only")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    report = {**machine(), "batch": given.batch, "rows": measure(given)}
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
