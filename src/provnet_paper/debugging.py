"""Debugging a data set: typical and odd samples by the entropy of the index branch; planted errors found again."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from provnet.answers.metrics import auc
from provnet.data.dataset import ImageData
from provnet.tools.debug.compute import Debugging, debug
from provnet_paper import networks
from provnet_paper.networks import PAIRS
from provnet_paper.plots import draw, panels, png
from provnet_paper.records import Cell, Experiment, Figure, Job, Results, Scale, Table, Told
from provnet_paper.samples import ODD_KINDS as KINDS
from provnet_paper.samples import odd_pictures, pack_array, unpack_array, wrong_labels

CASES = {"samples": "as they are", "wrong": "10 % wrong labels", "odd": "1 % odd pictures"}
SHOWN = 5


def suffix_of(kind: str) -> str:
    """How figures of a kind of oddity end."""
    return f"_{kind.replace(' ', '_')}"


def debugging_figures(results: Results) -> dict[str, bytes]:
    """A sheet a data set: a row a class, five samples of the highest entropy left, of the lowest right."""
    found = {}
    for data, words in PAIRS.items():
        one = results.cells.get(f"{data}/samples", {}).get(0)
        if one is not None and "pictures" in one.told:
            found[data] = png(_sheet(one.told, words))
    return found


def _sheet(given: dict[str, Any], words: str) -> Any:
    classes = given["classes"]
    drawing, every = panels(1, 2, (7.2, 0.9 + 0.62 * len(classes)), squeeze=True)
    for axes, side, text in zip(every, ("high", "low"), ("highest entropy", "lowest entropy"), strict=True):
        pictures = unpack_array(given["pictures"][side])
        draw(axes, pictures, SHOWN, text)
        height = pictures.shape[2] + 1
        if side == "high":
            axes.set_yticks([height * row + height / 2 for row in range(len(classes))], classes, fontsize=8)
            axes.tick_params(length=0)
    drawing.suptitle(f"{words}: five training samples of each class by the entropy of the index branch", fontsize=10)
    return drawing


CHANGES = {"epochs": 40}
FEW = 10_000
WRONG, ODD = 0.10, 0.01


def cells(scale: Scale) -> list[Cell]:
    """The samples as they are, wrong labels, odd pictures; for each data set."""
    if scale.name == "tiny":
        return [_cell("mnist", case, scale) for case in ("samples", "odd")]
    return [_cell(data, case, scale) for case in CASES for data in PAIRS]


def _cell(data: str, case: str, scale: Scale) -> Cell:
    config = {
        "network": "class-conditional",
        "training": networks.words_of_preset("paper", CHANGES, scale),
        "planted": {"samples": 0.0, "wrong": WRONG, "odd": ODD}[case],
        "limit": None if case == "samples" else FEW,
    }
    seconds = 50.0 if case == "samples" else 20.0
    return networks.cell(f"{data}/{case}", data, scale, partial(run, data, case), seconds, config)


def run(data: str, case: str, job: Job) -> Told:
    """Train on the data as they are or with something planted, and look at the training samples."""
    train, _ = networks.open_samples(data, job)
    planted = np.zeros(len(train), dtype=np.bool_)
    kind = np.full(len(train), -1)
    if case != "samples":
        train = train.select(np.random.default_rng(job.seed).permutation(len(train))[:FEW])
        if case == "wrong":
            train, planted = wrong_labels(train, WRONG, job.seed)
        else:
            train, kind = odd_pictures(train, ODD, job.seed)
            planted = kind >= 0
    found, _, _, told = networks.train_network(
        data, job, changes=CHANGES, given=train, network="class-conditional", **networks.light(job.scale)
    )
    seen = debug(found, train)
    if case == "samples":
        shown = _shown(seen, train) if job.seed == 0 else {}
        return {"figures": _debugging_spread(seen), **told, **shown}
    return {"figures": _found(seen, planted, kind, case), **told, "planted": int(planted.sum())}


def _debugging_spread(seen: Debugging) -> dict[str, Figure]:
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
        cases |= {suffix_of(words): (kind == number) | ~planted for number, words in enumerate(KINDS)}
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
    pictures = {side: pack_array(train.images[rows].numpy()) for side, rows in sides.items()}
    ids = {side: [train.samples.sample_ids[row] for row in rows] for side, rows in sides.items()}
    return {"pictures": pictures, "ids": ids, "classes": list(train.class_names)}


SCORES = {"low_entropy_auc": "AUC of a low entropy", "ours_auc": "AUC of `provnet debug`"}
TABLES = (
    Table(PAIRS, {"": "wrong labels"}, SCORES, head="planted", cell="{data}/wrong", figure="{column}"),
    Table(
        PAIRS,
        {"": "odd pictures, all"} | {suffix_of(kind): kind for kind in KINDS},
        SCORES,
        head="planted",
        cell="{data}/odd",
        figure="{column}{row}",
    ),
    Table(
        PAIRS,
        {"samples": "none"},
        {f"entropy_{place}": f"{place}th percentile" for place in (5, 50, 95)},
        head="planted; entropy as a share of the largest possible",
    ),
)
EXPERIMENT = Experiment("debugging", cells, debugging_figures, TABLES)
