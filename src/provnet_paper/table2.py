"""Table 2: class and index accuracy of four networks on five data sets, with the paper's layers and recipe."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from provnet_paper import networks
from provnet_paper.measures import MET, MISSED, WITHIN, Known, figure_of, half_width, verdict
from provnet_paper.networks import DATA, FIGURES, SETTINGS, Setting, recipe_of, words_of
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, pyplot, tidy
from provnet_paper.pretrained import BACKBONE, missing_package, pretrained
from provnet_paper.records import Cell, Experiment, Job, Printed, Results, Scale, Table, Told, printed_numbers

BESIDE = {
    "index_accuracy_learned": "index with keys as training left them",
    "index_at_5": "index, any of 5",
    "end_to_end": "index, given the predicted class",
    "index_accuracy_perturbed_noise": "index under noise",
    "index_accuracy_perturbed_shift": "index under shift",
    "index_accuracy_perturbed_jpeg": "index under JPEG",
    "majority_at_5": "class through the index, majority of 5",
    "joint_any_at_1": "class of the first by joint weights",
    "parameters": "parameters",
    "seconds": "seconds, one to three at a time",
}
NAMES = {name: chosen.words for name, chosen in SETTINGS.items()}
TABLE = Table(DATA, FIGURES | BESIDE, NAMES, head="number", cell="{data}/{column}", figure="{row}")


SHORT = {"class-conditional": "conditional", "class-independent": "independent", "single-0": "single α=0"}
DARK, PALE = "#22262d", "#dcdee3"  # verdicts are dark, the intervals behind them pale
MARKERS = {MET: ("o", BLUE), WITHIN: ("D", DARK), MISSED: ("X", ORANGE)}


def against_paper(results: Results) -> dict[str, bytes]:
    """Ours less the paper's, number by number, a panel a data set; nothing where nothing was run at full scale."""
    every = {one: figure_of(results, f"{one.data}/{one.setting}", one.figure) for one in printed_numbers("2")}
    found = {one: ours for one, ours in every.items() if ours is not None and results.scale == "full"}
    missing = [one for one, ours in every.items() if ours is None]
    there = [data for data in DATA if any(one.data == data for one in found)]
    if not there:
        return {}
    plt = pyplot()
    asked = dict.fromkeys((one.setting, one.figure) for one in printed_numbers("2"))
    rows = [row for row in asked if any((one.setting, one.figure) == row for one in found)]
    size = (3.2 + 2.6 * len(there), 1.7 + 0.3 * len(rows))
    drawing, every_axes = panels(1, len(there), size, sharex=True, sharey=True)
    for axes, data in zip(every_axes[0], there, strict=True):
        _panel(axes, {one: ours for one, ours in found.items() if one.data == data}, rows)
        for one in missing:
            if one.data == data and (one.setting, one.figure) in rows:
                row = rows.index((one.setting, one.figure))
                axes.text(0, row, "  not run", va="center", fontsize=8, color=GREY)
        axes.set_title(DATA[data], fontsize=11)
        axes.set_xlabel("percentage points, logarithmic beyond ±1", fontsize=8)
    names = [f"{SHORT.get(setting, 'single α=.5')}: {FIGURES[figure]}" for setting, figure in rows]
    every_axes[0][0].set_yticks(range(len(names)), names, fontsize=8)
    every_axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    handles = [plt.Line2D([], [], ls="", marker=m, color=c, label=name) for name, (m, c) in MARKERS.items()]
    drawing.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    words = f"ours less the paper's; pale bars: half-width of the Wilson interval; {_seeds(found.values())}"
    drawing.suptitle(words, fontsize=10)
    return {"": png(drawing)}


def _seeds(found: Collection[Known]) -> str:
    """How many there are, and what is drawn of them."""
    few, many = min(len(one.each) for one in found), max(len(one.each) for one in found)
    if many == 1:
        return "one seed"
    return f"whiskers: std over {'' if few == many else 'up to '}{many} seeds"


def _panel(axes: Any, found: dict[Printed, Known], rows: list[tuple[str, str]]) -> None:
    """What was run of the rows, each at its height, which is the same in all panels."""
    for one, ours in found.items():
        row = rows.index((one.setting, one.figure))
        half = 100 * half_width(one.value, ours.figure[1])
        axes.plot([-half, half], [row, row], color=PALE, lw=7, solid_capstyle="butt")
        marker, colour = MARKERS[verdict(one, ours)]
        spread = None if len(ours.each) < 2 else 100 * statistics.stdev(ours.each)
        axes.errorbar(100 * (ours.figure[0] - one.value), row, xerr=spread, fmt=marker, color=colour, ms=6, capsize=2)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:+g}" if value else "0")
    axes.margins(x=0.08)
    axes.grid(axis="x", alpha=0.25)
    tidy(axes)


# about how long on an H200: an epoch of the single branch takes 1.7 s there (docs/speed.md), the smaller ones by their
# weights; 20 s and more go into drawing weights, and into asking all samples as they are and as changed copies
SECONDS = {"class-conditional": 80.0, "class-independent": 100.0, "single-0": 160.0, "single-0.5": 160.0}
SHARES = {"cifar10": 0.9, "cifar100": 0.9, "stanford-dogs": 0.5}  # fewer samples, larger pictures


def cells(scale: Scale) -> list[Cell]:
    """A network each; `tiny` has those of MNIST, on embedded digits."""
    rows = ["mnist"] if scale.name == "tiny" else list(DATA)
    return [_cell(data, setting, scale) for data in rows for setting in SETTINGS]


def _cell(data: str, setting: str, scale: Scale) -> Cell:
    chosen = SETTINGS[setting]
    config = {
        "network": chosen.network,
        "alpha": chosen.alpha,
        "training": networks.recipe(data, "paper", {}, scale),
    }
    seconds = SECONDS[setting] * SHARES.get(data, 1.0)
    return networks.cell(f"{data}/{setting}", data, scale, partial(run, data, setting), seconds, config)


def run(data: str, setting: str, job: Job) -> Told:
    """Train and evaluate one network of the table."""
    chosen = SETTINGS[setting]
    wishes = {"network": chosen.network, "alpha": chosen.alpha}
    return networks.train_and_ask(data, job, preset="paper", changes={}, make=lambda: wishes)


EXPERIMENT = Experiment("table2", cells, against_paper, (TABLE,), printed="2")


PRETRAINED = {
    "class-conditional-pretrained": "pretrained",
    "class-independent-pretrained": "pretrained",
}


def cells_of_ours(scale: Scale) -> list[Cell]:
    """A network each, and for Stanford Dogs two with a pretrained backbone; `tiny` has those of MNIST."""
    if scale.name == "tiny":
        return [_cell_of_ours("mnist", setting, scale) for setting in SETTINGS]
    every = [_cell_of_ours(data, setting, scale) for data in DATA for setting in SETTINGS]
    return every + [_cell_of_ours("stanford-dogs", setting, scale) for setting in PRETRAINED]


def _cell_of_ours(data: str, setting: str, scale: Scale) -> Cell:
    recipe, chosen = recipe_of(data, setting), _setting(setting)
    config: dict[str, Any] = {
        "network": chosen.network,
        "alpha": chosen.alpha,
        "training": networks.recipe(data, "robust", recipe.changes, scale),
        "fit": recipe.wishes | {"pixels": recipe.pixels},
    }
    made = networks.cell(f"{data}/{setting}", data, scale, partial(run_of_ours, data, setting), recipe.seconds, config)
    if recipe.backbone != BACKBONE:
        return made
    return replace(made, missing=lambda data_dir: made.missing(data_dir) or missing_package())


def _setting(name: str) -> Setting:
    return SETTINGS[name.partition("-pretrained")[0]]


def run_of_ours(data: str, setting: str, job: Job) -> Told:
    """Train and evaluate one network by our recipe."""
    recipe, chosen = recipe_of(data, setting), _setting(setting)

    def make() -> Mapping[str, Any]:
        wishes = recipe.wishes | {"network": chosen.network, "alpha": chosen.alpha}
        body = {"backbone": pretrained(recipe.pixels)} if recipe.backbone == BACKBONE else {}
        return wishes | body

    found = networks.train_and_ask(data, job, preset="robust", changes=recipe.changes, make=make)
    used = networks.recipe(data, "robust", recipe.changes, job.scale)
    return found | {"recipe": words_of(recipe, found["network"]["backbone"], used)}


WIDER = replace(TABLE, columns=NAMES | {name: f"{_setting(name).words}, pretrained" for name in PRETRAINED})
OURS = Experiment("table2-ours", cells_of_ours, against_paper, (WIDER,), printed="2")
