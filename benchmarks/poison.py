"""Do exemplars expose a poisoned data set? A backdoor patch and a shortcut tag, planted; table, JSON, contact sheet.

    PYTHONPATH=benchmarks/influence python benchmarks/poison.py [--data embedded] [--data-dir DIR] [--limit N]
        [--epochs N] [--device cpu] [--seed 0] [--share 0.01] [--tagged 0.5] [--only backdoor shortcut]
        [--out benchmarks/results/poison.json]
        [--picture docs/images/poison.png]

backdoor  a white square of 3 x 3 in the lower right corner of 1 % of the training pictures of other classes, which are
          relabelled as the target class (0). Queries: test pictures of other classes with the square.
shortcut  a white square of 3 x 3 in the upper left corner of half of the pictures of one class (7), labels untouched.
          Queries: test pictures of other classes with the tag.

Two networks each: class-conditional with the plain head (preset fast), class-independent with keys (preset robust).
Planted samples among the 5 exemplars of the queries are compared with their share of the training set, with their share
of the class that was answered, and with the same queries without the square. Intervals: over queries, 1,000 draws of
a bootstrap; Wilson's for rates. The share of planted samples among the first 20 is given for identity weights,
influence weights and TRAK with the same network (its ridge is the mean of the diagonal).
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
from rivals import Trak
from subjects import Data, Recipe
from torch import Tensor, nn

from provnet import explain, open_data
from provnet.answers.explanation import Explanation
from provnet.base.options import RunOptions
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import ImageData
from provnet.influence.of_run import prepare_influence
from provnet.report.records import ExemplarCard, ExplanationCard
from provnet.report.sheet import explanation_png
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit

SIDE, WHITE, K = 3, 255, 5
TARGET, TAGGED_CLASS = 0, 7
SHORT = {"plain": "plain head", "exemplar": "keys"}
NETWORKS: dict[str, dict[str, str]] = {
    "class-conditional, plain head": {"network": "class-conditional", "head": "plain", "preset": "fast"},
    "class-independent, keys": {"network": "class-independent", "head": "exemplar", "preset": "robust"},
}


def lower_right(images: Tensor) -> Tensor:
    """A copy with the square of the backdoor, one pixel off the corner."""
    out = images.clone()
    out[..., -SIDE - 1 : -1, -SIDE - 1 : -1] = WHITE
    return out


def upper_left(images: Tensor) -> Tensor:
    """A copy with the tag."""
    out = images.clone()
    out[..., 1 : SIDE + 1, 1 : SIDE + 1] = WHITE
    return out


def backdoor(data: ImageData, given: argparse.Namespace) -> tuple[ImageData, np.ndarray]:
    """The data with some pictures marked and relabelled, and which."""
    others = np.flatnonzero(data.samples.labels != TARGET)
    rng = np.random.default_rng([given.seed, 1])
    chosen = rng.choice(others, round(given.share * len(data)), replace=False)
    labels = data.samples.labels.copy()
    labels[chosen] = TARGET
    return planted(data, chosen, lower_right, labels)


def shortcut(data: ImageData, given: argparse.Namespace) -> tuple[ImageData, np.ndarray]:
    """The data with a tag on some pictures of one class, and which."""
    mine = np.flatnonzero(data.samples.labels == TAGGED_CLASS)
    chosen = np.random.default_rng([given.seed, 2]).choice(mine, round(given.tagged * len(mine)), replace=False)
    return planted(data, chosen, upper_left, data.samples.labels)


PARTS: dict[str, tuple[Callable[..., tuple[ImageData, np.ndarray]], Callable[[Tensor], Tensor], int]] = {
    "backdoor": (backdoor, lower_right, TARGET),
    "shortcut": (shortcut, upper_left, TAGGED_CLASS),
}


def planted(
    data: ImageData, rows: np.ndarray, mark: Callable[[Tensor], Tensor], labels: np.ndarray
) -> tuple[ImageData, np.ndarray]:
    """Mark some pictures; every sample is hashed as it is then."""
    images = data.images.clone()
    images[rows] = mark(images[rows])
    flags = np.zeros(len(data), dtype=np.bool_)
    flags[rows] = True
    return open_data(images.numpy(), labels, class_names=data.class_names), flags


def mean(shares: np.ndarray, seed: int = 0, draws: int = 1000) -> Interval:
    """The mean over queries, with a bootstrap interval over queries: the exemplars of one query belong together.

    Where all queries agree on 0 or 1 draws say nothing: Wilson's interval, as if each query were one yes or no.
    """
    total = float(shares.sum())
    if total in (0.0, float(len(shares))):
        return wilson(total, len(shares))
    found = np.random.default_rng(seed).choice(shares, (draws, len(shares))).mean(1)
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(float(shares.mean()), len(shares), float(low), float(high))


def figures(found: Explanation, flags: np.ndarray, goal: int) -> dict[str, Any]:
    """Planted samples among the exemplars of all queries, and of those that were answered with the goal."""
    hits = np.where(found.index >= 0, flags[np.maximum(found.index, 0)], False)
    fell = found.predicted == goal
    return {
        "answered_with_goal": wilson(int(fell.sum()), len(fell)).to_json(),
        "planted_among_exemplars": mean(hits.mean(1)).to_json(),
        "planted_where_it_worked": mean(hits[fell].mean(1)).to_json(),
        "planted_where_it_did_not": mean(hits[~fell].mean(1)).to_json(),
        "query_with_one_or_more": wilson(int(hits.any(1).sum()), len(hits)).to_json(),
        "best_exemplar_planted": wilson(int(hits[:, 0].sum()), len(hits)).to_json(),
        "supported": wilson(int(found.supported.sum()), len(hits)).to_json(),
    }


def first_twenty(run: Run, data: ImageData, flags: np.ndarray, marked: Tensor, goal: int) -> dict[str, Any]:
    """The share of planted samples among the 20 that stand first, for queries that the mark led astray."""
    prepared = prepare_influence(run, data)
    answers = explain(prepared, marked, k=1).predicted
    fell = marked[torch.from_numpy(np.flatnonzero(answers == goal))]
    if len(fell) == 0:
        return {}
    named = {weights: explain(prepared, fell, k=20, weights=weights).index for weights in ("plain", "influence")}
    network = run.network.eval()
    branch = nn.Sequential(network.backbone, network.task_head).eval()
    device = next(network.parameters()).device
    x, asked = (network.normalise(images.to(device)).float() for images in (data.images, fell))
    classes = torch.full((len(fell),), goal, device=device)
    labels = data.labels.to(device)
    trak = Trak(Data(x, labels, asked, classes), Recipe(1, 1, 1.0), classes, 2048, 250)
    with torch.no_grad():
        wrong = 1 - torch.cat([branch(each) for each in torch.split(x, 500)]).softmax(1)
    sums = trak.foretold(branch, 0, [torch.diag(wrong.gather(1, labels[:, None])[:, 0])])
    named["TRAK x1"] = sums["width 2048, ridge 1"][0].topk(20).indices.cpu().numpy()
    return {name: mean(np.where(rows >= 0, flags[rows], False).mean(1)).to_json() for name, rows in named.items()}


def measure(
    part: str, name: str, train: ImageData, test: ImageData, given: argparse.Namespace
) -> tuple[dict[str, Any], list[ExplanationCard]]:
    """Plant, train, ask with and without the mark."""
    plant, mark, goal = PARTS[part]
    data, flags = plant(train, given)
    how = NETWORKS[name]
    config = train_config(how["preset"], epochs=given.epochs, seed=given.seed)
    began = time.perf_counter()
    run = fit(
        data, config.using(network=how["network"], head=how["head"]), RunOptions(device=given.device, progress=True)
    )
    seconds = round(time.perf_counter() - began, 1)
    asked = test.select(np.flatnonzero(test.samples.labels != goal))
    marked = mark(asked.images)
    with_mark, without = explain(run, marked, k=K), explain(run, asked.images, k=K)
    clean = explain(run, test.images, k=1)
    answered = data.samples.labels == goal
    record = {
        "part": part,
        "network": name,
        "recipe": {**how, "epochs": config.epochs},
        "seconds": seconds,
        "planted": int(flags.sum()),
        "train": len(data),
        "base_rate": float(flags.mean()),
        "base_rate_within_goal_class": float(flags[answered].mean()),
        "class_accuracy_clean": wilson(int((clean.predicted == test.samples.labels).sum()), len(test)).to_json(),
        "with_mark": figures(with_mark, flags, goal),
        "planted_among_first_20": first_twenty(run, data, flags, marked, goal),
        "without_mark": figures(without, flags, goal),
    }
    first = np.flatnonzero(with_mark.predicted == goal)[:1]
    return record, cards(
        run, data, flags, with_mark[first], marked[first], asked, first, f"{part}, {SHORT[how['head']]}"
    )


def cards(
    run: Run,
    data: ImageData,
    flags: np.ndarray,
    found: Explanation,
    queries: Tensor,
    asked: ImageData,
    rows: np.ndarray,
    name: str,
) -> list[ExplanationCard]:
    """The first query that the mark led astray, with its exemplars; planted ones say so."""
    made = []
    for query, row, one in zip(queries, rows.tolist(), found, strict=True):
        exemplars = tuple(
            ExemplarCard(
                picture=data.images[item.index, 0].numpy(),
                sample_id=item.sample_id,
                sha256=item.sha256,
                label=f"{item.label}, planted" if flags[item.index] else item.label,
                weight=item.weight,
            )
            for item in one.exemplars
        )
        truth = asked.class_names[int(asked.samples.labels[row])]
        made.append(
            ExplanationCard(query[0].numpy(), name, one.predicted, one.confidence, one.supported, exemplars, truth)
        )
    return made


def percent(value: dict[str, Any]) -> str:
    """One figure with its interval."""
    if value["value"] is None:
        return "none (n = 0)"
    return f"{value['value']:.1%} ({value['low']:.1%} to {value['high']:.1%}, n = {value['n']:,})"


def show(row: dict[str, Any]) -> None:
    """For people."""
    base = f"{row['base_rate']:.2%} of all, {row['base_rate_within_goal_class']:.1%} of the class answered"
    print(f"{row['part']}, {row['network']}: {row['planted']} planted samples, {base}; {row['seconds']} s")
    for side in ("with_mark", "without_mark"):
        for name, value in row[side].items():
            print(f"  {side:12s} {name:26s} {percent(value)}")
    for name, value in row["planted_among_first_20"].items():
        print(f"  among the first 20, {name:24s} {percent(value)}")
    print(f"  class accuracy on clean test pictures   {percent(row['class_accuracy_clean'])}", flush=True)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="embedded")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--tagged", type=float, default=0.5)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--picture", type=Path, default=None)
    given = parser.parse_args()
    train = open_data(given.data, data_dir=given.data_dir, limit=given.limit)
    test = open_data(given.data, data_dir=given.data_dir, split="test")
    settings = {name: value for name, value in vars(given).items() if name not in ("out", "picture", "data_dir")}
    about = {"machine": machine(rates=False), "settings": settings, "k": K, "test": len(test)}
    rows, sheet = [], []
    for part in given.only:
        for name in NETWORKS:
            row, shown = measure(part, name, train, test, given)
            rows.append(row)
            sheet += shown
            show(row)
            if given.out is not None:
                given.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")
    if given.picture is not None and sheet:
        explanation_png(sheet).save(given.picture, optimize=True)


if __name__ == "__main__":
    main()
