"""Membership: are training samples told from unseen ones by the index branch, and by the class branch.

Claim: the index accuracy (top 1 and top 5) is near perfect on four data sets; with the index branch the area under the
    ROC curve is "consistently close to perfect" on them, with the class branch it is lower (sec. 5.4, app. 7.7,
    fig. 7).
Command: provnet reproduce membership --data-dir DIR --device cuda --seeds 1
Expected: index branch above .99 on MNIST, FashionMNIST and CIFAR-10, class branch clearly lower on the digits and
    clothes; a look at the hash finds members without any network.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: about a minute a seed, three data sets at a time.

Class-conditional, preset `paper`, 40 epochs; 5,000 members and 5,000 nonmembers drawn by the seed (the paper's is 42),
all judged under the predicted class. Stanford Dogs is not among the paper's four, and is marked; CIFAR-100 is.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from provnet.applications.audit import audit
from provnet.data.batches import keyed_generator
from provnet.data.imagedata import ImageData
from provnet.experiments import runs
from provnet.experiments.membership_words import ALL, INDEX_FOUND, membership_figures, section
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.explanation import explain
from provnet.metrics import index_hit

CHANGES = {"epochs": 40}
DRAWN = 5_000
SCORES = ("index_confidence", "index_entropy", "class_confidence", "class_entropy")


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/class-conditional'], 5)
    """
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else ALL)]


def _cell(data: str, scale: Scale) -> Cell:
    config = {"network": "class-conditional", "training": runs.recipe_words("paper", CHANGES, scale), "drawn": DRAWN}
    return runs.cell(f"{data}/class-conditional", data, scale, partial(run, data), 45.0, config)


def run(data: str, job: Job) -> Told:
    """Train, then score members and others alike."""
    found, train, test, told = runs.trained(
        data, job, changes=CHANGES, network="class-conditional", **runs.light(job.scale)
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


EXPERIMENT = Experiment("membership", str(__doc__), cells, section, membership_figures)
