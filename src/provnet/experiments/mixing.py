"""Memorising against generalising: the single branch with targets mixed by α from 0 to 1.

Claim: with more mixing the network memorises less and generalises better; at α = 1 it has lost its memory, and on
    FashionMNIST memorising costs more class accuracy (sec. 4.1, fig. 2; α = .3: index 60 %, class 97 %, sec. 3.1).
Command: provnet reproduce mixing --data-dir DIR --device cuda --seeds 1
Expected: accuracy against sampled targets falls as 1 - α, the own index is found nearly always up to α about .5 or
    beyond, class accuracy of unseen samples through the index rises and is flat from about α = .5.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: half an hour for one seed, four networks at a time.

The layers of app. 7.1, 80 epochs. To fit the time the batch is 512 instead of 128, with the printed rate; α = .3 of
MNIST is trained with the printed batch, too, and so are the single branches of `table2`. Index accuracy is told for the
own index and for sampled targets (guide, 3). Fig. 2 prints no numbers: the paper's are those of the single branches
of its table 2, here with larger batches; which answers are right is kept, so that α are compared sample by sample.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from provnet.data.imagedata import ImageData
from provnet.data.targets import TargetSampler
from provnet.evaluation import NEVER
from provnet.experiments import runs
from provnet.experiments.copies import copy_figures
from provnet.experiments.mixing_words import ALPHAS, AS_PRINTED, PAIRS, PRINTED, beside_table2, mixing_figures, section
from provnet.experiments.pairs import kept_hits
from provnet.experiments.pictures import packed
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.explanation import explain
from provnet.metrics import any_at_k, index_hit, majority_at_k

BATCH = 512
PAIRED = ("index_accuracy", "any_at_1_train", "any_at_1", "class_accuracy")


def cells(scale: Scale) -> list[Cell]:
    """An α each; `tiny` has two of them.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/0', 'mnist/0.5'], 23)
    """
    if scale.name == "tiny":
        return [_cell("mnist", alpha, scale) for alpha in ALPHAS if alpha in (0.0, 0.5)]
    return [*(_cell(data, alpha, scale) for alpha in ALPHAS for data in PAIRS), _cell(*PRINTED, scale, printed=True)]


def _cell(data: str, alpha: float, scale: Scale, *, printed: bool = False) -> Cell:
    changes = {} if printed else {"batch_size": BATCH}
    config = {"alpha": alpha, "network": "single", "training": runs.recipe_words("paper", changes, scale)}
    name = f"{data}/{alpha:g}{AS_PRINTED if printed else ''}"
    return runs.cell(name, data, scale, partial(run, data, alpha, changes), 150.0 if printed else 62.0, config)


def run(data: str, alpha: float, changes: dict[str, int], job: Job) -> Told:
    """Train one network and ask it about its own and about unseen samples."""
    found, train, test, told = runs.trained(
        data, job, changes=changes, network="single", alpha=alpha, **runs.light(job.scale)
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
    return {"pictures": packed(torch.cat(rows).numpy()), "classes": classes}


EXPERIMENT = Experiment("mixing", str(__doc__), cells, section, mixing_figures, "table2", beside_table2)
