"""Trust checks of MNIST models: abstention on noise and FashionMNIST, a left-out digit, other weights; table and JSON.

    python benchmarks/trust.py --data-dir DIR [--device cuda] [--out benchmarks/results/trust.json]
        [--model default robust] [--limit N] [--epochs N] [--leave-out 9] [--seed 0] [--runs DIR]

default  class-conditional, preset `fast`: what `provnet train mnist` makes.
robust   class-independent with keys, preset `robust`.

Own pictures are all test images; strangers are uniform noise, one colour, drawn letters and shapes, and the test images
of FashionMNIST, as many of each. The threshold is the run's own: it was set on distorted training samples, never on
what is measured here. For the left-out digit a network is trained without it. Bars: at least 95 % of noise and
FashionMNIST unsupported, at most 5 % of the test images. Without --limit and --epochs: 60,000 digits, the preset's
epochs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine

from provnet import open_data
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.models.network import parameter_count
from provnet.runs.run import Run, has_run, read_run
from provnet.tools.trust.compute import LeftOut, check
from provnet.tools.trust.page import outcome_row
from provnet.training.config import train_config
from provnet.training.fit import fit

MODELS = {
    "default": {"network": "class-conditional", "preset": "fast"},
    "robust": {"network": "class-independent", "preset": "robust"},
}
LEAST, MOST = 0.95, 0.05


def trained(name: str, how: dict[str, str], data: ImageData, given: argparse.Namespace) -> tuple[Run, float | None]:
    """A run on the device, and the seconds of its training; None where it was there."""
    folder = None if given.runs is None else given.runs / name
    began, seconds = time.perf_counter(), None
    if folder is not None and has_run(folder):
        run = read_run(folder)
    else:
        config = train_config(how["preset"], epochs=given.epochs, seed=given.seed)
        run = fit(
            data, config.using(network=how["network"]), RunOptions(device=given.device, out=folder, progress=True)
        )
        seconds = round(time.perf_counter() - began, 1)
    run.network.to("cuda" if torch.cuda.is_available() and given.device != "cpu" else "cpu")
    return run, seconds


def without(data: ImageData, label: int) -> ImageData:
    """The data without one class, which keeps its name but has no sample."""
    return data.select(np.flatnonzero(data.samples.labels != label))


def measure(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train a model, and one without a digit; check both."""
    train = open_data("mnist", data_dir=given.data_dir, limit=given.limit)
    test = open_data("mnist", split="test", data_dir=given.data_dir)
    fashion = open_data("fashion-mnist", split="test", data_dir=given.data_dir)
    run, seconds = trained(name, MODELS[name], train, given)
    left_out = None
    if given.leave_out is not None:
        smaller, _ = trained(f"{name}-without-{given.leave_out}", MODELS[name], without(train, given.leave_out), given)
        rows = test.samples.labels == given.leave_out
        sides = [test.images[torch.from_numpy(np.flatnonzero(mine))] for mine in (~rows, rows)]
        left_out = LeftOut(smaller, sides[0], sides[1], f"left-out digit {given.leave_out}")
    began = time.perf_counter()
    others = {"fashion-mnist": fashion.images}
    found = check(run, test, train, others=others, left_out=left_out, limit=given.pictures, seed=given.seed)
    values = found.to_json()
    for part in ("abstention", "left_out"):
        if values[part] is not None:
            del values[part]["histogram"]
    kinds = found.abstention.kinds
    rates = {each: kinds[each].abstained for each in ("noise", "fashion-mnist")} | {"own": found.abstention.own}
    met = {each: bool((one.value or 0) >= LEAST) for each, one in rates.items()}
    met["own"] = bool((rates["own"].value or 0) <= MOST)
    return {
        "model": name,
        "how": MODELS[name],
        "training_samples": len(train),
        "epochs": run.config.training["training"]["epochs"],
        "parameters": parameter_count(run.network),
        "train_seconds": seconds,
        "check_seconds": round(time.perf_counter() - began, 1),
        "must_show": {each: {**one.to_json(), "met": met[each]} for each, one in rates.items()},
        **values,
    }


def table(one: dict[str, Any]) -> str:
    """The figures as people read them."""
    lines = [f"{one['model']}: {one['training_samples']:,} training samples, {one['epochs']} epochs"]
    for each in one["outcomes"]:
        row = outcome_row(each)
        figure = f"{row.value} ({row.ends}, n = {row.n})" if row.value else ""
        lines.append(f"  {row.state:12} {row.words:68} {figure}  {row.note}")
    for name, bar in one["must_show"].items():
        wanted = f"at most {MOST:.0%}" if name == "own" else f"at least {LEAST:.0%}"
        words = "test images" if name == "own" else name
        lines.append(f"  bar, {words} unsupported: {bar['value']:.2%}, {wanted}: {'met' if bar['met'] else 'NOT MET'}")
    return "\n".join(lines)


def main() -> None:
    """Train, check, print, write after each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--leave-out", type=int, default=9)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in given.model:
        results.append(measure(name, given))
        print(table(results[-1]), flush=True)
        if given.out is not None:
            about = {"machine": machine(rates=False), "seed": given.seed, "limit": given.limit}
            given.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
