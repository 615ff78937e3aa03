"""What influence costs: ResNet-9 on 25,000 pictures, times of one machine that does nothing else.

    PYTHONPATH=benchmarks python benchmarks/influence/cost.py --data-dir DIR [--subject resnet9] [--device cuda]
        [--out benchmarks/results/influence-cost.json]

Training with and without snapshots, keys for each snapshot, and queries: a forward pass, compact keys at one and at all
snapshots, and TRAK with one network (features of all samples, then queries). Medians of `--times` repetitions.
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
from lds import model
from machine import machine
from rivals import Trak
from subjects import Data, Subject
from together import amp, train_one
from torch import nn
from truth import ALL, HERE

from provnet.influence.keys import course_of, influence_of
from provnet.influence.of_run import epochs_kept

ROOT = HERE.parents[1]
TOGETHER = 256  # queries


def seconds(work: Callable[[], object], times: int, device: str) -> float:
    """The median after one that does not count."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return float(np.median(found[1:]))


def measure(subject: Subject, data: Data, given: argparse.Namespace) -> dict[str, Any]:
    """All times in seconds."""
    every = torch.arange(len(data.x), device=data.x.device)
    when = {epoch - 1 for epoch in epochs_kept(subject.recipe.epochs)}
    states: list[dict[str, torch.Tensor]] = []

    def keep(epoch: int, net: nn.Module) -> None:
        if epoch in when:
            states.append({k: v.detach().to("cpu", torch.bfloat16, copy=True) for k, v in net.state_dict().items()})

    def train(watch: Callable[[int, nn.Module], None] | None) -> Any:
        states.clear()
        return train_one(subject.net, data.x, data.y, every, subject.recipe, 1, watch)

    plain = seconds(lambda: train(None), given.times, given.device)
    watched = seconds(lambda: train(keep), given.times, given.device)
    net, course = train(keep)
    asked = model(subject, net)
    weight = course_of(course)

    def keys(snapshots: list[Any]) -> Any:
        return influence_of(asked, data.x, data.y, snapshots=snapshots, course=weight)

    one, every_one = (
        seconds(lambda: keys([]), given.times, given.device),
        seconds(lambda: keys(states), 1, given.device),
    )
    x, classes = data.query_x[:TOGETHER], data.query_y[:TOGETHER]

    def forward() -> None:
        with torch.no_grad(), amp(subject.recipe, given.device):
            net(x)

    single, all_of = keys([]), keys(states)
    queries = {
        "forward": seconds(forward, 20, given.device),
        "compact, one snapshot": seconds(lambda: single.scores(x, classes), 10, given.device),
        "compact, all snapshots": seconds(lambda: all_of.scores(x, classes), 5, given.device),
    }
    trak = Trak(data, subject.recipe, classes, 2048, 250)
    began = time.perf_counter()
    trak.projected(net, 0)
    return {
        "samples": len(data.x),
        "training": plain,
        "training_with_snapshots": watched,
        "ratio": watched / plain,
        "keys_one_snapshot": one,
        "keys_each_of_all": every_one / (len(states) + 1),
        "snapshots": len(states) + 1,
        "epoch": plain / subject.recipe.epochs,
        "together": (watched + every_one) / plain,
        f"queries_{TOGETHER}": queries,
        "trak_features_one_network": time.perf_counter() - began,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--subject", default="resnet9", choices=list(ALL))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/influence-cost.json")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    subject = ALL[given.subject]
    found = {"machine": machine(rates=False), **measure(subject, subject.data(given.data_dir).on(given.device), given)}
    given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
