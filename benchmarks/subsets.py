"""An index over some samples: class accuracy, class match of the exemplars and numbers stored; table and JSON.

    python benchmarks/subsets.py [--data embedded] [--data-dir DIR] [--shares 10% 30% 100%] [--epochs N] [--limit N]
        [--network class-independent] [--head plain] [--classes-on all] [--preset fast] [--device cpu] [--seed 0]
        [--out benchmarks/results/subsets.json]

Each network is trained from the same seed on the same data; only what is indexed differs. The features for prototypes,
boundary and diverse come from one class branch trained alone (5 epochs of preset fast), made once. 100 % is one run, as
all ways choose the same there. Class match is any@k: whether one of the k exemplars of a test picture has its class; a
class-independent network is measured, as a conditional one names samples of the predicted class by construction.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from machine import machine

from provnet import open_data
from provnet.answers.evaluation import evaluate
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.subsets import SELECTIONS, index_subset, quick_run, subset_record
from provnet.training.config import train_config
from provnet.training.fit import fit

SHOWN = ("class_accuracy", "any_at_1", "any_at_5", "any_at_10", "majority_at_5", "index_accuracy")


def measure(
    share: str, select: str, train: ImageData, test: ImageData, quick: Run, given: argparse.Namespace
) -> dict[str, Any]:
    """Choose, train and evaluate one network."""
    source = None if select == "stratified" else quick
    chosen = index_subset(
        train, share, select, classes_on=given.classes_on, run=source, seed=given.seed, device=given.device
    )
    config = train_config(given.preset, epochs=given.epochs, seed=given.seed)
    began = time.perf_counter()
    run = fit(
        train,
        config.using(network=given.network, head=given.head),
        RunOptions(device=given.device, progress=True),
        index_subset=chosen,
    )
    seconds = round(time.perf_counter() - began, 1)
    found = evaluate(run, test, train.select(chosen.rows)).to_json()
    return {**subset_record(run, train), "seconds": seconds, "figures": {name: found[name] for name in SHOWN}}


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = ["indexed  selection     class    any@1    any@5   any@10   index head   saved"]
    for row in rows:
        figures = [f"{100 * row['figures'][name]['value']:7.2f}" for name in SHOWN[:4]]
        saved = 1 - row["index_head"] / row["index_head_of_all"]
        start = f"{row['indexed']:7,}  {row['select']:10s}"
        lines.append(f"{start} {'  '.join(figures)}  {row['index_head']:11,}  {saved:5.1%}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="embedded")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--shares", nargs="*", default=["10%", "30%", "100%"])
    parser.add_argument("--select", nargs="*", default=list(SELECTIONS), choices=SELECTIONS)
    parser.add_argument("--network", default="class-independent")
    parser.add_argument("--head", default="plain")
    parser.add_argument("--classes-on", default="all")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    train = open_data(given.data, data_dir=given.data_dir, limit=given.limit)
    test = open_data(given.data, data_dir=given.data_dir, split="test")
    quick = quick_run(train, seed=given.seed, device=given.device, progress=True)
    rows: list[dict[str, Any]] = []
    settings = {name: value for name, value in vars(given).items() if name not in ("out", "data_dir")}
    about = {"machine": machine(rates=False), "settings": settings, "train": len(train), "test": len(test)}
    for share in given.shares:
        for select in given.select if share != "100%" else ["stratified"]:
            rows.append(measure(share, select, train, test, quick, given))
            print(table(rows[-1:]), flush=True)
            if given.out is not None:
                given.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
