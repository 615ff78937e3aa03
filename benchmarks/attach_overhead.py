"""What attach costs: `prov.loss` beside a step of ResNet-50 with 1.2 million keys, and the index of 50,000 pictures.

    python benchmarks/attach_overhead.py OUT [--seconds 120] [--tiny]

bfloat16 autocast, channels last, 224 px, batch 256. Steps with and without `prov.loss` take turns in one run, and the
model that is indexed is asked about the same pictures alone; ratios compare neighbours. Needs a GPU but for `--tiny`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import provnet
from provnet.base.batches import at_once

TURN = 8


def conv(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    """A convolution and its BatchNorm."""
    layer = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Bottle(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1)
        same = stride == 1 and inputs == 4 * width
        self.down = nn.Identity() if same else conv(inputs, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 4 width, H', W')."""
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.down(x))


def resnet50(classes: int, tiny: bool) -> nn.Sequential:
    """ResNet-50, or with one block where it has several."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(1 if tiny else blocks):
            layers.append(Bottle(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))


def wait(device: str) -> float:
    """The time once everything asked for is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def training(device: str, tiny: bool, seconds: float) -> dict[str, Any]:
    """Ratios of steps with provenance to neighbours without."""
    n, batch, side, classes = (5000, 4, 64, 10) if tiny else (1_200_000, 256, 224, 1000)
    model = resnet50(classes, tiny).to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    rows = torch.arange(n, dtype=torch.float32).unsqueeze(1)
    data = provnet.open_data(rows.numpy(), (torch.arange(n) % classes).numpy())
    prov = provnet.attach(model, data, transform=lambda row: torch.randn(3, side, side))
    prov.bank.count += 1  # as in the second epoch: every sample has a key
    x = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,), device=device)
    dice = torch.Generator().manual_seed(0)

    def step(attached: bool) -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
            if attached:
                loss = loss + prov.loss(torch.randint(n, (batch,), generator=dice))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    peaks: dict[bool, int] = {}
    for attached in (False, True):
        for number in range(5):
            if number == 2 and device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            step(attached)
        peaks[attached] = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    ratios, times, began = [], [], time.perf_counter()
    while time.perf_counter() - began < seconds or len(ratios) < 3:
        spent = {}
        for attached in (False, True):
            start = wait(device)
            for _ in range(TURN):
                step(attached)
            spent[attached] = (wait(device) - start) / TURN
        ratios.append(spent[True] / spent[False])
        times.append(spent[False])
    own = prov.bank.keys.nbytes
    return {
        "keys": n,
        "batch": batch,
        "turns": len(ratios),
        "step_ms": 1000 * statistics.median(times),
        "ratio": {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)},
        "memory": {"step_mib": peaks[False] / 2**20, "with_mib": peaks[True] / 2**20, "of_that_keys_mib": own / 2**20},
    }


def indexing(device: str, tiny: bool) -> dict[str, Any]:
    """`index` beside the forward pass of the same model alone, over the same pictures."""
    n = 500 if tiny else 50_000
    dice = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=dice)
    data = provnet.open_data(pictures.numpy(), (torch.arange(n) % 10).numpy())
    model = resnet50(10, tiny).to(device).eval()
    size = at_once(data.shape, device)

    def alone() -> tuple[float, Tensor]:
        start, said = wait(device), []
        with torch.inference_mode():
            for part in torch.split(data.images, size):
                said.append(model(part.to(device).float() / 255).argmax(1))
        return wait(device) - start, torch.cat(said).cpu()

    alone()
    rounds = []
    for _ in range(3):
        forward, said = alone()
        start = wait(device)
        run = provnet.index(model, data)
        rounds.append((wait(device) - start, forward))
    agree = (torch.from_numpy(run.explain(data, k=1).predicted) == said).float().mean()
    return {
        "samples": n,
        "forward_s": [second for _, second in rounds],
        "index_s": [first for first, _ in rounds],
        "ratio": statistics.median(first / second for first, second in rounds),
        "agrees": float(agree),
    }


def main() -> None:
    """Measure both, and write after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "provnet": provnet.__version__}
    asked.out.mkdir(parents=True, exist_ok=True)
    for what, measure in (
        ("index", lambda: indexing(device, asked.tiny)),
        ("training", lambda: training(device, asked.tiny, asked.seconds)),
    ):
        found[what] = measure()
        (asked.out / "attach-overhead.json").write_text(json.dumps(found, indent=1) + "\n")
        print(what, json.dumps(found[what]), flush=True)


if __name__ == "__main__":
    main()
