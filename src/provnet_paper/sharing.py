"""Model size and layer sharing: four sizes of CNN1 (class) and CNN2 (index), four levels of shared layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from provnet.models.network import parameter_count
from provnet_paper import networks
from provnet_paper.measures import Known, half_width, kept_hits, mean, of_paper
from provnet_paper.networks import PAIRS
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, pyplot, tidy
from provnet_paper.records import Cell, Experiment, Job, Result, Results, Scale, Table, Told
from provnet_paper.samples import KINDS, PREFIX, copy_figures
from provnet_paper.samples import SOME as CURVE_N  # training samples of a point of the index curve
from provnet_paper.store import resolve_device
from provnet_paper.two_cnns import TwoCnns, answers, built, pair, pair_hits, point, rates, shared_share, train_both

SIZES = ("small", "medium", "large", "xlarge")
LEVELS = (1, 2, 3, 4)
NAMES = {"small": "Small", "medium": "Medium", "large": "Large", "xlarge": "XLarge"}

PLATEAU = 20  # epochs within which CNN1 is said to reach its plateau
NEAR = 0.9  # of its last accuracy: when CNN2 counts as converged
LATE = 75  # epochs: half of the training


FIGURES = {
    "class_accuracy": "CNN1, class",
    "index_accuracy": "CNN2, own index",
    "any_at_1": "consistency, top 1",
    "any_at_5": "consistency, any of 5",
    **{f"{PREFIX}{name}": words for name, words in KINDS.items()},
    "class_epochs": "epochs of CNN1 to 90 % of its last",
    "index_epochs": "epochs of CNN2",
    "upward": "way of CNN2's loss that is up",
    "rising": "epochs in which it rises",
    "shared": "shared, %",
    "parameters": "parameters",
    "seconds": "seconds",
}
AS_PRINTED = "-as-printed"  # pairs trained with the printed batches, too


def curve_of(results: Results, cell: str) -> list[dict[str, Any]]:
    """The curve of a cell's first seed, empty where it was not run."""
    seeds = results.cells.get(cell, {})
    return next(iter(seeds.values())).told["curve"] if seeds else []


def epochs_to(curve: Sequence[dict[str, Any]], branch: str, share: float = NEAR) -> int:
    """The first epoch with that share of the last accuracy."""
    least = share * curve[-1][branch]
    return next(int(row["epoch"]) for row in curve if row[branch] >= least)


def upward(losses: Sequence[float]) -> float:
    """How much of the way that a loss goes, the first tenth left out, is upward: 0 where it only falls, 0.5 in place.

    By how much it rises counts, not how often: a loss that has settled wavers a little in every other epoch.
    """
    late = losses[len(losses) // 10 :]
    steps = [b - a for a, b in itertools.pairwise(late)]
    way = sum(map(abs, steps))
    return sum(step for step in steps if step > 0) / way if way else 0.0


def rising(losses: Sequence[float]) -> float:
    """The share of epochs, the first tenth left out, in which the loss rose."""
    late = losses[len(losses) // 10 :]
    ups = [b > a for a, b in itertools.pairwise(late)]
    return sum(ups) / len(ups) if ups else 0.0


def read(kept: Result) -> Result:
    """With what the curves tell: epochs to an accuracy, whether the plateau is early, how restless the loss is."""
    curve, loss = kept.told["curve"], kept.told["loss"]["index"]
    last = curve[-1]["class"]
    early = max((row["class"] for row in curve if row["epoch"] <= PLATEAU), default=0.0)
    plain = {
        "shared": 100 * float(kept.told["shared"]),
        "plateau": early - last + half_width(last, 10_000),
        "class_epochs": float(epochs_to(curve, "class")),
        "index_epochs": float(epochs_to(curve, "index")),
        "upward": upward(loss),
        "rising": rising(loss),
    }
    late = [row["index"] for row in curve if row["epoch"] >= LATE]
    more = {"index_late": (late[0], CURVE_N), "index_last": (late[-1], CURVE_N)} if late else {}
    return replace(kept, figures={**kept.figures, **{name: (value, 0) for name, value in plain.items()}, **more})


STYLES = {1: (GREY, ":"), 2: ("#3b9e8f", "--"), 3: (BLUE, "-"), 4: (ORANGE, "-.")}
MARKS = {1: "s", 2: "^", 3: "o", 4: "D"}
SETTLED = 10  # epochs


def sharing_figures(results: Results) -> dict[str, bytes]:
    """A figure a data set: index and class accuracy by epoch; one more of the last values beside the paper's."""
    found = {data: png(_curves(results, data)) for data in PAIRS if _there(results, data)}
    return {**found, **({"": png(_last(results))} if found and results.scale == "full" else {})}


def _there(results: Results, data: str) -> list[str]:
    return [size for size in SIZES if any(curve_of(results, f"{data}/{size}-{level}") for level in LEVELS)]


def _curves(results: Results, data: str) -> Any:
    sizes = _there(results, data)
    size_of = (max(6.0, 2.2 + 2.6 * len(sizes)), 5.2)
    drawing, every = panels(2, len(sizes), size_of, sharex=True, sharey="row")  # sizes are compared
    for column, size in enumerate(sizes):
        for row, (branch, words) in enumerate((("index", "CNN2, own index"), ("class", "CNN1, class of unseen"))):
            axes = every[row][column]
            for level in LEVELS:
                curve = curve_of(results, f"{data}/{size}-{level}")
                colour, dash = STYLES[level]
                x, y = [one["epoch"] for one in curve], [100 * one[branch] for one in curve]
                alone = "o" if len(x) == 1 else None  # one point has no line
                axes.plot(x, y, color=colour, ls=dash, lw=1.6, marker=alone, ms=4, label=f"level {level}")
            tidy(axes, grid=True)
            if branch == "class":
                axes.set_xlabel("epoch")
            if column == 0:
                axes.set_ylabel(f"{words}, %")
        every[0][column].set_title(NAMES[size], fontsize=11)
        if left := [str(level) for level in LEVELS if not curve_of(results, f"{data}/{size}-{level}")]:
            words = f"level {', '.join(left)} not run"
            every[0][column].text(0.97, 0.05, words, transform=every[0][column].transAxes, ha="right", fontsize=9)
    _settled(every[1][0], [curve_of(results, f"{data}/{size}-{level}") for size in sizes for level in LEVELS])
    drawing.legend(*every[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    cut = f"lower row cut off below its values from epoch {SETTLED} on"
    none = ", ".join(NAMES[size] for size in SIZES if size not in sizes)
    cut += f"; {none} not run" if none and results.scale == "full" else ""
    drawing.suptitle(f"{PAIRS[data]}: accuracy by epoch at four levels of shared layers; {cut}", fontsize=10)
    return drawing


def _settled(axes: Any, curves: list[list[dict[str, Any]]]) -> None:
    """Room for the values from SETTLED epochs on; what is below in the first epochs is cut off."""
    late = [100 * one["class"] for curve in curves for one in curve if one["epoch"] >= SETTLED or one is curve[-1]]
    margin = 0.08 * (max(late) - min(late)) + 0.1
    axes.set_ylim(min(late) - margin, max(late) + margin)


def _last(results: Results) -> Any:
    """Marks of level 1 to 4 a size, the paper's as dashes."""
    plt = pyplot()
    figures = {
        "class_accuracy": "CNN1, class of unseen",
        "index_accuracy": "CNN2, own index",
        "any_at_1": "CNN2, consistency, top 1",
    }
    drawing, every = panels(2, 3, (11.5, 6.2))
    for row, data in enumerate(PAIRS):
        for column, (figure, words) in enumerate(figures.items()):
            _marks(every[row][column], results, data, figure)
            every[row][column].set_title(f"{PAIRS[data]}: {words}", fontsize=10)
        every[row][0].set_ylabel("accuracy, %")
    handles = [
        plt.Line2D([], [], ls="", marker=MARKS[level], ms=7, color=STYLES[level][0], label=f"level {level}")
        for level in LEVELS
    ]
    handles.append(plt.Line2D([], [], ls="", marker="_", ms=10, mew=2, color="black", label="paper"))
    drawing.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    drawing.suptitle("last epoch, with 95 % intervals of the samples; every panel has its own axis", fontsize=10)
    return drawing


def _marks(axes: Any, results: Results, data: str, figure: str) -> None:
    ends: list[float] = []
    for place, size in enumerate(SIZES):
        for level in LEVELS:
            at = place + (level - 2.5) * 0.2
            cell = f"{data}/{size}-{level}"
            ours, theirs = mean(results, cell, figure), of_paper("sharing", cell, figure)
            if ours is not None:
                low, high = (100 * end for end in Known(ours).interval or (0.0, 1.0))
                look = {"marker": MARKS[level], "ms": 6, "color": STYLES[level][0], "clip_on": False}
                axes.plot(at, 100 * ours[0], **look)
                axes.vlines(at, low, high, color=look["color"], lw=1.4)
                ends += [low, high]
            if theirs is not None:
                axes.plot(at, 100 * theirs.figure[0], marker="_", ms=9, mew=2, color="black", zorder=3)
                ends.append(100 * theirs.figure[0])
        left = [level for level in LEVELS if not results.cells.get(f"{data}/{size}-{level}")]
        if left:
            words = "not run" if len(left) == len(LEVELS) else f"level {', '.join(map(str, left))}\nnot run"
            axes.text(place, 0.03, words, transform=axes.get_xaxis_transform(), ha="center", fontsize=8, color=GREY)
    low, high = min(ends), max(ends)
    margin = 0.12 * (high - low) + 0.1
    axes.set_ylim(low - margin, min(100 + margin / 2, high + margin))
    axes.set_xticks(range(len(SIZES)), [NAMES[size] for size in SIZES], fontsize=9)
    tidy(axes)
    axes.grid(axis="y", alpha=0.25)


EPOCHS = 150
EARLY, EVERY = 20, 5  # a point of the curves every epoch at first, then every fifth
PAIRED = ("class_accuracy", "index_accuracy", "any_at_1", "any_at_5")
RAISED = {"small": 8, "medium": 8, "large": 8, "xlarge": 16}
SECONDS = {"small": 40.0, "medium": 55.0, "large": 75.0, "xlarge": 185.0}
WITH_PRINTED = {"mnist/small-3": 105.0, "mnist/large-4": 180.0}  # also run with the printed batches


def cells(scale: Scale) -> list[Cell]:
    """A pair each, small ones first, the largest last but for a second pair with the printed batches."""
    if scale.name == "tiny":
        return [_cell("mnist", "small", level, scale) for level in (1, 4)]
    found = [_cell(data, size, level, scale) for size in RAISED for data in PAIRS for level in LEVELS]
    printed = []
    for name in WITH_PRINTED:
        data, setting = name.split("/")
        size, level = setting.split("-")
        printed.append(_cell(data, size, int(level), scale, printed=True))
    large = len(PAIRS) * len(LEVELS)
    first, *others = printed  # one is asked for; the others are more evidence
    return [*found[:-large], first, *found[-large:], *others]


def _cell(data: str, size: str, level: int, scale: Scale, *, printed: bool = False) -> Cell:
    recipe = pair(size, level, scale.epochs or EPOCHS, 1 if printed else RAISED[size])
    name = f"{data}/{size}-{level}"
    seconds = WITH_PRINTED[name] if printed else SECONDS[size]
    name += AS_PRINTED if printed else ""
    return networks.cell(name, data, scale, partial(run, data, recipe), seconds, {"pair": recipe.to_json()})


def run(data: str, recipe: TwoCnns, job: Job) -> Told:
    """Train one pair and ask it; curves on the way."""
    train, test = networks.open_samples(data, job)
    net = built(train, recipe, job.seed, resolve_device(job.device))
    curve: list[dict[str, float]] = []

    def ended(epoch: int) -> None:
        if epoch <= EARLY or epoch % EVERY == 0 or epoch == recipe.epochs:
            curve.append({"epoch": epoch, **point(net, train, test)})
        job.tell(0.97 * epoch / recipe.epochs)

    course = train_both(net, train, recipe, job.seed, ended)
    hits = pair_hits(net, train, test)
    copies = copy_figures(train, job.seed, lambda images: answers(net, images, 1)[1][:, 0])
    return {
        "figures": rates(hits) | copies,
        **kept_hits({name: hits[name] for name in PAIRED}),
        "parameters": parameter_count(net),
        "shared": round(shared_share(net), 5),
        "curve": [{key: round(value, 5) for key, value in row.items()} for row in curve],
        **{
            kind: {name: [float(f"{row[f'{name}_{kind}']:.5g}") for row in course] for name in ("class", "index")}
            for kind in ("loss", "accuracy")  # as trained, epoch by epoch
        },
        "samples": {"train": len(train), "test": len(test)},
    }


ROWS = {f"{size}-{level}": f"{NAMES[size]}, level {level}" for size in SIZES for level in LEVELS}
ROWS |= {
    f"{name.split('/')[1]}{AS_PRINTED}": f"{ROWS[name.split('/')[1]]}, batches as printed" for name in WITH_PRINTED
}
TABLE = Table(PAIRS, ROWS, FIGURES, head="pair")
EXPERIMENT = Experiment("sharing", cells, sharing_figures, (TABLE,), read, "sharing")
