"""LiRA, RMIA and Attack-P on CIFAR-10 with shadow networks, and the index score of a network of ours beside them.

    python benchmarks/lira.py shadows --data-dir DIR --out SCORES [--models 16] [--epochs 40] [--jobs 4]
        [--device cuda] [--limit N]
    python benchmarks/lira.py ours --data-dir DIR --out SCORES [--device cuda]
    python benchmarks/lira.py audit --out SCORES [--result benchmarks/results/lira.json]
    python benchmarks/lira.py coverage [--result benchmarks/results/audit-coverage.json] [--draws 200]

shadows   small residual networks, each trained on a random half of the 50,000 training pictures (shifts and mirror
          images). They come in pairs: what one of a pair trains on, the other has never seen. Every network is asked
          for the scaled confidence of the true label, log(p / (1 - p)), of each picture and of its mirror image. The
          folder SCORES keeps each network's; those that it has are not trained again.
ours      a class-conditional network with an index branch, trained on what the first shadow was trained on.
audit     each network in turn is the target, and all others are its shadows; on a CPU. Beside them RMIA with four
          references: the first two pairs that the target is not of, of which each picture is in two.
coverage  how often the intervals of simulated audits hold the truth, which 200,000 further samples tell.
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
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor, nn

from provnet import open_data
from provnet.base.options import RunOptions
from provnet.base.stats import Interval, wilson
from provnet.tools.membership.compute import member_scores
from provnet.tools.membership.shadows import ShadowScores, attacks, audit_shadows, simulated
from provnet.training.config import train_config
from provnet.training.fit import fit

BATCH, PEAK, RISE, DECAY, SHIFT = 500, 0.2, 0.2, 5e-4, 4
RESULTS = Path(__file__).parent / "results"
RESULT = {"audit": "lira.json", "coverage": "audit-coverage.json"}
OURS = ("index_confidence", "similarity", "contrast", "class_confidence")
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


def some_shadows(given: argparse.Namespace, mine: list[int]) -> None:
    """Train some of the networks, one after the other, and keep the scores of each."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)
    images, labels = opened(given.data_dir, given.limit, given.device)
    member = halves(given.models, len(images))
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
        told |= {"epochs": given.epochs, "device": _device(given.device)}
        np.savez(given.out / f"shadow-{model}.npz", scores=score, told=json.dumps(told))


def shadows(given: argparse.Namespace) -> None:
    """Train the networks that the folder lacks, several at a time."""
    given.out.mkdir(parents=True, exist_ok=True)
    left = [model for model in range(given.models) if not (given.out / f"shadow-{model}.npz").exists()]
    parts = [left[job :: given.jobs] for job in range(given.jobs) if left[job :: given.jobs]]
    if len(parts) < 2:
        some_shadows(given, left)
        return
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(some_shadows, given), parts))


def _device(name: str) -> str:
    return torch.cuda.get_device_name() if name == "cuda" else name


def ours(given: argparse.Namespace) -> None:
    """Train a network with an index branch on what the first shadow was trained on; keep its scores of all pictures."""
    data = open_data("cifar10", data_dir=given.data_dir, limit=given.limit)
    member = halves(2, len(data))[0]
    config = train_config(given.preset, network="class-conditional", epochs=given.epochs)
    began = time.perf_counter()
    run = fit(data.select(np.flatnonzero(member)), config, RunOptions(device=given.device))
    told = {"seconds": round(time.perf_counter() - began, 2), "device": _device(given.device), "preset": given.preset}
    run.network.to(given.device)
    found = member_scores(run, data.images)
    right = float((found.predicted == data.samples.labels)[~member].mean())
    given.out.mkdir(parents=True, exist_ok=True)
    np.savez(given.out / "ours.npz", told=json.dumps({**told, "class_accuracy": right}), **found.values)


def kept_scores(folder: Path) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]], dict[str, np.ndarray]]:
    """(k, n, v) scores of the networks of a folder, (k, n) who was trained on what, what is told, and our scores."""
    told, scores, models = [], [], []
    while (path := folder / f"shadow-{len(models)}.npz").exists():
        with np.load(path) as kept:
            scores.append(kept["scores"].astype(np.float64))
            told.append(json.loads(str(kept["told"])))
        models.append(len(models))
    own: dict[str, np.ndarray] = {}
    if (folder / "ours.npz").exists():
        with np.load(folder / "ours.npz") as kept:
            own = {name: kept[name].astype(np.float64) for name in OURS}
            told.append(json.loads(str(kept["told"])))
    whole = len(models) // 2 * 2
    return np.stack(scores[:whole]), halves(whole, scores[0].shape[0]), told, own


def table_of(
    scores: np.ndarray, member: np.ndarray, target: int, shadows: list[int], own: dict[str, np.ndarray]
) -> ShadowScores:
    """One network as the target, some others as its shadows."""
    ids = [str(row) for row in range(member.shape[1])]
    inside = member[target].astype(np.int8)
    return ShadowScores(ids, inside, scores[target], scores[shadows].transpose(1, 0, 2), member[shadows].T, own)


def audit(given: argparse.Namespace) -> None:
    """Each network in turn is the target; ours stands beside the first, which was trained on the same pictures."""
    scores, member, told, own = kept_scores(given.out)
    rows: dict[str, list[dict[str, Any]]] = {}
    for target in range(len(scores)):
        rest = [model for model in range(len(scores)) if model != target]
        four = [model for model in rest if model // 2 != target // 2][:4]
        beside = own if target == 0 else {}
        for references, some in ((len(rest), rest), (4, four)):
            found = audit_shadows(table_of(scores, member, target, some, beside if some == rest else {}))
            for name, one in found.found.items():
                rows.setdefault(f"{name}, {references} shadows", []).append(
                    {key: value for key, value in one.to_json().items() if key in ("auc", "tpr_at_fpr")}
                )
            print(target, references, found.decides, f"{found.found[found.decides].auc.value:.4f}", flush=True)
    result = {
        "machine": machine(rates=False),
        "data": "CIFAR-10, 50,000 training pictures, halves",
        "networks": told,
        "attacks": {name: {**means(each), "targets": each} for name, each in rows.items()},
    }
    written(given.result, result)
    for name, one in result["attacks"].items():
        print(f"{name:34} AUC {one['auc']['mean']:.4f}  " + "  ".join(f"{r} {v}" for r, v in one["found"].items()))


def means(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, least and most over the targets."""

    def of(values: list[float]) -> dict[str, float]:
        return {"mean": round(float(np.mean(values)), 5), "least": min(values), "most": max(values)}

    found = {}
    for rate in each[0]["tpr_at_fpr"]:
        values = [one["tpr_at_fpr"][rate]["tpr"]["value"] for one in each]
        found[rate] = "too few others" if values[0] is None else of(values)
    return {"auc": of([one["auc"]["value"] for one in each]), "found": found}


def coverage(given: argparse.Namespace) -> None:
    """How often the intervals of simulated audits hold the truth."""
    held: dict[str, list[bool]] = {}
    truth = {}
    many, _ = simulated(200_000, 8, seed=10**9)
    for name, score in attacks(many).items():
        inside, outside = (np.sort(score[many.member == kind]) for kind in (1, 0))
        truth[name] = inside, outside, float(np.searchsorted(outside, inside).mean() / len(outside))
    for seed in range(given.draws):
        for used in (0.0, 0.1, 0.5, 0.9):
            made, trained_on = simulated(4_000, 8, seed=seed, used=used, candidates=400)
            found = audit_shadows(made)
            share = found.used
            assert share is not None, "there are candidates"
            held.setdefault(f"share used, {used:.0%}", []).append(within(share, float(trained_on[4_000:].mean())))
            for name, one in found.found.items() if used == 0.5 else ():
                inside, outside, area = truth[name]
                held.setdefault(f"AUC, {name}", []).append(within(one.auc, area))
                cut = one.at[0.01].threshold
                assert cut is not None, "2,000 others are enough for 1 %"
                for kind, rate, of in (("found", one.at[0.01].tpr, inside), ("false", one.at[0.01].fpr, outside)):
                    exact = 1 - float(np.searchsorted(of, cut)) / len(of)
                    held.setdefault(f"{kind} at 1 %, {name}", []).append(within(rate, exact))
    rates = {name: wilson(sum(each), len(each)).to_json() for name, each in held.items()}
    written(given.result, {"machine": machine(rates=False), "draws": given.draws, "held": rates})
    for name, one in rates.items():
        print(f"{name:30} {one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})")


def within(interval: Interval, value: float) -> bool:
    """Whether an interval holds a value."""
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def written(path: Path, values: dict[str, Any]) -> None:
    """A result as JSON."""
    path.write_text(json.dumps(values, indent=1) + "\n", "utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name, run in (("shadows", shadows), ("ours", ours), ("audit", audit), ("coverage", coverage)):
        part = parts.add_parser(name)
        part.set_defaults(run=run)
        if name != "coverage":
            part.add_argument("--out", type=Path, required=True)
        if name in ("shadows", "ours"):
            part.add_argument("--data-dir", required=True)
            part.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
            part.add_argument("--limit", type=int)
            part.add_argument("--epochs", type=int, default=40 if name == "shadows" else None)
        else:
            part.add_argument("--result", type=Path, default=RESULTS / RESULT[name])
    parts.choices["shadows"].add_argument("--models", type=int, default=16)
    parts.choices["shadows"].add_argument("--jobs", type=int, default=4)
    parts.choices["ours"].add_argument("--preset", default="default")
    parts.choices["coverage"].add_argument("--draws", type=int, default=200)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
