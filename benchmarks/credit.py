"""Credit with a planted truth: queries in one contributor's style must credit that contributor first; table and JSON.

    python benchmarks/credit.py --data-dir DIR [--device cuda] [--out benchmarks/results/credit.json]
        [--limit 5000] [--epochs 12] [--trials 200] [--seed 0] [--run DIR]

Eight contributors gave MNIST digits, each in a style of their own; the first has three times as many as each other. One
network is trained once on all of them (class-independent, preset `robust`), for digits alone: nothing tells it who
contributed a sample. A trial is a set of unseen digits of one style; a query that no sample supports credits nobody,
and a trial in which nobody is credited is lost. Beside it: single queries, the five largest weights only, and the
nearest neighbour by pixels.
"""

from __future__ import annotations

import argparse
import json
import math
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
from provnet.base.options import RunOptions
from provnet.base.stats import Interval, wilson
from provnet.runs.run import Run, has_run, read_run
from provnet.tools.credit.compute import Credit, credit
from provnet.training.config import train_config
from provnet.training.fit import fit

LEAST = 0.95


def as_bytes(values: Tensor) -> Tensor:
    """Rounded to bytes."""
    return values.round().clamp(0, 255).to(torch.uint8)


def blurred(images: Tensor, sigma: float = 1.3) -> Tensor:
    """Gaussian blur."""
    weights = torch.tensor([math.exp(-0.5 * (step / sigma) ** 2) for step in range(-4, 5)])
    weights = weights / weights.sum()
    across = F.conv2d(images.float(), weights.view(1, 1, 1, 9), padding=(0, 4))
    return as_bytes(F.conv2d(across, weights.view(1, 1, 9, 1), padding=(4, 0)))


def framed(images: Tensor) -> Tensor:
    """A white frame, one pixel wide."""
    out = images.clone()
    out[..., [1, -2], 1:-1] = 255
    out[..., 1:-1, [1, -2]] = 255
    return out


def ruled(images: Tensor) -> Tensor:
    """On lined paper."""
    out = images.clone()
    out[..., 3::6, :] = out[..., 3::6, :].clamp(min=110)
    return out


STYLES: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda images: images,
    "thick": lambda images: as_bytes(F.max_pool2d(images.float(), 3, 1, 1)),
    "turned": lambda images: images.rot90(1, (2, 3)),
    "inverted": lambda images: 255 - images,
    "framed": framed,
    "blurred": blurred,
    "faint": lambda images: as_bytes(images.float() * 0.4),
    "ruled": ruled,
}


def mixed(images: Tensor, seed: int) -> tuple[Tensor, list[str]]:
    """Each picture in the style of one contributor, and who that is; the first has three parts in ten."""
    n, names = len(images), list(STYLES)
    ends = np.cumsum([round(n * (0.3 if number == 0 else 0.1)) for number in range(len(names))])[:-1]
    out, who = images.clone(), [""] * n
    for name, rows in zip(names, np.split(np.random.default_rng([seed, 1]).permutation(n), ends), strict=True):
        out[torch.from_numpy(rows)] = STYLES[name](images[torch.from_numpy(rows)])
        for row in rows.tolist():
            who[row] = name
    return out, who


def trained(images: Tensor, labels: np.ndarray, given: argparse.Namespace) -> tuple[Run, float | None]:
    """The network, and the seconds of its training; None where it was there."""
    if given.run is not None and has_run(given.run):
        return read_run(given.run), None
    began = time.perf_counter()
    config = train_config("robust", epochs=given.epochs, seed=given.seed)
    data = open_data(images[:, 0].numpy(), labels)
    run = fit(
        data, config.using(network="class-independent"), RunOptions(device=given.device, out=given.run, progress=True)
    )
    return run, round(time.perf_counter() - began, 1)


def first(found: Credit) -> str | None:
    """Who has the largest share, or nobody."""
    return found.ranking[0].name if found.supported else None


def nearest(queries: Tensor, samples: Tensor, who: list[str]) -> str:
    """The contributor who has most of the nearest neighbours by pixels."""
    away = torch.cdist(queries.flatten(1).float(), samples.flatten(1).float())
    names, counts = np.unique([who[row] for row in away.argmin(1).tolist()], return_counts=True)
    return str(names[counts.argmax()])


def trials(run: Run, samples: Tensor, who: list[str], unseen: Tensor, given: argparse.Namespace) -> dict[str, Any]:
    """How often the planted contributor is first, by way of counting and number of queries."""
    chance, names = np.random.default_rng([given.seed, 2]), list(STYLES)
    ways: dict[str, list[bool]] = {}
    single: dict[str, list[bool]] = {name: [] for name in names}
    shares, queries, supported = [], 0, 0
    for trial in range(given.trials):
        planted = names[trial % len(names)]
        rows = torch.from_numpy(chance.choice(len(unseen), given.queries, replace=False))
        pictures = STYLES[planted](unseen[rows])
        for k in (0, 5):
            found = credit(run, pictures, who, k=k, draws=20, seed=given.seed)
            words = "all weights" if k == 0 else f"the {k} largest weights"
            ways.setdefault(f"{given.queries} queries, {words}", []).append(first(found) == planted)
            credited = found.by_query.sum(1) > 0
            place = [one.name for one in found.ranking].index(planted)
            hits = credited & (found.by_query.argmax(1) == place)
            ways.setdefault(f"1 query, {words}", []).append(bool(hits[0]))
            if k == 0:
                shares.append(found.ranking[place].share.value or 0.0)
                queries, supported = queries + found.queries, supported + found.supported
                single[planted] += hits[credited].tolist()
        ways.setdefault(f"{given.queries} queries, nearest by pixels", []).append(
            nearest(pictures, samples, who) == planted
        )
    return {
        "first": {name: rate(hits).to_json() for name, hits in ways.items()},
        "single_queries_that_are_supported": {name: rate(hits).to_json() for name, hits in single.items()},
        "share_of_the_planted": round(float(np.mean(shares)), 4),
        "supported": wilson(supported, queries).to_json(),
    }


def rate(hits: list[bool]) -> Interval:
    """A share with its interval."""
    return wilson(sum(hits), len(hits))


def table(result: dict[str, Any]) -> str:
    """The figures as people read them."""
    lines = [f"{result['samples']:,} samples, {result['trials']} trials, trained in {result['train_seconds']} s"]
    for title in ("first", "single_queries_that_are_supported"):
        lines.append(title.replace("_", " "))
        lines += [f"  {name:34} {Interval(**one)}" for name, one in result[title].items()]
    lines.append(f"supported queries {Interval(**result['supported'])}")
    bar = result["bar"]
    lines.append(
        f"bar, {bar['figure']}: {bar['value']:.1%}, at least {LEAST:.0%}: {'met' if bar['met'] else 'NOT MET'}"
    )
    return "\n".join(lines)


def main() -> None:
    """Train once, try, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--limit", type=int, default=5_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = open_data("mnist", data_dir=given.data_dir, limit=given.limit)
    unseen = open_data("mnist", split="test", data_dir=given.data_dir).images
    samples, who = mixed(data.images, given.seed)
    run, seconds = trained(samples, data.samples.labels, given)
    run.network.to("cuda" if torch.cuda.is_available() and given.device != "cpu" else "cpu")
    found = trials(run, samples, who, unseen, given)
    chief = f"{given.queries} queries, all weights"
    value = found["first"][chief]["value"]
    result = {
        "machine": machine(rates=False),
        "network": "class-independent, preset robust",
        "samples": len(samples),
        "contributors": {name: who.count(name) for name in STYLES},
        "epochs": run.config.training["training"]["epochs"],
        "seed": given.seed,
        "trials": given.trials,
        "queries_a_trial": given.queries,
        "train_seconds": seconds,
        **found,
        "bar": {"figure": chief, "value": value, "least": LEAST, "met": value >= LEAST},
    }
    print(table(result))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
