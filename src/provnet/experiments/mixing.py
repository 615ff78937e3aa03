"""Memorising against generalising: the single branch with targets mixed by α from 0 to 1.

Claim: with more mixing the network memorises less and generalises better; at α = 1 it has lost its memory, and on
    FashionMNIST memorising costs more class accuracy (sec. 4.1, fig. 2; α = .3: index 60 %, class 97 %, sec. 3.1).
Command: provnet reproduce mixing --data-dir DIR --device cuda --seeds 1
Expected: accuracy against sampled targets falls as 1 - α, the own index is found nearly always up to α about .5 or
    beyond, class accuracy of unseen samples through the index rises and is flat from about α = .5.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: an estimated 25 minutes for one seed: 60 s a cell, 160 s for the one with the printed batch.

The layers of app. 7.1, 80 epochs. To fit the time the batch is 512 instead of 128, with the printed rate; α = .5 on
MNIST is trained with batch 128, too. Index accuracy is told for the own index and for sampled targets (guide, 3).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from provnet.data.imagedata import ImageData
from provnet.data.targets import TargetSampler
from provnet.evaluation import NEVER
from provnet.experiments import runs
from provnet.experiments.mixing_words import ALPHAS, PAIRS, PRINTED, mixing_figures, section
from provnet.experiments.pictures import packed
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.explanation import explain
from provnet.metrics import any_at_k, index_hit, majority_at_k

BATCH, BATCH_PRINTED = 512, 128
SHOWN = 3  # test samples that are drawn with their two nearest


def cells(scale: Scale) -> list[Cell]:
    """An α each; `tiny` has two of them.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/0', 'mnist/0.5'], 23)
    """
    if scale.name == "tiny":
        return [_cell("mnist", alpha, scale) for alpha in ALPHAS if alpha in (0.0, 0.5)]
    found = [_cell(data, alpha, scale) for alpha in ALPHAS for data in PAIRS]
    return [*found, _cell("mnist", 0.5, scale, printed=True)]


def _cell(data: str, alpha: float, scale: Scale, *, printed: bool = False) -> Cell:
    changes = {"batch_size": BATCH_PRINTED if printed else BATCH}
    name = PRINTED if printed else f"{data}/{alpha:g}"
    config = {"alpha": alpha, "network": "single", "training": runs.recipe_words("paper", changes, scale)}
    seconds = 160.0 if printed else 60.0
    return runs.cell(name, data, scale, partial(run, data, alpha, changes), seconds, config)


def run(data: str, alpha: float, changes: dict[str, int], job: Job) -> Told:
    """Train one network and ask it about its own and about unseen samples."""
    found, train, test, told = runs.trained(
        data, job, changes=changes, network="single", alpha=alpha, **runs.light(job.scale)
    )
    seen, own = explain(found, test.images, k=5), explain(found, train.images, k=1)
    truth, labels, rows = test.samples.labels, train.samples.labels, np.arange(len(train))
    drawn = TargetSampler(found.network.index_map, alpha).draw(job.seed, NEVER).numpy()
    hits = {
        "index_accuracy": index_hit(own.index, rows),
        "index_accuracy_sampled_targets": index_hit(own.index, drawn),
        "any_at_1_train": any_at_k(own.label, labels, 1),
        "any_at_1": any_at_k(seen.label, truth, 1),
        "any_at_5": any_at_k(seen.label, truth, 5),
        "majority_at_5": majority_at_k(seen.label, truth, 5),
        "class_accuracy": seen.predicted == truth,
    }
    figures: dict[str, Figure] = {name: (float(value.mean()), len(value)) for name, value in hits.items()}
    return {"figures": figures, **told, **(_examples(test, train, seen.index) if job.seed == 0 else {})}


def _examples(test: ImageData, train: ImageData, index: np.ndarray) -> Told:
    """A few test samples, the same for every α, each before its two nearest training samples."""
    chosen = torch.linspace(0, len(test) - 1, SHOWN + 2).round().long()[1:-1]
    rows = [torch.cat([test.images[row : row + 1], train.images[index[row, :2]]]) for row in chosen.tolist()]
    return {"pictures": packed(torch.cat(rows).numpy())}


EXPERIMENT = Experiment("mixing", str(__doc__), cells, section, mixing_figures)
