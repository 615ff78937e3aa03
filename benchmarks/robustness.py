"""MNIST under 15 conditions: a single branch at α = 0, .1, ... 1 against an isolated CNN trained the same way.

    python benchmarks/robustness.py --data-dir DIR [--device cuda] [--epochs 15] [--batch-size 1024]
        [--alphas 0 0.5 1] [--seeds 1] [--data mnist] [--limit N] [--out benchmarks/results/robustness.json]

All networks have one backbone, one recipe and one fixed distorted test set. The isolated CNN is the same backbone with
a class head: a class-conditional network whose index loss has weight 0, so that nothing but the class trains it. With
several --seeds, each seed trains its own isolated CNN and its own networks, and `each_seed` has the difference from the
CNN of its seed. A difference is called sure where its interval over the test samples, made wider for the number of α
compared, leaves out 0, and all seeds agree.
Prints a table; JSON with every figure, n, interval, seconds, device, versions, commit.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from machine import machine

import provnet
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.runs.run import Run
from provnet.tools.robustness.compute import ATTACKS, CONDITIONS, Measured, measure, paired_difference
from provnet.training.config import train_config
from provnet.training.fit import fit

CNN = "isolated CNN"
NAMED = ("occlusion", "translation", "blur", "motion")  # where the paper says that mixing helps


def train(data: Any, alpha: float | None, seed: int, given: argparse.Namespace) -> Run:
    """One network; alpha None is the isolated CNN."""
    changes = {"epochs": given.epochs, "batch_size": given.batch_size, "lr": given.lr, "seed": seed}
    if alpha is None:
        config = train_config(given.preset, **changes, index_weight=0.0)
        return fit(
            data, config.using(network="class-conditional", backbone=given.backbone), RunOptions(device=given.device)
        )
    config = train_config(given.preset, **changes)
    return fit(
        data, config.using(network="single", backbone=given.backbone, alpha=alpha), RunOptions(device=given.device)
    )


def one_seed(seed: int, train_data: Any, test: Any, given: argparse.Namespace) -> tuple[list[Measured], list[dict]]:
    """Train and measure the isolated CNN and every α."""
    measured, times = [], []
    for alpha in (None, *given.alphas):
        name = CNN if alpha is None else f"α {alpha:g}"
        began = time.perf_counter()
        run = train(train_data, alpha, seed, given)
        trained = time.perf_counter() - began
        began = time.perf_counter()
        run.network.to(given.device)
        attacks = list(ATTACKS) if seed == given.first_seed and not given.no_attacks else []
        more = {"attacks": attacks, "epsilon": given.epsilon, "attacked": given.attacked}
        measured.append(measure(run, test, name=name, seed=0, **more))
        asked = time.perf_counter() - began
        times.append({"seed": seed, "network": name, "train_s": round(trained, 2), "measure_s": round(asked, 2)})
        clean = measured[-1].rows[0].figures
        print(f"seed {seed} {name}: top-1 {clean['top_1'].value:.4f}, {trained:.1f} s + {asked:.1f} s", flush=True)
        del run
    return measured, times


def pooled(seeds: list[list[Measured]], alphas: list[float]) -> list[dict[str, Any]]:
    """One line a condition and α: rates over all seeds, and the difference from the isolated CNNs."""
    lines = []
    for number, condition in enumerate(row.condition for row in seeds[0][0].rows):
        there = [seed for seed in seeds if number < len(seed[0].rows)]
        theirs = [seed[0].rows[number].right for seed in there]
        for place, alpha in enumerate(alphas):
            ours = [seed[1 + place].rows[number].right for seed in there]
            gain = difference(np.stack(ours), np.stack(theirs), len(alphas))
            each = [float(a.mean() - b.mean()) for a, b in zip(ours, theirs, strict=True)]
            figures = [seed[1 + place].rows[number].figures for seed in there]
            lines.append(
                {
                    "condition": condition,
                    "alpha": alpha,
                    **{name: _together([one[name] for one in figures]) for name in figures[0]},
                    "cnn_top_1": _together([seed[0].rows[number].figures["top_1"] for seed in there]),
                    "cnn_top_5": _together([seed[0].rows[number].figures["top_5"] for seed in there]),
                    "against_cnn": gain,
                    "each_seed": [round(value, 4) for value in each],
                }
            )
    return lines


def difference(ours: np.ndarray, theirs: np.ndarray, comparisons: int) -> dict[str, Any]:
    """Of (seeds, n) right answers: mean difference over the test samples, each one's mean over the seeds taken first.

    With several seeds it is called better or worse only where they all agree, too: the interval knows nothing of the
    luck of training.
    """
    if len(ours) == 1:
        return paired_difference(ours[0], theirs[0], comparisons).to_json()
    each = (ours.astype(float) - theirs).mean(0)
    value, n = float(each.mean()), len(each)
    half = NormalDist().inv_cdf(1 - 0.025 / comparisons) * float(each.std(ddof=1)) / n**0.5
    signs = (ours.mean(1) - theirs.mean(1)).tolist()
    return {
        "value": value,
        "n": n,
        "low": value - half,
        "high": value + half,
        "better": value - half > 0 and all(sign > 0 for sign in signs),
        "worse": value + half < 0 and all(sign < 0 for sign in signs),
    }


def _together(rates: list[Any]) -> dict[str, Any]:
    return wilson(round(sum(rate.value * rate.n for rate in rates)), sum(rate.n for rate in rates)).to_json()


def verdicts(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """By condition: the best α, whether it is surely better than the isolated CNN; the paper's claim, tested."""
    found: dict[str, Any] = {}
    for condition in dict.fromkeys(line["condition"] for line in lines):
        mine = [line for line in lines if line["condition"] == condition]
        best = max(mine, key=lambda line: line["top_1"]["value"])
        found[condition] = {
            "best_alpha": best["alpha"],
            "best_top_1": best["top_1"]["value"],
            "cnn_top_1": best["cnn_top_1"]["value"],
            "surely_better_at": [line["alpha"] for line in mine if line["against_cnn"]["better"]],
            "surely_worse_at": [line["alpha"] for line in mine if line["against_cnn"]["worse"]],
            "claimed_by_the_paper": condition.split("-")[0] in NAMED,
        }
    return found


def main() -> None:
    """Train, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=None)
    parser.add_argument("--alphas", type=float, nargs="*", default=[round(0.1 * i, 1) for i in range(11)])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--attacked", type=int, default=1000)
    parser.add_argument("--no-attacks", action="store_true")
    parser.add_argument("--seconds", type=float, default=None, help="begin no further seed after so many")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "robustness.json")
    given = parser.parse_args()
    began = time.perf_counter()
    train_data, test = (
        provnet.open_data(given.data, split=split, data_dir=given.data_dir, limit=given.limit)
        for split in ("train", "test")
    )
    about = machine()
    seeds, times = [], []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        spent = time.perf_counter() - began
        if seeds and given.seconds and spent + spent / len(seeds) > given.seconds:
            print(f"no time for seed {seed}: {spent:.0f} of {given.seconds:.0f} s", flush=True)
            break
        measured, spans = one_seed(seed, train_data, test, given)
        seeds.append(measured)
        times += spans
        lines = pooled(seeds, given.alphas)
        result = {
            "machine": about,
            "settings": {name: v for name, v in vars(given).items() if name not in ("data_dir", "out")},
            "train_samples": len(train_data),
            "test_samples": len(test),
            "test_fingerprint": test.samples.fingerprint,
            "seeds": len(seeds),
            "seconds": round(time.perf_counter() - began, 1),
            "times": times,
            "verdicts": verdicts(lines),
            "lines": lines,
        }
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    words = {name: one.words for name, one in CONDITIONS.items()}
    print(f"\n{'condition':30}{'CNN':>8}{'best':>8}{'at α':>7}  surely better at α")
    for condition, found in verdicts(lines).items():
        better = ", ".join(f"{alpha:g}" for alpha in found["surely_better_at"]) or "-"
        name = words.get(condition, condition) + (" (paper)" if found["claimed_by_the_paper"] else "")
        print(f"{name:30}{found['cnn_top_1']:8.2%}{found['best_top_1']:8.2%}{found['best_alpha']:7g}  {better}")


if __name__ == "__main__":
    main()
