"""Membership on whole data sets: the paper's softmax head, and preset `robust` under distortion; table and JSON.

    python benchmarks/membership.py --data-dir DIR [--data mnist fashion-mnist cifar10] [--part paper robust]
        [--device cuda] [--out benchmarks/results/membership.json] [--limit N] [--epochs N] [--seed 42]
        [--runs DIR] [--report DIR]

paper   class-conditional, preset `paper`, 40 epochs. AUC from 5,000 members and 5,000 nonmembers drawn by the seed;
        rates at 1 % and 0.1 % FPR with all test images as nonmembers.
robust  class-independent with keys, preset `robust`. Members and nonmembers distorted alike.

Members and nonmembers are judged by the predicted class. With --runs the runs are kept and
used again; --limit is of the training samples.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from machine import machine

from provnet import open_data
from provnet.base.batches import keyed_generator
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.models.network import parameter_count
from provnet.runs.run import Run, has_run, read_run
from provnet.tools.membership.compute import SCORES, Audit, audit, audit_scores, member_scores
from provnet.training.config import train_config
from provnet.training.fit import fit

DRAWN = 5_000
# what may meet a bar: the paper's scores of the index branch, and ours where members are distorted
INDEX = {"paper": ("index_confidence", "index_entropy")}
INDEX["robust"] = (*INDEX["paper"], "similarity", "contrast")
PARTS: dict[str, dict[str, Any]] = {
    "paper": {"network": "class-conditional", "preset": "paper", "head": "plain", "epochs": 40},
    "robust": {"network": "class-independent", "preset": "robust", "head": "exemplar", "epochs": None},
}
BARS = {
    ("paper", "mnist", "clean"): 0.99,
    ("paper", "fashion-mnist", "clean"): 0.99,
    ("paper", "cifar10", "clean"): 0.99,
    ("robust", "mnist", "noise-0.05"): 0.97,
    ("robust", "mnist", "shift"): 0.97,
    ("robust", "cifar10", "noise-0.05"): 0.95,
    ("robust", "cifar10", "shift"): 0.95,
}


def drawn(data: ImageData, count: int, seed: int) -> ImageData:
    """So many samples, drawn by the seed."""
    return data.select(torch.randperm(len(data), generator=keyed_generator(seed, 42))[:count])


def trained(part: str, name: str, data: ImageData, given: argparse.Namespace) -> tuple[Run, float | None]:
    """The run of a part, and the seconds of its training; None where it was there."""
    folder = None if given.runs is None else given.runs / f"{part}-{name}"
    if folder is not None and has_run(folder):
        return read_run(folder), None
    how = PARTS[part]
    config = train_config(how["preset"], epochs=given.epochs or how["epochs"], seed=given.seed)
    began = time.perf_counter()
    run = fit(
        data,
        config.using(network=how["network"], head=how["head"]),
        RunOptions(out=folder, device=given.device, progress=True),
    )
    return run, round(time.perf_counter() - began, 1)


def measure(part: str, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train one network and audit it."""
    train = open_data(name, data_dir=given.data_dir, limit=given.limit)
    test = open_data(name, split="test", data_dir=given.data_dir)  # all: its first images are not like the others
    run, seconds = trained(part, name, train, given)
    device = "cuda" if torch.cuda.is_available() and given.device != "cpu" else "cpu"
    run.network.to(device)
    began = time.perf_counter()
    members, others = (drawn(data, min(DRAWN, len(data)), given.seed) for data in (train, test))
    found = audit(run, members, others, distort=True, seed=given.seed, progress=True)
    every = member_scores(run, test.images)
    own = member_scores(run, members.images)
    low = {name: audit_scores(own.values[name], every.values[name]) for name in SCORES}
    if given.report is not None:
        write_report(given.report / f"{part}-{name}", found, f"{part}, {name}", (name, f"{name}, test"))
    return {
        "part": part,
        "data": name,
        "training_samples": len(train),
        "members": found.members,
        "nonmembers": found.nonmembers,
        "nonmembers_of_rates": len(test),
        "epochs": run.config.training["training"]["epochs"],
        "parameters": parameter_count(run.network),
        "train_seconds": seconds,
        "audit_seconds": round(time.perf_counter() - began, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "auc": {name: one.auc.to_json() for name, one in found.scores.items()},
        "rates": {name: {f"{r:g}": at.to_json() for r, at in one.at.items()} for name, one in low.items()},
        "null": {name: one.to_json() for name, one in found.null.items()},
        "lookup": {kind: {side: one.to_json() for side, one in of.items()} for kind, of in found.lookup.items()},
        "distorted": {
            kind: {name: one.auc.to_json() for name, one in of.items()} for kind, of in found.distorted.items()
        },
        "bars": bars(part, name, found),
    }


def bars(part: str, data: str, found: Audit) -> dict[str, Any]:
    """Each bar, the best score of the index branch that is compared with it, and whether it is met."""
    reached = {}
    for (of, name, figure), least in BARS.items():
        if (of, name) == (part, data):
            scores = found.scores if figure == "clean" else found.distorted[figure]
            best = max(INDEX[part], key=lambda each: scores[each].auc.value or 0.0)
            value = scores[best].auc
            reached[figure] = {"least": least, "score": best, **value.to_json(), "met": (value.value or 0) >= least}
    return reached


def write_report(folder: Path, found: Audit, network: str, sources: tuple[str, str]) -> None:
    """The page and the figure of an audit."""
    from provnet.data.modalities.augment import WORDS
    from provnet.tools.membership.page import AuditReport, audit_figure, audit_html

    folder.mkdir(parents=True, exist_ok=True)
    report = AuditReport(folder.name, network, sources, found.to_json(), WORDS)
    (folder / "report.html").write_text(audit_html(report), "utf-8")
    (folder / "figure.png").write_bytes(audit_figure(report))


def table(results: list[dict[str, Any]]) -> str:
    """The figures as people read them."""
    lines = []
    for one in results:
        lines.append(f"{one['part']}, {one['data']}: {one['training_samples']:,} training samples, {one['device']}")
        for name in SCORES:
            auc, null = one["auc"][name], one["null"][name]
            at = [one["rates"][name][rate]["tpr"]["value"] for rate in ("0.01", "0.001")]
            rates = ["   -  " if value is None else f"{value:6.1%}" for value in at]
            copies = "  ".join(f"{kind} {of[name]['value']:.4f}" for kind, of in one["distorted"].items())
            ends = f"({auc['low']:.4f} to {auc['high']:.4f})"
            lines.append(f"  {name:17} {auc['value']:.4f} {ends} 1 % {rates[0]} 0.1 % {rates[1]}"
                         f" null {null['value']:.3f}  {copies}")  # fmt: skip
        for figure, bar in one["bars"].items():
            met = "met" if bar["met"] else "NOT MET"
            lines.append(f"  bar, {figure}: {bar['value']:.4f} by {bar['score']}, at least {bar['least']}: {met}")
    return "\n".join(lines)


def main() -> None:
    """Train, audit, print, write after each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--data", nargs="*", default=["mnist", "fashion-mnist", "cifar10"])
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for part in given.part:
        for name in given.data:
            results.append(measure(part, name, given))
            print(table(results[-1:]), flush=True)
            if given.out is not None:
                about = {"machine": machine(rates=False), "seed": given.seed, "limit": given.limit}
                given.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
