"""Convergence curves of the pairs, a panel a size and branch, a line a level; and all cells beside the paper's."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import mean
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Figure, Results
from provnet.experiments.sharing_claims import LEVELS, NAMES, PAIRS, SIZES, papers
from provnet.experiments.sharing_curves import curve_of
from provnet.stats import wilson

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
    plt, sizes = pyplot(), _there(results, data)
    drawing, every = plt.subplots(
        2,
        len(sizes),
        figsize=(max(6.0, 2.2 + 2.6 * len(sizes)), 5.2),
        squeeze=False,
        sharex=True,
        sharey="row",  # sizes are compared
        layout="constrained",
    )
    for column, size in enumerate(sizes):
        for row, (branch, words) in enumerate((("index", "CNN2, own index"), ("class", "CNN1, class of unseen"))):
            axes = every[row][column]
            for level in LEVELS:
                curve = curve_of(results, f"{data}/{size}-{level}")
                colour, dash = STYLES[level]
                x, y = [one["epoch"] for one in curve], [100 * one[branch] for one in curve]
                alone = "o" if len(x) == 1 else None  # one point has no line
                axes.plot(x, y, color=colour, ls=dash, lw=1.6, marker=alone, ms=4, label=f"level {level}")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
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
    drawing, every = plt.subplots(2, 3, figsize=(11.5, 6.2), squeeze=False, layout="constrained")
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
            ours, theirs = mean(results, f"{data}/{size}-{level}", figure), papers(data, size, level, figure)
            if ours is not None:
                low, high = (100 * end for end in _ends(ours))
                look = {"marker": MARKS[level], "ms": 6, "color": STYLES[level][0], "clip_on": False}
                axes.plot(at, 100 * ours[0], **look)
                axes.vlines(at, low, high, color=look["color"], lw=1.4)
                ends += [low, high]
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
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)


def _ends(ours: Figure) -> tuple[float, float]:
    """The ends of the Wilson interval."""
    found = wilson(min(ours[0] * ours[1], ours[1]), ours[1])
    assert found.low is not None and found.high is not None
    return found.low, found.high
