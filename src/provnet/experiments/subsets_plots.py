"""Subsets as a figure: accuracy over the share of the samples, the paper's beside ours."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import mean
from provnet.experiments.paper import printed
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Results
from provnet.experiments.subsets_words import CHOSEN, PAIRS, SHARES
from provnet.stats import wilson

LINES = {
    "class_accuracy": ("black", "o", "main branch"),
    "any_at_10": ("#3b9e8f", "^", "any@10"),
    "any_at_5": (BLUE, "s", "any@5"),
    "any_at_1": (ORANGE, "D", "any@1"),
}
MARKS = {"prototypes": "P", "boundary": "X", "diverse": "*"}
# the main branch above on a scale of its own: beside retrieved classes its differences are not seen
ROWS = {"main branch: accuracy, %": ("class_accuracy",), "retrieved classes: accuracy, %": tuple(LINES)[1:]}


def subsets_figures(results: Results) -> dict[str, bytes]:
    """Accuracy over the share, a column a data set; the paper's as open marks, chosen samples as grey ones."""
    there = [data for data in PAIRS if any(cell.startswith(f"{data}/") for cell in results.cells)]
    if not there:
        return {}
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        len(ROWS),
        len(there),
        figsize=(1.5 + 4.8 * len(there), 6.4),
        squeeze=False,
        sharex=True,
        layout="constrained",
        height_ratios=(1, 1.7),
    )
    handles: dict[str, Any] = {}
    for row, (words, figures) in zip(every, ROWS.items(), strict=True):
        for axes, data in zip(row, there, strict=True):
            _panel(axes, results, data, figures)
            found, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, found, strict=True))
        row[0].set_ylabel(words)
    for column, data in enumerate(there):
        paper = "; open marks: the paper's; bands: 95 % intervals" if results.scale == "full" else ""
        every[0][column].set_title(f"{PAIRS[data]}{paper}", fontsize=11)
        every[-1][column].set_xlabel("share of the training samples, %")
    order = [name for name in (*(words for _, _, words in LINES.values()), *MARKS) if name in handles]
    drawing.legend(
        [handles[name] for name in order],
        [f"{name} (main branch, any@1)" if name in MARKS else name for name in order],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    return {"": png(drawing)}


def _panel(axes: Any, results: Results, data: str, figures: tuple[str, ...]) -> None:
    for figure in figures:
        colour, marker, words = LINES[figure]
        found = [(share, mean(results, f"{data}/stratified-{share}", figure)) for share in SHARES]
        points = [(share, one[0], wilson(one[0] * one[1], one[1])) for share, one in found if one is not None]
        if points:
            shares, rates, intervals = zip(*points, strict=True)
            axes.plot(shares, [100 * rate for rate in rates], color=colour, marker=marker, ms=5, lw=1.5, label=words)
            ends = ([100 * one.low for one in intervals], [100 * one.high for one in intervals])
            axes.fill_between(shares, *ends, color=colour, alpha=0.15, lw=0)
        paper = [(int(one.setting.split("-")[1]), 100 * one.value) for one in printed("subsets")
                 if (one.data, one.figure) == (data, figure)]  # fmt: skip
        if results.scale == "full":
            axes.plot(*zip(*paper, strict=True), color=colour, marker=marker, ms=7, mfc="none", lw=0.7, ls=":")
    for way, marker in MARKS.items():
        for share in CHOSEN:
            one = mean(results, f"{data}/{way}-{share}", figures[-1])  # of retrieved classes those of the first
            if one is not None:
                axes.plot(share, 100 * one[0], marker=marker, color=GREY, ms=8, ls="", label=way)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
