"""Embeddings: what the last hidden layer of the index branch looks like, its groups within a class, misattributions.

Claim: 94 of 10,000 test digits are misattributed and lie near the borders of clusters; the samples retrieved for them
    "confirm the network organizes data by visual similarity rather than ground truth labels"; k-means within a class
    finds styles of the digits 6 and 4 and of dresses (sec. 4.2, app. 7.3, fig. 3).
Command: provnet reproduce embeddings --data-dir DIR --device cuda --seeds 1
Expected: about 1 % of the digits are misattributed, nearly all of them misclassified; groups that a person can name.
Device: one H200, and its CPU for t-SNE; `--scale tiny` runs on two CPU cores.
Time: five minutes a seed beside other work, most of it t-SNE on the CPU; both data sets at a time.

Class-conditional, preset `paper`, 80 epochs; the last hidden layer has 1,024 numbers (guide, 9). The map holds 5,000
training samples, evenly by class, all misattributed test samples and 500 others to compare these with; groups are of
all samples of their class. What looks alike is told by the distance of pixels, which no network had a part in.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from provnet.applications.embedding import clusters_within, embed, index_features
from provnet.data.assemble import evenly
from provnet.data.imagedata import ImageData
from provnet.experiments import runs
from provnet.experiments.embeddings_words import GROUPED, PAIRS, embeddings_figures, section
from provnet.experiments.likeness import by_chance, nearer, together
from provnet.experiments.pictures import packed
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.explanation import Explanation, explain
from provnet.modelfile import Run

CHANGES: dict[str, int] = {}
ON_MAP, GROUPS, NEAREST, SHOWN = 5_000, 8, 4, 6
BESIDE = 500  # test samples that are attributed rightly, on the map too


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/class-conditional'], 2)
    """
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else PAIRS)]


def _cell(data: str, scale: Scale) -> Cell:
    training = runs.recipe_words("paper", CHANGES, scale)
    config = {
        "network": "class-conditional",
        "training": training,
        "on_map": ON_MAP,
        "beside": BESIDE,
        "groups": GROUPS,
    }
    return runs.cell(f"{data}/class-conditional", data, scale, partial(run, data), 120.0, config)


def run(data: str, job: Job) -> Told:
    """Train, attribute all test samples, lay out a part of the training samples, group some classes."""
    found, train, test, told = runs.trained(
        data, job, changes=CHANGES, part=(0.0, 0.6), network="class-conditional", **runs.light(job.scale)
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
    laid = _map(found, train, test, np.flatnonzero(seen.label[:, 0] == truth), missed, job)
    job.tell(0.95)
    groups = {str(label): _groups(found, train, label, job.seed) for label in GROUPED[data]}
    shown = _misattributed(seen, train, test, missed)
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


def _map(run_: Run, train: ImageData, test: ImageData, right: np.ndarray, missed: np.ndarray, job: Job) -> Told:
    """Places of training samples, of misattributed test samples, and of others to compare these with."""
    rows = evenly(train.samples.labels, ON_MAP)
    right = right[np.linspace(0, len(right) - 1, min(BESIDE, len(right))).round().astype(np.int64)]
    asked = torch.from_numpy(np.concatenate([missed, right]))
    features = [index_features(run_, images) for images in (train.images[torch.from_numpy(rows)], test.images[asked])]
    places = embed(np.concatenate(features), seed=job.seed, threads=8 if job.scale.full else 1)
    xy = np.round(places.xy.astype(float), 2).tolist()
    labels = train.samples.labels[rows].tolist()
    about = {"engine": places.engine, "classes": list(train.class_names)}
    unseen = xy[len(rows) :]
    laid = {"xy": xy[: len(rows)], "labels": labels, "missed": unseen[: len(missed)], "right": unseen[len(missed) :]}
    return laid | about


def _groups(run_: Run, train: ImageData, label: int, seed: int) -> Told:
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
    alike = together(train.images[torch.from_numpy(rows)], numbers)
    return {
        "name": name,
        "of": len(rows),
        "sizes": sizes,
        "pictures": packed(torch.cat(pictures)) if whole else None,
        "together": [float(alike.mean()), len(alike)],
        "by_chance": by_chance(numbers),
    }


def _misattributed(seen: Explanation, train: ImageData, test: ImageData, missed: np.ndarray) -> Told:
    """Some of them, each before its five nearest."""
    chosen = missed[np.linspace(0, len(missed) - 1, min(SHOWN, len(missed))).round().astype(np.int64)]
    rows = [
        torch.cat([test.images[row : row + 1], train.images[torch.from_numpy(_real(seen.index[row]))]])
        for row in chosen
    ]
    names = [
        f"{test.class_names[test.samples.labels[row]]} as {test.class_names[seen.label[row, 0]]}" for row in chosen
    ]
    return {"names": names, "pictures": packed(torch.cat(rows)) if rows else None}


def _real(index: np.ndarray) -> np.ndarray:
    """Samples that are named; where there are fewer than five, the last one again."""
    return np.where(index >= 0, index, index[index >= 0][-1])


EXPERIMENT = Experiment("embeddings", str(__doc__), cells, section, embeddings_figures)
