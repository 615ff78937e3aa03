"""Distorted pictures: the single branch at α from 0 to 1 against an isolated CNN under 15 conditions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from provnet.tools.robustness.compute import CONDITIONS, measure
from provnet_paper import networks
from provnet_paper.measures import mean
from provnet_paper.mixing import BATCH
from provnet_paper.networks import PAIRS
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Figure, Job, Result, Results, Scale, Table, Told
from provnet_paper.samples import pack_array, unpack_array

ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
CNN = "cnn"
AS_PRINTED = "-as-printed"  # networks trained with the printed batch, too
PRINTED, PRINTED_ALPHA = "mnist", 0.3
NAMED = ("occlusion-4", "occlusion-6", "translation-3", "translation-4", "blur-1", "blur-2", "motion-5")  # sec. 5.2


def read(kept: Result) -> Result:
    """With the right answers under each condition by their figure, so that they are compared sample by sample."""
    if "right" not in kept.told:
        return kept
    hits = {f"{name}_top_1": right for name, right in zip(CONDITIONS, unpack_array(kept.told["right"]), strict=True)}
    return replace(kept, told={**kept.told, "hits": hits})


LINES = {"top_1": (ORANGE, "o", "single branch, top 1"), "top_5": (BLUE, "s", "single branch, any of 5")}


def robustness_figures(results: Results) -> dict[str, bytes]:
    """A panel a condition: top 1 and top 5 over α, the CNN as a line; a figure a data set."""
    there = [data for data in PAIRS if results.cells.get(f"{data}/{CNN}")]
    return {data: png(_figure(results, data)) for data in there if len(_alphas(results, data)) > 0}


def _alphas(results: Results, data: str) -> list[float]:
    return [alpha for alpha in ALPHAS if results.cells.get(f"{data}/{alpha:g}")]


def _figure(results: Results, data: str) -> Any:
    drawing, every = panels(3, 5, (13, 7.2), sharex=True, squeeze=True)
    alphas = _alphas(results, data)
    for axes, (condition, about) in zip(every.flat, CONDITIONS.items(), strict=True):
        for name, (colour, marker, words) in LINES.items():
            values = [mean(results, f"{data}/{alpha:g}", f"{condition}_{name}") for alpha in alphas]
            heights = [100 * one[0] for one in values if one is not None]
            axes.plot(alphas, heights, color=colour, marker=marker, ms=4, lw=1.4, label=words)
        cnn = mean(results, f"{data}/{CNN}", f"{condition}_top_1")
        if cnn is not None:
            axes.axhline(100 * cnn[0], color=GREY, ls="--", lw=1.4, label="isolated CNN, top 1")
        axes.set_title(about.words + (" *" if condition in NAMED else ""), fontsize=9)
        tidy(axes, grid=True)
    for axes in every[-1]:
        axes.set_xlabel("α")
    for axes in every[:, 0]:
        axes.set_ylabel("%")
    drawing.legend(*every[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    words = f"{PAIRS[data]}: right answers under 15 conditions; * where the paper says that mixing beats the CNN"
    drawing.suptitle(words, fontsize=11)
    return drawing


CHANGES = {"batch_size": BATCH}
KEPT = ("top_1", "top_5", "same_exemplar", "same_exemplar_class", "most_named")


def cells(scale: Scale) -> list[Cell]:
    """The isolated CNN and an α each; `tiny` has one α."""
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
        "training": networks.words_of_preset("paper", changes, scale),
        "conditions": list(CONDITIONS),
    }
    return networks.cell(name, data, scale, partial(run, data, alpha, changes), 150.0 if printed else 75.0, config)


def run(data: str, alpha: float | None, changes: dict[str, Any], job: Job) -> Told:
    """Train one network and ask it under every condition; which answers are right is kept, for pairing."""
    wishes: dict[str, Any] = {"network": "single", "alpha": alpha}  # as in `mixing`, so that its networks serve
    if alpha is None:
        wishes = {"network": "class-conditional", "backbone": "paper-single"}
    found, _, test, told = networks.train_network(data, job, changes=changes, **wishes | networks.light(job.scale))
    measured = measure(found, test, name="network", seed=0)  # the draws of the conditions are the same for all seeds
    figures: dict[str, Figure] = {}
    for row in measured.rows:
        for name in KEPT:
            if name in row.figures and row.figures[name].value is not None:
                figures[f"{row.condition}_{name}"] = (float(row.figures[name].value or 0.0), row.figures[name].n)
    right = np.stack([row.right for row in measured.rows])
    return {"figures": figures, **told, "right": pack_array(right), "test_fingerprint": test.samples.fingerprint}


NETWORKS = {CNN: "CNN"} | {f"{alpha:g}": f"α {alpha:g}" for alpha in ALPHAS}
BESIDE = {f"{CNN}{AS_PRINTED}": "CNN, batch 128", f"{PRINTED_ALPHA:g}{AS_PRINTED}": "α 0.3, batch 128"}
ROWS = {name: about.words + (" (named by the paper)" if name in NAMED else "") for name, about in CONDITIONS.items()}
TABLE = Table(
    PAIRS, ROWS, NETWORKS | BESIDE, head="top 1 under", cell="{data}/{column}", figure="{row}_top_1", brief=True
)
EXPERIMENT = Experiment("robustness", cells, robustness_figures, (TABLE,), read)
