"""Distorted pictures: the single branch at α from 0 to 1 against an isolated CNN under 15 conditions.

Claim: for occlusion, translation, Gaussian and motion blur a partly mixed single branch is right more often than an
    isolated CNN; captions say at mixing of 20 to 30 %, the text "above 70–80%" (sec. 5.2, app. 7.8, fig. 5).
Command: provnet reproduce robustness --data-dir DIR --device cuda --seeds 1
Expected: accuracy grows with α under nearly every condition; sure gains over the CNN are few and small, and at large α.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: with the networks of `mixing` (--networks) eight minutes for one seed beside other work; else half an hour more.

The layers of app. 7.1 for both: the CNN is the same backbone with the class head of app. 7.2, trained on classes alone.
The networks are those of `mixing`, in batches of 512 instead of 128 to fit the time; the CNN and α = .3 of MNIST are
trained with the printed batch, too. All see one fixed distorted test set (guide, 8). `top 1` is the class of the first
exemplar; of the CNN the most probable class.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from provnet.applications.conditions import CONDITIONS
from provnet.applications.robustness import measure
from provnet.experiments import runs
from provnet.experiments.mixing import BATCH
from provnet.experiments.pictures import packed
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.experiments.robustness_words import (
    ALPHAS,
    AS_PRINTED,
    CNN,
    PAIRS,
    PRINTED,
    PRINTED_ALPHA,
    robustness_figures,
    section,
)

CHANGES = {"batch_size": BATCH}
KEPT = ("top_1", "top_5", "same_exemplar", "same_exemplar_class", "most_named")


def cells(scale: Scale) -> list[Cell]:
    """The isolated CNN and an α each; `tiny` has one α.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/cnn', 'mnist/0.5'], 26)
    """
    if scale.name == "tiny":
        return [_cell("mnist", None, scale), _cell("mnist", 0.5, scale)]
    found = [_cell(data, alpha, scale) for alpha in (None, *ALPHAS) for data in PAIRS]
    return [*found, *(_cell(PRINTED, alpha, scale, printed=True) for alpha in (None, PRINTED_ALPHA))]


def _cell(data: str, alpha: float | None, scale: Scale, *, printed: bool = False) -> Cell:
    changes: dict[str, Any] = {} if printed else dict(CHANGES)
    changes |= {"index_weight": 0.0} if alpha is None else {}
    name = f"{data}/{CNN if alpha is None else f'{alpha:g}'}{AS_PRINTED if printed else ''}"
    config = {
        "alpha": alpha,
        "network": "class-conditional" if alpha is None else "single",
        "backbone": "paper-single",
        "training": runs.recipe_words("paper", changes, scale),
        "conditions": list(CONDITIONS),
    }
    return runs.cell(name, data, scale, partial(run, data, alpha, changes), 150.0 if printed else 75.0, config)


def run(data: str, alpha: float | None, changes: dict[str, Any], job: Job) -> Told:
    """Train one network and ask it under every condition; which answers are right is kept, for pairing."""
    wishes: dict[str, Any] = {"network": "single", "alpha": alpha}  # as in `mixing`, so that its networks serve
    if alpha is None:
        wishes = {"network": "class-conditional", "backbone": "paper-single"}
    found, _, test, told = runs.trained(data, job, changes=changes, **wishes | runs.light(job.scale))
    measured = measure(found, test, name="network", seed=0)  # the draws of the conditions are the same for all seeds
    figures: dict[str, Figure] = {}
    for row in measured.rows:
        for name in KEPT:
            if name in row.figures and row.figures[name].value is not None:
                figures[f"{row.condition}_{name}"] = (float(row.figures[name].value or 0.0), row.figures[name].n)
    right = np.stack([row.right for row in measured.rows])
    return {"figures": figures, **told, "right": packed(right), "test_fingerprint": test.samples.fingerprint}


EXPERIMENT = Experiment("robustness", str(__doc__), cells, section, robustness_figures)
