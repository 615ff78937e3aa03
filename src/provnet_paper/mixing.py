"""Memorising against generalising: the single branch with targets mixed by α from 0 to 1."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.answers.evaluation import NEVER
from provnet.answers.metrics import any_at_k, index_hit, majority_at_k
from provnet.data.dataset import ImageData
from provnet.heads.index_map import TargetSampler
from provnet_paper import networks
from provnet_paper.measures import kept_hits, mean
from provnet_paper.networks import PAIRS
from provnet_paper.plots import BLUE, GREY, ORANGE, bare, png, pyplot, tidy, tile_pictures
from provnet_paper.records import Cell, Experiment, Figure, Job, Result, Results, Scale, Table, Told
from provnet_paper.samples import KINDS, PREFIX, copy_figures, pack_array, unpack_array

ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
PRINTED, AS_PRINTED = ("mnist", 0.3), "-as-printed"  # a network that is trained with the printed batch, too
SHOWN, SHOWN_ALPHAS = 3, (0.0, 0.3, 0.7, 1.0)  # test samples that are drawn, and for which α
WRONG = "#c0392b"
ABOVE = (
    "left of the line: unseen samples whose retrieved ones are most often of another class; "
    "right: the first two retrieved, framed where of another class"
)
FIGURES = {
    "index_accuracy": "own index",
    "index_at_5": "own index, top 5",
    "index_accuracy_sampled_targets": "sampled targets",
    "any_at_1_train": "class, training",
    "any_at_1": "class, unseen",
    "any_at_5": "any of 5, unseen",
    "majority_at_5": "majority of 5",
    "class_accuracy": "log-sum-exp",
    **{f"{PREFIX}{name}": words for name, words in KINDS.items()},
}


def mixing_figures(results: Results) -> dict[str, bytes]:
    """Curves over α, a panel a data set, with test samples and their two nearest above them."""
    there = [data for data in PAIRS if any(f"{data}/{alpha:g}" in results.cells for alpha in ALPHAS)]
    if not there:
        return {}
    plt: Any = pyplot()
    drawing = plt.figure(figsize=(1.2 + 5.4 * len(there), 5.6), layout="constrained")
    grid = drawing.add_gridspec(2, len(there), height_ratios=(1, 2.6))
    axes = None
    for column, data in enumerate(there):
        _samples(drawing, grid[0, column], results, data)
        axes = drawing.add_subplot(grid[1, column])
        _panel(axes, results, data)
        axes.set_title(PAIRS[data], fontsize=11)
    assert axes is not None
    handles = axes.get_legend_handles_labels()
    drawing.legend(*handles, loc="outside lower center", ncols=1 + len(there), frameon=False, fontsize=9)
    if any("classes" in one.told for seeds in results.cells.values() for one in seeds.values()):
        drawing.suptitle(ABOVE, fontsize=9)
    return {"": png(drawing)}


def _samples(drawing: Any, place: Any, results: Results, data: str) -> None:
    """Three rows (a test sample, then its two nearest, framed where their class is another) for some of the α."""
    cells = {alpha: results.cells.get(f"{data}/{alpha:g}", {}).get(0) for alpha in SHOWN_ALPHAS}
    shown = {alpha: one for alpha, one in cells.items() if one is not None and "classes" in one.told}
    if not shown:
        return
    rows = telling(list(shown.values()))
    inner = place.subgridspec(1, len(shown))
    for column, (alpha, one) in enumerate(shown.items()):
        axes = drawing.add_subplot(inner[0, column])
        pictures = unpack_array(one.told["pictures"])
        pictures = pictures.reshape(-1, 3, *pictures.shape[1:])[rows].reshape(-1, *pictures.shape[1:])
        axes.imshow(tile_pictures(pictures, 3), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        bare(axes, f"α = {alpha:g}")
        height, width = pictures.shape[2] + 1, pictures.shape[3] + 1
        axes.axvline(width - 1, color=ORANGE, lw=1.5)
        for row, number in enumerate(rows):
            truth, *named = one.told["classes"][number]
            for at, label in enumerate(named, 1):
                if label != truth:
                    box = (at * width - 0.5, row * height - 0.5), width - 1, height - 1
                    axes.add_patch(pyplot().Rectangle(*box, fill=False, ec=WRONG, lw=1.5))


def telling(results: list[Result]) -> list[int]:
    """The test samples whose nearest are wrong most often over the α, so that the figure shows where it changes."""
    classes = np.array([one.told["classes"] for one in results])
    wrong = (classes[:, :, 1:] != classes[:, :, :1]).sum((0, 2))
    return sorted(np.argsort(-wrong, kind="stable")[:SHOWN].tolist())


def _panel(axes: Any, results: Results, data: str) -> None:
    lines = {
        "index_accuracy": (GREY, "s", "own index, training"),
        "index_accuracy_sampled_targets": (ORANGE, "v", "sampled targets, training"),
        "any_at_1_train": ("#3b9e8f", "^", "class through the index, training"),
        "any_at_1": (BLUE, "o", "class through the index, unseen"),
    }
    for figure, (colour, marker, words) in lines.items():
        found = [(alpha, mean(results, f"{data}/{alpha:g}", figure)) for alpha in ALPHAS]
        points = [(alpha, 100 * one[0]) for alpha, one in found if one is not None]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, ms=5, lw=1.6, label=words)
    axes.plot([0, 1], [100, 0], color="black", lw=0.8, ls=":", label="1 − α")
    axes.set_xlabel("label mixing α")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(-3, 103)
    tidy(axes, grid=True)


BATCH = 512
PAIRED = ("index_accuracy", "any_at_1_train", "any_at_1", "class_accuracy")


def cells(scale: Scale) -> list[Cell]:
    """An α each; `tiny` has two of them."""
    if scale.name == "tiny":
        return [_cell("mnist", alpha, scale) for alpha in ALPHAS if alpha in (0.0, 0.5)]
    return [*(_cell(data, alpha, scale) for alpha in ALPHAS for data in PAIRS), _cell(*PRINTED, scale, printed=True)]


def _cell(data: str, alpha: float, scale: Scale, *, printed: bool = False) -> Cell:
    changes = {} if printed else {"batch_size": BATCH}
    config = {"alpha": alpha, "network": "single", "training": networks.words_of_preset("paper", changes, scale)}
    name = f"{data}/{alpha:g}{AS_PRINTED if printed else ''}"
    return networks.cell(name, data, scale, partial(run, data, alpha, changes), 150.0 if printed else 62.0, config)


def run(data: str, alpha: float, changes: dict[str, int], job: Job) -> Told:
    """Train one network and ask it about its own and about unseen samples."""
    found, train, test, told = networks.train_network(
        data, job, changes=changes, network="single", alpha=alpha, **networks.light(job.scale)
    )
    seen, own = explain(found, test.images, k=5), explain(found, train.images, k=5)
    truth, labels, rows = test.samples.labels, train.samples.labels, np.arange(len(train))
    drawn = TargetSampler(found.network.index_map, alpha).draw(job.seed, NEVER).numpy()
    hits = {
        "index_accuracy": index_hit(own.index, rows),
        "index_at_5": index_hit(own.index, rows, 5),
        "index_accuracy_sampled_targets": index_hit(own.index, drawn),
        "any_at_1_train": any_at_k(own.label, labels, 1),
        "any_at_1": any_at_k(seen.label, truth, 1),
        "any_at_5": any_at_k(seen.label, truth, 5),
        "majority_at_5": majority_at_k(seen.label, truth, 5),
        "class_accuracy": seen.predicted == truth,
    }
    figures: dict[str, Figure] = {name: (float(value.mean()), len(value)) for name, value in hits.items()}

    def first(images: torch.Tensor) -> np.ndarray:
        return explain(found, images, k=1, warn=False).index[:, 0]

    figures |= copy_figures(train, job.seed, lambda images: torch.from_numpy(first(images)))
    shown = _examples(test, train, seen.index) if job.seed == 0 else {}
    return {"figures": figures, **told, **kept_hits({name: hits[name] for name in PAIRED}), **shown}


def _examples(test: ImageData, train: ImageData, index: np.ndarray) -> Told:
    """A test sample of each class, the same for every α, before its two nearest training samples; and their labels."""
    labels = test.samples.labels
    chosen = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)]
    rows = [torch.cat([test.images[row : row + 1], train.images[index[row, :2]]]) for row in chosen]
    classes = [[int(labels[row]), *train.samples.labels[index[row, :2]].tolist()] for row in chosen]
    return {"pictures": pack_array(torch.cat(rows).numpy()), "classes": classes}


TABLE = Table(
    PAIRS, {f"{alpha:g}": f"{alpha:g}" for alpha in ALPHAS} | {f"0.3{AS_PRINTED}": "0.3 as printed"}, FIGURES, head="α"
)
EXPERIMENT = Experiment("mixing", cells, mixing_figures, (TABLE,), printed="mixing")
