"""What attach costs: `prov.loss` beside a step with 1.2 million keys of 128, and the index of 50,000 pictures.

    python benchmarks/attach_overhead.py OUT [--data FOLDER] [--seconds 60] [--tiny]

ResNet-50 (224 px, batch 256, channels last) and BERT-base (128 tokens, batch 128), bfloat16 autocast. Steps with and
without `prov.loss` take turns in one run, and ratios compare neighbours. A ResNet-50 for small pictures (first layer
3 x 3, no pooling), that is indexed, is asked about the same pictures alone; they are those of CIFAR-10, where FOLDER is
given, and where these are fewer than 50,000, shifted copies of them. Needs a GPU but for `--tiny`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import provnet
from provnet.attached.provenance import AT_ONCE
from provnet.base.batches import at_once
from provnet.data.dataset import Dataset

TURN = 10  # steps of a kind together
Steps = Callable[[bool], None]  # one step, with `prov.loss` or without


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


def resnet50(classes: int, tiny: bool, *, small_pictures: bool = False) -> nn.Sequential:
    """ResNet-50, or with one block where it has several; of small pictures every pixel is looked at."""
    first = conv(3, 64, 3) if small_pictures else conv(3, 64, 7, 2)
    layers: list[nn.Module] = [*first, nn.ReLU()] + ([] if small_pictures else [nn.MaxPool2d(3, 2, 1)])
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


def pictures_step(device: str, tiny: bool, weight: float) -> tuple[provnet.Provenance, Steps, int]:
    """Steps of ResNet-50."""
    n, batch, side, classes = (5000, 4, 64, 10) if tiny else (1_200_000, 256, 224, 1000)
    model = resnet50(classes, tiny).to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    prov = provnet.attach(model, rows_of(n, classes), transform=lambda row: torch.randn(3, side, side), weight=weight)
    x = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,), device=device)
    return prov, stepping(prov, optimizer, lambda: F.cross_entropy(model(x), y), batch, device), batch


def texts_step(device: str, tiny: bool, weight: float) -> tuple[provnet.Provenance, Steps, int]:
    """Steps of BERT-base."""
    from transformers import BertConfig, BertForSequenceClassification

    n, batch, length, words, classes = (5000, 4, 16, 100, 10) if tiny else (1_200_000, 128, 128, 30_000, 1000)
    sizes = {"hidden_size": 192, "num_hidden_layers": 1, "num_attention_heads": 2} if tiny else {}
    model = BertForSequenceClassification(BertConfig(num_labels=classes, **sizes)).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    mask = torch.ones(length, dtype=torch.int64)

    def transform(row: Tensor) -> dict[str, Tensor]:
        return {"input_ids": torch.randint(words, (length,)), "attention_mask": mask}

    prov = provnet.attach(model, rows_of(n, classes), transform=transform, weight=weight)
    x = {"input_ids": torch.randint(words, (batch, length)), "attention_mask": mask.expand(batch, length)}
    x = {name: one.to(device) for name, one in x.items()}
    y = torch.randint(classes, (batch,), device=device)
    return prov, stepping(prov, optimizer, lambda: F.cross_entropy(model(**x).logits, y), batch, device), batch


@cache
def rows_of(n: int, classes: int) -> Dataset:
    """Samples that take no room: what the model is fed stands for them."""
    rows = torch.arange(n, dtype=torch.float32).unsqueeze(1)
    return provnet.open_data(rows.numpy(), (torch.arange(n) % classes).numpy())


def stepping(
    prov: provnet.Provenance, optimizer: torch.optim.Optimizer, own: Callable[[], Tensor], batch: int, device: str
) -> Steps:
    """Steps of a loop whose own loss is given; every sample has a key, as in the second epoch."""
    n, dice = len(prov.data), torch.Generator().manual_seed(0)
    prov.bank.count += 1

    def step(attached: bool) -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = own()
            if attached:
                loss = loss + prov.loss(torch.randint(n, (batch,), generator=dice))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def training(made: tuple[provnet.Provenance, Steps, int], device: str, seconds: float) -> dict[str, Any]:
    """Ratios of steps with provenance to neighbours without."""
    prov, step, batch = made
    peaks: dict[bool, int] = {}
    for attached in (False, True):
        for number in range(5):
            if number == 2 and device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            step(attached)
        peaks[attached] = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    ratios, times, began, turn = [], [], time.perf_counter(), 0
    while time.perf_counter() - began < seconds or len(ratios) < 3:
        spent, turn = {}, turn + 1
        for attached in (False, True) if turn % 2 else (True, False):
            start = wait(device)
            for _ in range(TURN):
                step(attached)
            spent[attached] = (wait(device) - start) / TURN
        ratios.append(spent[True] / spent[False])
        times.append(spent[False])
    return {
        "samples": len(prov.data),
        "at": prov.at,
        "batch": batch,
        "turns": len(ratios),
        "step_ms": 1000 * statistics.median(times),
        "ratio": quartiles(ratios),
        "memory": {
            "step_mib": peaks[False] / 2**20,
            "with_mib": peaks[True] / 2**20,
            "ratio": peaks[True] / max(peaks[False], 1),
        },
    }


def measured(make: Any, device: str, tiny: bool, weight: float, seconds: float) -> dict[str, Any]:
    """Steps of a model that is made for them alone."""
    return training(make(device, tiny, weight), device, seconds)


def quartiles(ratios: list[float]) -> dict[str, float]:
    """Median, quartiles and ends."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": middle, "quarter": low, "three_quarters": high, "least": min(ratios), "most": max(ratios)}


def small_pictures(n: int, source: str | None) -> tuple[Tensor, Tensor]:
    """(n, 3, 32, 32) of a source, and labels; missing ones are shifted copies, without a source all are noise."""
    if source is None:
        return torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8), torch.arange(n) % 10
    data = provnet.open_data(source)
    parts = [data.images.roll(shift, 3) for shift in range(-(-n // len(data)))]
    return torch.cat(parts)[:n], data.labels.repeat(len(parts))[:n]


def indexing(device: str, tiny: bool, source: str | None) -> dict[str, Any]:
    """`index` beside the forward pass of the same model alone, over the same pictures."""
    images, labels = small_pictures(80 if tiny else 50_000, source)
    data = provnet.open_data(images.numpy(), labels.numpy())
    model = resnet50(10, tiny, small_pictures=True).to(device)
    size = at_once(data.shape, device, AT_ONCE)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for part, own in zip(images[: 40 * size].split(size // 4), labels[: 40 * size].split(size // 4), strict=True):
        loss = F.cross_entropy(model(part.to(device).float() / 255), own.to(device))  # a little, so that answers differ
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()

    def alone() -> tuple[float, Tensor]:
        start, said = wait(device), []
        with torch.inference_mode():
            for part in torch.split(data.images, size):
                said.append(model(part.to(device).float() / 255).argmax(1))
        return wait(device) - start, torch.cat(said).cpu()

    alone()
    provnet.index(model, data.select(range(40)))  # libraries are loaded
    rounds = []
    for _ in range(3):
        forward, said = alone()
        start = wait(device)
        run = provnet.index(model, data)
        rounds.append((wait(device) - start, forward))
    agree = (torch.from_numpy(provnet.explain(run, data, k=1, batch_size=size).predicted) == said).float().mean()
    return {
        "samples": len(data),
        "classes_said": len(said.unique()),
        "forward_s": [second for _, second in rounds],
        "index_s": [first for first, _ in rounds],
        "ratio": statistics.median(first / second for first, second in rounds),
        "agrees": float(agree),
    }


def main() -> None:
    """Measure everything, and write after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "provnet": provnet.__version__}
    asked.out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        **{
            f"{name}, weight {weight:g}": partial(measured, make, device, asked.tiny, weight, asked.seconds)
            for name, make in (("resnet-50", pictures_step), ("bert-base", texts_step))
            for weight in (0.03, 0.0)
        },
        "index": lambda: indexing(device, asked.tiny, asked.data),
    }
    for what, measure in parts.items():
        found[what] = measure()
        (asked.out / "attach-overhead.json").write_text(json.dumps(found, indent=1) + "\n")
        print(what, json.dumps(found[what]), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
