"""The weight of the index loss: accuracy, identity, agreement of two trainings, and what influence foretells.

    python benchmarks/attach_weight.py OUT --data-dir DIR [--data cifar10] [--limit 2000] [--halves 32] [--epochs 15]
        [--weights 0,0.03,0.1,0.3,1] [--processes 1]

A small residual network with its owner's crop and mirror, `attach` in its loop. Influence is TRAK's on one network,
with the gradients of all parameters and a ridge of the mean eigenvalue. *Two trainings agree*: the rank correlation of
the influence that trainings of two seeds measure, a mean over queries. *LDS*: how well that of one training foretells
the margins of trainings on random halves (`peers_lds.py`), a mean over both. Intervals are bootstraps over the queries.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attach_identity import Job, opened, trained
from peers_lds import averaged, foretold, halves, spearman
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import provnet

QUERIES, ASKED, TOGETHER = 200, 100, 8  # unseen samples; at a time; halves in one task


def margins(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """(B,) the score of the true class less the log-sum-exp of the others."""
    scores = model(x)
    own = scores.gather(1, y[:, None])[:, 0]
    return own - scores.scatter(1, y[:, None], -torch.inf).logsumexp(1)


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """(B, P) of each margin for all parameters."""
    fixed = {name: one.detach() for name, one in model.named_parameters()}
    kept = dict(model.named_buffers())

    def one_margin(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        found = functional_call(model, {**weights, **kept}, (one[None],))[0]
        own = torch.arange(len(found), device=found.device) == label
        return found.where(own, 0).sum() - found.where(~own, -1e9).logsumexp(0)

    each = vmap(grad(one_margin), (None, 0, 0))
    parts = [each(fixed, *part) for part in zip(x.split(ASKED), y.split(ASKED), strict=True)]
    return torch.cat([torch.cat([one.flatten(1) for one in part.values()], 1) for part in parts])


def influence(model: nn.Module, train: tuple[Tensor, Tensor], queries: tuple[Tensor, Tensor]) -> np.ndarray:
    """(Q, N) what each training sample adds to the margin of each query."""
    own, asked = gradients(model, *train), gradients(model, *queries)
    alike = own @ own.t()
    ridge = alike.diagonal().mean()
    unsure = 1 - torch.sigmoid(margins(model, *train).detach())
    found = torch.linalg.solve(alike + ridge * torch.eye(len(alike), device=alike.device), (asked @ own.t()).t())
    return (found.t() * unsure).cpu().numpy()


def whole(job: Job, weight: float, seed: int) -> dict[str, Any]:
    """A training on all samples: what `provnet.evaluate` says, and influence on the queries."""
    torch.set_num_threads(1)
    data, test = opened(job)
    model, prov = trained(job, data, weight, seed)
    run = prov.finish()
    found = provnet.evaluate(run, test=test, train=data, warn=False)
    model = model.eval().float().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    x, y = (run.network.prepare(one.inputs).to(job.device) for one in (data, test)), (data.labels, test.labels)
    pairs = [(one, labels.to(job.device)) for one, labels in zip(x, y, strict=True)]
    return {
        "accuracy": found.class_accuracy.value,
        "finds_itself": {name: one.value for name, one in found.index_accuracy_perturbed.items()},
        "influence": influence(model, pairs[0], (pairs[1][0][:QUERIES], pairs[1][1][:QUERIES])),
    }


def parts(job: Job, weight: float, subsets: np.ndarray, first: int) -> np.ndarray:
    """(Q, n) margins of the queries after trainings on some samples."""
    torch.set_num_threads(1)
    data, test = opened(job)
    found = []
    for number, subset in enumerate(subsets, first):
        model, prov = trained(job, data.select(np.flatnonzero(subset)), weight, 1000 + number)
        prov._tap.unhook()
        with torch.no_grad():
            x = test.inputs[:QUERIES].to(job.device).float() / 255
            found.append(margins(model.eval(), x, test.labels[:QUERIES].to(job.device)).float().cpu().numpy())
    return np.stack(found, 1)


def row(pool: ProcessPoolExecutor, job: Job, weight: float, subsets: np.ndarray) -> Any:
    """Tasks of one weight, as futures."""
    cut = range(0, len(subsets), TOGETHER)
    return (
        [pool.submit(whole, job, weight, seed) for seed in range(2)],
        [pool.submit(parts, job, weight, subsets[start : start + TOGETHER], start) for start in cut],
    )


def summed_up(given: Any, subsets: np.ndarray) -> dict[str, Any]:
    """The figures of one weight."""
    both = [one.result() for one in given[0]]
    came = np.concatenate([one.result() for one in given[1]], 1)
    scores = [one.pop("influence") for one in both]
    lds = np.mean([spearman(foretold(one, subsets), came) for one in scores], 0)
    return {
        "accuracy": [one["accuracy"] for one in both],
        "finds_itself": {name: [one["finds_itself"][name] for one in both] for name in both[0]["finds_itself"]},
        "trainings_agree": averaged(spearman(*scores), 0),
        "lds": averaged(lds, 0),
    }


def main() -> None:
    """Train, compare, and write after each weight."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--halves", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--weights", default="0,0.03,0.1,0.3,1")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    job = Job(asked.data, asked.data_dir, asked.limit, asked.epochs, None, True, device)
    weights = [float(one) for one in asked.weights.split(",")]
    train, test = opened(job)
    subsets = halves(len(train), asked.halves, 0)
    asked.out.mkdir(parents=True, exist_ok=True)
    about = asdict(replace(job, data=Path(job.data).stem, data_dir=None))
    found: dict[str, Any] = {
        "about": about | {"train": len(train), "test": len(test), "halves": len(subsets), "queries": QUERIES},
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "by_weight": {},
    }
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        rows = {weight: row(pool, job, weight, subsets) for weight in weights}
        for weight, given in rows.items():
            found["by_weight"][f"{weight:g}"] = summed_up(given, subsets)
            print(weight, json.dumps(found["by_weight"][f"{weight:g}"]), flush=True)
            (asked.out / "attach-weight.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
