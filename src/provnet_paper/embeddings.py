"""Embeddings: what the last hidden layer of the index branch looks like, its groups within a class, misattributions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.answers.explanation import Explanation
from provnet.data.assemble import evenly
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.map.compute import clusters_within, embed, index_features
from provnet_paper import networks
from provnet_paper.networks import PAIRS
from provnet_paper.plots import bare, draw, png, pyplot
from provnet_paper.records import Cell, Experiment, Figure, Job, Result, Results, Scale, Table, Told
from provnet_paper.samples import by_chance, named_rows, nearer, pack_array, same_group, unpack_array

GROUPED = {"mnist": (6, 4), "fashion-mnist": (3,)}  # the classes whose groups the paper shows
NETWORK = "class-conditional"
AMONG = 10  # nearest samples on the map that are looked at


def read(kept: Result) -> Result:
    """With what the map and the groups tell: samples at borders between classes, and which lie beside their likes."""
    figures, laid = dict(kept.figures), kept.told.get("map")
    right, n = figures["any_at_1"]
    figures["misattributed"] = (1 - right, n)
    if laid is not None:
        places, labels = np.array(laid["xy"]), np.array(laid["labels"])
        figures["same_class"] = (purity(places, labels), len(places))
        for name in ("missed", "right"):
            if laid.get(name):
                figures[f"{name}_at_borders"] = at_borders(places, labels, np.array(laid[name]))
    for label, group in kept.told.get("groups", {}).items():
        if "together" in group:
            figures[f"style_{label}"] = (group["together"][0], group["together"][1])
            figures[f"chance_{label}"] = (group["by_chance"], group["together"][1])
    return replace(kept, figures=figures)


def _ordered(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups in the order of GROUPED; a file sorts them by name."""
    order = [str(label) for labels in GROUPED.values() for label in labels]
    groups = given.get("groups", {})
    return [groups[label] for label in order if label in groups]


def at_borders(places: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> Figure:
    """The share of the asked places with more than one class among the ten nearest training samples on the map."""
    near = _search(places, min(AMONG, len(places))).kneighbors(asked, return_distance=False)
    return float((labels[near] != labels[near[:, :1]]).any(1).mean()), len(asked)


def purity(places: np.ndarray, labels: np.ndarray, among: int = AMONG) -> float:
    """The share of the nearest samples, itself left out, that have the class of a sample; the mean over all samples."""
    near = _search(places, min(among, len(places) - 1)).kneighbors(return_distance=False)  # of each, without itself
    return float((labels[near] == labels[:, None]).mean())


def _search(places: np.ndarray, count: int) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=count).fit(places)


def embeddings_figures(results: Results) -> dict[str, bytes]:
    """A figure a data set: the map, misattributed samples with their five nearest, groups with theirs."""
    found = {}
    for data, words in PAIRS.items():
        one = results.cells.get(f"{data}/{NETWORK}", {}).get(0)
        if one is not None and "map" in one.told:
            found[data] = png(_figure(one.told, words))
    return found


def _figure(given: dict[str, Any], words: str) -> Any:
    plt: Any = pyplot()
    groups = [group for group in _ordered(given) if group["pictures"] is not None]
    drawing = plt.figure(figsize=(12.5, 6.6), layout="constrained")
    grid = drawing.add_gridspec(1, 2 + len(groups), width_ratios=(2.1, 1.15, *[0.75] * len(groups)))
    _map(drawing.add_subplot(grid[0, 0]), given["map"])
    axes = drawing.add_subplot(grid[0, 1])
    missed = given["missed"]
    if missed["pictures"] is not None:
        pictures = unpack_array(missed["pictures"])
        shown = f"{len(missed['names'])} of {given['misattributed']} misattributed test samples;"
        draw(axes, pictures, 6, f"{shown}\nright of the line: five nearest")
        height = pictures.shape[2] + 1
        axes.set_yticks([height * (row + 0.5) for row in range(len(missed["names"]))], missed["names"], fontsize=8)
        axes.tick_params(length=0)
        axes.axvline(pictures.shape[3], color="#b0560f", lw=1.5)
    else:
        bare(axes, "no test sample is misattributed")
    for place, group in enumerate(groups):
        axes = drawing.add_subplot(grid[0, 2 + place])
        pictures = unpack_array(group["pictures"])
        draw(axes, pictures, 4, f'groups of "{group["name"]}", sizes,\nnearest to each centre')
        height = pictures.shape[2] + 1
        axes.set_yticks([height * (row + 0.5) for row in range(len(group["sizes"]))], group["sizes"], fontsize=8)
        axes.tick_params(length=0)
    drawing.suptitle(f"{words}: last hidden layer of the index branch", fontsize=11)
    return drawing


def densest(places: np.ndarray, among: int = 30) -> np.ndarray:
    """The point whose neighbours are closest: a class may lie in several clusters, and its middle in none of them."""
    away = np.linalg.norm(places[:, None] - places[None], axis=2)
    place: np.ndarray = places[np.sort(away, axis=1)[:, min(among, len(places) - 1)].argmin()]
    return place


def _map(axes: Any, given: dict[str, Any]) -> None:
    xy, labels = np.array(given["xy"]), np.array(given["labels"])
    plt: Any = pyplot()
    colours = plt.get_cmap("tab10")
    for label in np.unique(labels).tolist():
        mine = xy[labels == label]
        axes.scatter(mine[:, 0], mine[:, 1], s=3, color=colours(label % 10), linewidths=0)
        name = given["classes"][label]
        size = 11 if len(name) < 3 else 9
        outline = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": colours(label % 10), "alpha": 0.7}
        axes.annotate(name, densest(mine), fontsize=size, weight="bold", ha="center", va="center", bbox=outline)
    missed = np.array(given["missed"])
    if len(missed):
        axes.scatter(missed[:, 0], missed[:, 1], s=22 if len(missed) < 200 else 9, marker="x", color="black", lw=1.0)
    bare(axes, f"t-SNE of {len(xy):,} training samples; ×: misattributed test samples")


CHANGES: dict[str, int] = {}
ON_MAP, GROUPS, NEAREST, SHOWN = 5_000, 8, 4, 6
BESIDE = 500  # test samples that are attributed rightly, on the map too


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits."""
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else PAIRS)]


def _cell(data: str, scale: Scale) -> Cell:
    training = networks.words_of_preset("paper", CHANGES, scale)
    config = {
        "network": "class-conditional",
        "training": training,
        "on_map": ON_MAP,
        "beside": BESIDE,
        "groups": GROUPS,
    }
    return networks.cell(f"{data}/class-conditional", data, scale, partial(run, data), 120.0, config)


def run(data: str, job: Job) -> Told:
    """Train, attribute all test samples, lay out a part of the training samples, group some classes."""
    found, train, test, told = networks.train_network(
        data, job, changes=CHANGES, part=(0.0, 0.6), network="class-conditional", **networks.light(job.scale)
    )
    seen = explain(found, test.images, k=5)
    truth = test.samples.labels
    missed = np.flatnonzero(seen.label[:, 0] != truth)
    figures = {
        "any_at_1": (float((seen.label[:, 0] == truth).mean()), len(test)),
        "class_accuracy": (float((seen.predicted == truth).mean()), len(test)),
    }
    figures |= _looks(found, train, test, seen, missed)
    if job.seed != 0:  # pictures of one seed are enough
        return {"figures": figures, **told, "misattributed": len(missed)}
    job.tell(0.65)
    laid = _embeddings_map(found, train, test, np.flatnonzero(seen.label[:, 0] == truth), missed, job)
    job.tell(0.95)
    groups = {str(label): _embeddings_groups(found, train, label, job.seed) for label in GROUPED[data]}
    shown = _embeddings_misattributed(seen, train, test, missed)
    return {"figures": figures, **told, "misattributed": len(missed), "map": laid, "groups": groups, "missed": shown}


def _looks(run_: Run, train: ImageData, test: ImageData, seen: Explanation, missed: np.ndarray) -> dict[str, Figure]:
    """How often a misattributed sample looks more like the sample that is named than like that named in its class."""
    if not len(missed):
        return {}
    asked = torch.from_numpy(missed)
    own = explain(run_, test.images[asked], classes=test.labels[asked], k=1, warn=False)
    named, instead = (train.images[torch.from_numpy(index)] for index in (seen.index[missed, 0], own.index[:, 0]))
    hits = nearer(test.images[asked], named, instead)
    return {"nearer_than_own_class": (float(hits.mean()), len(hits))}


def _embeddings_map(
    run_: Run, train: ImageData, test: ImageData, right: np.ndarray, missed: np.ndarray, job: Job
) -> Told:
    """Places of training samples, of misattributed test samples, and of others to compare these with."""
    rows = evenly(train.samples.labels, ON_MAP)
    right = right[np.linspace(0, len(right) - 1, min(BESIDE, len(right))).round().astype(np.int64)]
    asked = torch.from_numpy(np.concatenate([missed, right]))
    features = [index_features(run_, images) for images in (train.images[torch.from_numpy(rows)], test.images[asked])]
    places = embed(np.concatenate(features), seed=job.seed, threads=8 if job.scale.name == "full" else 1)
    xy = np.round(places.xy.astype(float), 2).tolist()
    labels = train.samples.labels[rows].tolist()
    about = {"engine": places.engine, "classes": list(train.class_names)}
    unseen = xy[len(rows) :]
    laid = {"xy": xy[: len(rows)], "labels": labels, "missed": unseen[: len(missed)], "right": unseen[len(missed) :]}
    return laid | about


def _embeddings_groups(run_: Run, train: ImageData, label: int, seed: int) -> Told:
    """Groups within a class, the samples nearest to each centre as pictures."""
    rows = np.flatnonzero(train.samples.labels == label)
    features = index_features(run_, train.images[torch.from_numpy(rows)])
    found = clusters_within(
        features, np.zeros(len(rows), np.int64), min(GROUPS, -(-len(rows) // 8)), seed=seed, nearest=NEAREST
    )
    whole = [one for one in found if len(one.nearest) == NEAREST]
    pictures = [train.images[torch.from_numpy(rows[one.nearest])] for one in whole]
    name = train.class_names[label]
    sizes = [len(one.members) for one in whole]
    numbers = np.empty(len(rows), np.int64)
    for one in found:
        numbers[one.members] = one.number
    alike = same_group(train.images[torch.from_numpy(rows)], numbers)
    return {
        "name": name,
        "of": len(rows),
        "sizes": sizes,
        "pictures": pack_array(torch.cat(pictures)) if whole else None,
        "together": [float(alike.mean()), len(alike)],
        "by_chance": by_chance(numbers),
    }


def _embeddings_misattributed(seen: Explanation, train: ImageData, test: ImageData, missed: np.ndarray) -> Told:
    """Some of them, each before its five nearest."""
    chosen = missed[np.linspace(0, len(missed) - 1, min(SHOWN, len(missed))).round().astype(np.int64)]
    rows = [torch.cat([test.images[row : row + 1], train.images[named_rows(seen.index[row])]]) for row in chosen]
    names = [
        f"{test.class_names[test.samples.labels[row]]} as {test.class_names[seen.label[row, 0]]}" for row in chosen
    ]
    return {"names": names, "pictures": pack_array(torch.cat(rows)) if rows else None}


COLUMNS = {
    "any_at_1": "attributed to their class",
    "class_accuracy": "classified",
    "missed_at_borders": "misattributed, at a border",
    "right_at_borders": "rightly attributed, at a border",
    "nearer_than_own_class": "misattributed, nearer to the sample named",
    "same_class": "nearest on the map of the same class",
} | {
    f"{name}_{label}": f"class {label}, {words}"
    for label in (6, 4, 3)
    for name, words in (("style", "nearest in the same group"), ("chance", "by chance"))
}
TABLE = Table(PAIRS, {NETWORK: "two branch, class conditional"}, COLUMNS, head="network")
EXPERIMENT = Experiment("embeddings", cells, embeddings_figures, (TABLE,), read=read, printed="embeddings")
