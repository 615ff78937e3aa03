"""LiRA, RMIA and Attack-P on CIFAR-10 with 16 shadow networks, and the index score of a network of ours beside them.

    python benchmarks/lira.py shadows --data-dir DIR --out scores.npz [--models 16] [--epochs 40] [--jobs 8]
        [--device cuda] [--limit N]
    python benchmarks/lira.py ours --data-dir DIR --scores scores.npz --out ours.npz [--device cuda]
    python benchmarks/lira.py audit scores.npz [--ours ours.npz] [--out benchmarks/results/lira.json]

shadows  small residual networks, each trained on a random half of the 50,000 training pictures (shifts and mirror
         images). They come in pairs: what one of a pair trains on, the other has never seen. Every network is asked
         for the scaled confidence of the true label, log(p / (1 - p)), of each picture and of its mirror image.
ours     a class-conditional network with an index branch, trained on what the first shadow was trained on.
audit    each network in turn is the target, and the other 15 are its shadows; on a CPU. RMIA takes four networks that
         did not see the picture (of eight in pairs), or two that did and two that did not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet import open_data
from provnet.base.options import RunOptions
from provnet.tools.membership.compute import member_scores
from provnet.training.config import train_config
from provnet.training.fit import fit

BATCH, PEAK, RISE, DECAY, SHIFT = 500, 0.2, 0.2, 5e-4, 4
WARM = 5  # steps before one is recorded


class Step(nn.Module):
    """Convolution, pooling, and a residual convolution."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(wide, out, 3, padding=1, bias=False)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])

    def forward(self, x: Tensor) -> Tensor:
        """(B, wide, S, S) -> (B, out, S / 2, S / 2)."""
        x = self.norms[0](F.max_pool2d(self.first(x), 2)).relu()
        return x + self.norms[1](self.second(x)).relu()


def small_network() -> nn.Module:
    """About .1 GFLOP of multiplications for one picture."""
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    body = nn.Sequential(stem, Step(32, 64), Step(64, 256), Step(256, 256), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(256, 10, bias=False))


def halves(models: int, n: int, seed: int = 0) -> np.ndarray:
    """(models, n) bool: random halves in pairs, of which each holds what the other lacks."""
    member = np.zeros((models, n), dtype=np.bool_)
    for pair in range(models // 2):
        rows = np.random.default_rng([seed, pair]).permutation(n)[: n // 2]
        member[2 * pair, rows] = True
        member[2 * pair + 1] = ~member[2 * pair]
    return member


def trained(images: Tensor, labels: Tensor, epochs: int, seed: int) -> nn.Module:
    """A network trained on pictures (N, 3, 32, 32) that are normalised already: SGD, one cycle, shifts and mirrors."""
    torch.manual_seed(seed)
    device = images.device
    net = small_network().to(device, memory_format=torch.channels_last).train()
    lr = torch.tensor(0.0, device=device)
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, fused=True)
    padded = F.pad(images, (SHIFT,) * 4, mode="reflect").permute(0, 2, 3, 1).contiguous()
    side, batch = torch.arange(32, device=device), min(BATCH, len(images))
    rows = torch.zeros(batch, dtype=torch.int64, device=device)

    def step() -> None:
        across, down = torch.randint(0, 2 * SHIFT + 1, (2, batch, 1), device=device)
        mirror = torch.rand(batch, 1, device=device) < 0.5
        columns = across + torch.where(mirror, 31 - side, side)
        drawn = padded[rows[:, None, None], (down + side)[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda, cache_enabled=False):
            loss = F.cross_entropy(net(drawn), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    each = len(images) // batch
    rates = np.interp(np.arange(epochs * each), [0, RISE * epochs * each, epochs * each], [0, PEAK, 0])
    again = step
    torch.cuda.synchronize() if images.is_cuda else None
    with torch.cuda.stream(torch.cuda.Stream()) if images.is_cuda else nullcontext():
        for number, rate in enumerate(rates):
            if number % each == 0:
                order = torch.randperm(len(images), device=device)
            rows.copy_(order[number % each * batch :][:batch])
            lr.fill_(float(rate))
            if number == WARM and images.is_cuda:
                again = recorded(step, optimizer)  # it is recorded, not done
            again()
    torch.cuda.synchronize() if images.is_cuda else None
    return net.eval()


def recorded(step: Callable[[], None], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """A training step as one CUDA graph: hundreds of small kernels that need not be started one by one."""
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.inference_mode()
def confidences(net: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """(N, 2) log(p / (1 - p)) of the true label, of each picture and of its mirror image."""
    views = []
    for view in (images, images.flip(3)):
        logits = torch.cat([net(batch).double() for batch in view.split(2_000)])
        own = logits.gather(1, labels[:, None])[:, 0]
        others = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
        views.append(own - others)
    return torch.stack(views, 1)


def opened(data_dir: str, limit: int | None, device: str) -> tuple[Tensor, Tensor]:
    """Normalised pictures and labels."""
    data = open_data("cifar10", data_dir=data_dir, limit=limit)
    images = data.images.to(device).float() / 255
    mean, std = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    labels = torch.tensor(data.samples.labels, dtype=torch.int64, device=device)
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last), labels


def some_shadows(given: argparse.Namespace, mine: list[int]) -> list[tuple[int, np.ndarray, dict[str, float]]]:
    """The scores of some of the networks, one after the other."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)
    images, labels = opened(given.data_dir, given.limit, given.device)
    member = halves(given.models, len(images))
    found: list[tuple[int, np.ndarray, dict[str, float]]] = []
    for model in mine:
        began = time.perf_counter()
        own = torch.from_numpy(member[model]).to(images.device)
        net = trained(images[own], labels[own], given.epochs, model)
        score = confidences(net, images, labels).float().cpu().numpy()
        right = score[:, 0] > 0  # of the true label against all others together: a bound of accuracy from below
        told = {
            "seconds": round(time.perf_counter() - began, 2),
            "sure_members": float(right[member[model]].mean()),
            "sure_others": float(right[~member[model]].mean()),
        }
        print(model, told, flush=True)
        np.savez(given.out.with_name(f"{given.out.stem}-{model}.npz"), scores=score, told=json.dumps(told))
        found.append((model, score, told))
    return found


def shadows(given: argparse.Namespace) -> None:
    """Train all networks, several at a time, and keep their scores and what each was trained on."""
    parts = [list(range(job, given.models, given.jobs)) for job in range(given.jobs)]
    parts = [part for part in parts if part]
    if len(parts) == 1:
        found = some_shadows(given, parts[0])
    else:
        with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
            found = [one for some in pool.map(partial(some_shadows, given), parts) for one in some]
    found.sort(key=lambda one: one[0])
    scores = np.stack([score for _, score, _ in found])
    told = {"epochs": given.epochs, "device": _device(given.device), "networks": [one for *_, one in found]}
    np.savez_compressed(
        given.out, scores=scores, member=np.packbits(halves(given.models, scores.shape[1]), 1), told=json.dumps(told)
    )


def _device(name: str) -> str:
    return torch.cuda.get_device_name() if name == "cuda" else name


def ours(given: argparse.Namespace) -> None:
    """Train a network with an index branch on what the first shadow was trained on; keep its scores of all pictures."""
    with np.load(given.scores) as kept:
        n = kept["scores"].shape[1]
        member = np.unpackbits(kept["member"][0], count=n).astype(np.bool_)
    data = open_data("cifar10", data_dir=given.data_dir, limit=given.limit)
    config = train_config(given.preset, network="class-conditional", epochs=given.epochs)
    began = time.perf_counter()
    run = fit(data.select(np.flatnonzero(member)), config, RunOptions(device=given.device))
    told = {"seconds": round(time.perf_counter() - began, 2), "device": _device(given.device), "preset": given.preset}
    run.network.to(given.device)
    found = member_scores(run, data.images)
    right = float((found.predicted == data.samples.labels)[~member].mean())
    np.savez_compressed(given.out, member=member, told=json.dumps({**told, "class_accuracy": right}), **found.values)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name, run in (("shadows", shadows), ("ours", ours)):
        part = parts.add_parser(name)
        part.set_defaults(run=run)
        part.add_argument("--data-dir", required=True)
        part.add_argument("--out", type=Path, required=True)
        part.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        part.add_argument("--limit", type=int)
        part.add_argument("--epochs", type=int, default=40 if name == "shadows" else None)
    parts.choices["shadows"].add_argument("--models", type=int, default=16)
    parts.choices["shadows"].add_argument("--jobs", type=int, default=8)
    parts.choices["ours"].add_argument("--scores", type=Path, required=True)
    parts.choices["ours"].add_argument("--preset", default="default")
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
