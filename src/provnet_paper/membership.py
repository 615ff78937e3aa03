"""Membership: are training samples told from unseen ones by the index branch, and by the class branch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.answers.metrics import index_hit
from provnet.base.batches import keyed_generator
from provnet.data.dataset import ImageData
from provnet.tools.membership.compute import audit
from provnet_paper import networks
from provnet_paper.plots import BLUE, ORANGE, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Figure, Job, Result, Results, Scale, Table, Told

PAPERS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ALL = {**PAPERS, "stanford-dogs": "Stanford Dogs (not among the paper's four)"}
SIDES = ("members", "nonmembers")
INDEX_FOUND = {"index_accuracy": 1, "index_at_5": 5}  # own index given the class, among so many
ROWS = {
    "index_confidence": "index branch, largest confidence",
    "index_entropy": "index branch, entropy",
    "class_confidence": "class branch, largest confidence",
    "class_entropy": "class branch, entropy",
}


COLUMNS = {
    "auc": "AUC",
    "auc_untrained": "AUC untrained",
    "found_at_0.01": "members found at 1 % false",
    "sure_members": "members in the highest of 40 bins",
    "sure_nonmembers": "others in the highest of 40 bins",
}


def read(kept: Result) -> Result:
    """With the ends of the intervals of areas, and the share of either side of which a score is all but sure."""
    figures = dict(kept.figures)
    for name, area in kept.told["auc"].items():
        figures |= {f"{name}_auc_{end}": (float(area[end]), 0) for end in ("low", "high")}
        figures[f"{name}_auc_untrained"] = (figures[f"{name}_auc_untrained"][0], 0)
        for side in SIDES if kept.told["curves"] else ():
            counts = kept.told["curves"][name][side]
            figures[f"{name}_sure_{side}"] = (counts[-1] / sum(counts), sum(counts))
    sizes = kept.told["sides"]
    figures |= {f"lookup_{side}": (float(one["value"]), sizes[side]) for side, one in kept.told["lookup"].items()}
    return replace(kept, figures=figures)


STYLES = ("-", "--", "-.", ":", (0, (5, 1)))


def membership_figures(results: Results) -> dict[str, bytes]:
    """ROC curves of both branches; histograms of confidence and entropy, a row a data set."""
    found = {}
    for data in ALL:
        one = results.cells.get(f"{data}/class-conditional", {}).get(0)
        if one is not None and one.told.get("curves"):
            found[data] = one.told["curves"]
    if not found:
        return {}
    return {"": png(_rocs(found)), "histograms": png(_histograms(found))}


def _rocs(found: dict[str, Any]) -> Any:
    drawing, every = panels(1, 2, (9.5, 4.9), sharey=True, squeeze=True)
    colours = (BLUE, ORANGE, "#3b9e8f", "#7b3fa0", "#7a7f87")
    branches = {"index_confidence": "index branch", "class_confidence": "class branch"}
    for axes, (name, words) in zip(every, branches.items(), strict=True):
        first = 1.0
        for (data, curves), style, colour in zip(found.items(), STYLES, colours, strict=False):
            least = 1 / sum(curves[name]["nonmembers"])  # one false alarm: below it a curve would be made up
            first, line = min(first, least), np.geomspace(least, 1, 800)
            x, y = zip(*curves[name]["roc"], strict=True)  # straight between its points, which a log axis bends
            axes.plot(line, np.interp(line, x, y), ls=style, color=colour, lw=1.8, label=ALL[data])
        line = np.geomspace(first, 1, 800)
        axes.plot(line, line, color="black", lw=0.7, ls=":", label="chance")
        axes.set_xscale("log")  # curves of the index branch lie on the axis otherwise
        axes.set_xlim(first, 1)
        axes.set_title(f"{words}, largest confidence", fontsize=10)
        axes.set_xlabel("unseen samples taken for members, log scale")
        axes.grid(alpha=0.25)
    every[0].set_ylabel("members found")
    drawing.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return drawing


def _histograms(found: dict[str, Any]) -> Any:
    drawing, every = panels(len(found), 4, (12, 0.9 + 2.1 * len(found)))
    for row, (data, curves) in enumerate(found.items()):
        for axes, (name, words) in zip(every[row], ROWS.items(), strict=True):
            sign = -1 if name.endswith("entropy") else 1  # scores are minus the entropy: shown as it is
            edges = [sign * edge for edge in curves[name]["edges"]]
            for side, colour in (("members", BLUE), ("nonmembers", ORANGE)):
                counts, places = curves[name][side], edges
                if sign < 0:
                    counts, places = counts[::-1], edges[::-1]
                label = "members" if side == "members" else "unseen"
                axes.stairs(counts, places, color=colour, fill=True, alpha=0.45, label=label)
            axes.set_yscale("symlog", linthresh=1)
            tidy(axes)
            if row == 0:
                axes.set_title(words.replace(", ", ",\n"), fontsize=9)
            if row == len(found) - 1:
                axes.set_xlabel("entropy, nats" if name.endswith("entropy") else "largest probability", fontsize=9)
        every[row][0].set_ylabel(f"{ALL[data]}\nsamples, log scale".replace(" (", "\n("), fontsize=9)
    drawing.legend(*every[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return drawing


CHANGES = {"epochs": 40}
DRAWN = 5_000
SCORES = ("index_confidence", "index_entropy", "class_confidence", "class_entropy")


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits."""
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else ALL)]


def _cell(data: str, scale: Scale) -> Cell:
    config = {
        "network": "class-conditional",
        "training": networks.words_of_preset("paper", CHANGES, scale),
        "drawn": DRAWN,
    }
    return networks.cell(f"{data}/class-conditional", data, scale, partial(run, data), 45.0, config)


def run(data: str, job: Job) -> Told:
    """Train, then score members and others alike."""
    found, train, test, told = networks.train_network(
        data, job, changes=CHANGES, network="class-conditional", **networks.light(job.scale)
    )
    members, others = (_drawn(one, job.seed) for one in (train, test))
    seen = audit(found, members, others, distort=False, seed=job.seed)
    n = seen.members + seen.nonmembers
    own = explain(found, train.images, classes=train.labels, k=5)
    rows = np.arange(len(train))
    figures: dict[str, Figure] = {
        name: (float(index_hit(own.index, rows, k).mean()), len(train)) for name, k in INDEX_FOUND.items()
    }
    for name in SCORES:
        figures[f"{name}_auc"] = (float(seen.scores[name].auc.value or 0.0), n)
        figures[f"{name}_auc_untrained"] = (float(seen.null[name].value or 0.0), n)
        for rate, at in seen.scores[name].at.items():
            if at.tpr.value is not None:
                figures[f"{name}_found_at_{rate:g}"] = (float(at.tpr.value), at.tpr.n)
    hits = seen.lookup["pixels"]
    return {
        "figures": figures,
        **told,
        "sides": {"members": seen.members, "nonmembers": seen.nonmembers, "left_out": dict(seen.left_out)},
        "auc": {name: seen.scores[name].auc.to_json() for name in SCORES},
        "lookup": {side: one.to_json() for side, one in hits.items()},
        "curves": {name: _short(seen.scores[name].to_json()) for name in SCORES} if job.seed == 0 else {},
    }


def _drawn(data: ImageData, seed: int) -> ImageData:
    return data.select(torch.randperm(len(data), generator=keyed_generator(seed, 42))[:DRAWN])


def _short(found: Told) -> Told:
    """ROC and histogram with as many digits as a figure shows."""
    shape = found["histogram"]
    return {
        "roc": [[round(x, 5), round(y, 5)] for x, y in found["roc"]],
        "edges": [round(edge, 5) for edge in shape["edges"]],
        "members": shape["members"],
        "nonmembers": shape["nonmembers"],
    }


TABLE = Table(ALL, ROWS, COLUMNS, head="score", cell="{data}/class-conditional", figure="{row}_{column}")
INDEX = Table(
    ALL,
    {"class-conditional": "class conditional"},
    {
        "index_accuracy": "index, given the class",
        "index_at_5": "index, any of 5",
        "lookup_members": "members found by their hash",
        "lookup_nonmembers": "others found by their hash",
    },
    head="network",
)
EXPERIMENT = Experiment("membership", cells, membership_figures, (TABLE, INDEX), read)
