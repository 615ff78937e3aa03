"""Debugging a data set: typical and odd samples by the entropy of the index branch; planted errors found again.

Claim: the entropy of the index branch tells typical from anomalous training samples and is "a useful measure for
    spotting potential outliers" (sec. 5.3, app. 7.9, fig. 6); the paper says both that odd samples have a low entropy
    and that they activate many neurons, and gives no numbers.
Command: provnet reproduce debugging --data-dir DIR --device cuda --seeds 1
Expected: planted oddities have a low entropy; it finds them better than chance but much worse than distances in the
    features, and it hardly finds wrong labels.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: a minute and a half a seed, three cells at a time.

Class-conditional, preset `paper`, 40 epochs instead of 80 to fit the time; the index branch is given the label, as in
training. Planted: 10 % of the labels of 10,000 samples changed, or 1 % of the pictures replaced (inverted, two mixed,
noise, letters). Beside the entropy stands what `provnet debug` says of the same run.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from provnet.applications.debugging import Debugging, debug
from provnet.curves import auc
from provnet.data.imagedata import ImageData
from provnet.experiments import networks, runs
from provnet.experiments.debugging_words import CASES, PAIRS, SHOWN, debugging_figures, section
from provnet.experiments.pictures import packed
from provnet.experiments.planted import KINDS, odd_pictures, wrong_labels
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told

CHANGES = {"epochs": 40}
FEW = 10_000
WRONG, ODD = 0.10, 0.01


def cells(scale: Scale) -> list[Cell]:
    """The samples as they are, wrong labels, odd pictures; for each data set.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/samples', 'mnist/odd'], 6)
    """
    if scale.name == "tiny":
        return [_cell("mnist", case, scale) for case in ("samples", "odd")]
    return [_cell(data, case, scale) for case in CASES for data in PAIRS]


def _cell(data: str, case: str, scale: Scale) -> Cell:
    config = {
        "network": "class-conditional",
        "training": runs.recipe_words("paper", CHANGES, scale),
        "planted": {"samples": 0.0, "wrong": WRONG, "odd": ODD}[case],
        "limit": None if case == "samples" else FEW,
    }
    seconds = 50.0 if case == "samples" else 20.0
    return runs.cell(f"{data}/{case}", data, scale, partial(run, data, case), seconds, config)


def run(data: str, case: str, job: Job) -> Told:
    """Train on the data as they are or with something planted, and look at the training samples."""
    train, _ = networks.opened(data, job)
    planted = np.zeros(len(train), dtype=np.bool_)
    kind = np.full(len(train), -1)
    if case != "samples":
        train = train.select(np.random.default_rng(job.seed).permutation(len(train))[:FEW])
        if case == "wrong":
            train, planted = wrong_labels(train, WRONG, job.seed)
        else:
            train, kind = odd_pictures(train, ODD, job.seed)
            planted = kind >= 0
    found, _, _, told = runs.trained(
        data, job, changes=CHANGES, given=train, network="class-conditional", **runs.light(job.scale)
    )
    seen = debug(found, train)
    if case == "samples":
        shown = _shown(seen, train) if job.seed == 0 else {}
        return {"figures": _spread(seen), **told, **shown}
    return {"figures": _found(seen, planted, kind, case), **told, "planted": int(planted.sum())}


def _spread(seen: Debugging) -> dict[str, Figure]:
    """Where the entropy lies; these are no rates."""
    low, middle, high = np.quantile(seen.signals.entropy, [0.05, 0.5, 0.95]).tolist()
    return {"entropy_5": (low, 0), "entropy_50": (middle, 0), "entropy_95": (high, 0)}


def _found(seen: Debugging, planted: np.ndarray, kind: np.ndarray, case: str) -> dict[str, Figure]:
    """Areas under ROC curves with their intervals: low entropy, and our score; for each kind of oddity, too."""
    ours = seen.mislabels.odds if case == "wrong" else seen.anomalies.score
    scores = {"low_entropy": -seen.signals.entropy, "ours": ours}
    figures: dict[str, Figure] = {}
    cases = {"": np.ones(len(planted), dtype=np.bool_)}
    if case == "odd":
        cases |= {f"_{words.replace(' ', '_')}": (kind == number) | ~planted for number, words in enumerate(KINDS)}
    for name, score in scores.items():
        for suffix, use in cases.items():
            found = auc(planted[use], score[use])
            ends = {"": found.value, "_low": found.low, "_high": found.high}
            figures |= {f"{name}_auc{suffix}{end}": (float(of or 0.0), found.n) for end, of in ends.items()}
    return figures


def _shown(seen: Debugging, train: ImageData) -> Told:
    """For each class the samples of highest and of lowest entropy, as pictures with their ids."""
    sides: dict[str, list[int]] = {"high": [], "low": []}
    for label in range(len(train.class_names)):
        rows = np.flatnonzero(train.samples.labels == label)
        order = rows[np.argsort(seen.signals.entropy[rows], kind="stable")]
        sides["low"] += order[:SHOWN].tolist()
        sides["high"] += order[::-1][:SHOWN].tolist()
    pictures = {side: packed(train.images[rows].numpy()) for side, rows in sides.items()}
    ids = {side: [train.samples.sample_ids[row] for row in rows] for side, rows in sides.items()}
    return {"pictures": pictures, "ids": ids, "classes": list(train.class_names)}


EXPERIMENT = Experiment("debugging", str(__doc__), cells, section, debugging_figures)
