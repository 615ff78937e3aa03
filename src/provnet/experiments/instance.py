"""What indices alone teach: features of a network trained without a label, against those of class supervision.

Claim: "instance-level supervision may be a viable alternative to explicit class labels for learning discriminative
    representations" (app. 7.6); the paper does not measure it. Beyond the paper.
Command: provnet reproduce instance --data-dir DIR --device cuda --seeds 1
Expected: index supervision well above an untrained network and below class supervision on the data it was trained on;
    on digits drawn differently (turned, inverted, thickened) the gap is smaller.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: a hundred seconds a seed, three networks at a time.

Backbone `medium`, preset `fast`, 20 epochs: the same recipe for a single branch with α = 0, which sees no label, as it
is and with augmentation, for a class branch alone (index loss of weight 0), and for weights as drawn. Features are the
backbone's. A linear probe is ridge regression on standardised features of all training samples, the nearest neighbour
is by cosine; both are fitted on the training samples of the same data set, as they are or drawn in the way that is
tested.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from provnet.data.imagedata import ImageData
from provnet.experiments import runs
from provnet.experiments.drawings import DRAWINGS
from provnet.experiments.instance_words import NETWORKS, instance_figures, section
from provnet.experiments.probes import features_of, knn_hits, probe_hits
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told

EPOCHS = 20
PAIRS = ("mnist", "fashion-mnist")
KINDS: dict[str, dict[str, Any]] = {
    "index": {"network": "single"},
    "index-augmented": {"network": "single", "changes": {"augment": "digits"}},
    "class": {"network": "class-independent", "changes": {"index_weight": 0.0}},
    "untrained": {"network": "class-independent", "changes": {"epochs": 1, "lr": 1e-12, "index_weight": 0.0}},
}


def cells(scale: Scale) -> list[Cell]:
    """A kind of supervision each; `tiny` has two.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/index', 'mnist/class'], 8)
    """
    if scale.name == "tiny":
        return [_cell("mnist", kind, scale) for kind in ("index", "class")]
    return [_cell(data, kind, scale) for data in PAIRS for kind in NETWORKS]


def _cell(data: str, kind: str, scale: Scale) -> Cell:
    how = KINDS[kind]
    changes = {"epochs": EPOCHS, **how.get("changes", {})}
    training = runs.recipe_words("fast", changes, scale)
    config = {"network": how["network"], "training": training, "drawings": list(DRAWINGS), "backbone": "medium"}
    seconds = 8.0 if kind == "untrained" else 30.0
    return runs.cell(f"{data}/{kind}", data, scale, partial(run, data, kind, changes), seconds, config)


def run(data: str, kind: str, changes: dict[str, Any], job: Job) -> Told:
    """Train, then read the class off the features by two probes, on each way of drawing."""
    backbone = "small" if job.scale.name == "tiny" else "medium"
    found, train, test, told = runs.trained(
        data, job, preset="fast", changes=changes, network=KINDS[kind]["network"], backbone=backbone, part=(0.0, 0.7)
    )
    net = found.network
    figures: dict[str, Figure] = {}
    plain = features_of(net, train.images)
    for number, (name, change) in enumerate(DRAWINGS.items()):
        unseen = features_of(net, change(test.images, job.seed))
        _ask(figures, f"{name}_from_plain", plain, train, unseen, test)
        if name != "plain":
            again = features_of(net, change(train.images, job.seed + 1))
            _ask(figures, f"{name}_from_same", again, train, unseen, test)
        job.tell(0.7 + 0.3 * (number + 1) / len(DRAWINGS))
    return {"figures": figures, **told}


def _ask(
    figures: dict[str, Figure], name: str, known: torch.Tensor, train: ImageData, asked: torch.Tensor, test: ImageData
) -> None:
    classes = len(train.class_names)
    for probe, hits in (("probe", probe_hits(known, train.labels, asked, test.labels, classes)),
                        ("knn", knn_hits(known, train.labels, asked, test.labels))):  # fmt: skip
        figures[f"{probe}_{name}"] = (float(hits.double().mean()), len(test))


EXPERIMENT = Experiment("instance", str(__doc__), cells, section, instance_figures)
