"""Subsets as a figure: accuracy over the share of the samples, the paper's beside ours."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import mean
from provnet.experiments.paper import printed
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Results
from provnet.experiments.subsets_words import CHOSEN, PAIRS, SHARES


def subsets_figures(results: Results) -> dict[str, bytes]:
    """Accuracy over the share, a panel a data set; the paper's as open marks, chosen samples as others."""
    there = [data for data in PAIRS if any(cell.startswith(f"{data}/") for cell in results.cells)]
    if not there:
        return {}
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        1, len(there), figsize=(1.5 + 4.8 * len(there), 4.6), squeeze=False, layout="constrained"
    )
    for axes, data in zip(every[0], there, strict=True):
        _panel(axes, results, data)
    handles = every[0][0].get_legend_handles_labels()
    drawing.legend(*handles, loc="outside lower center", ncols=2 * len(there), frameon=False)
    return {"": png(drawing)}


LINES = {
    "class_accuracy": ("black", "o", "main branch"),
    "any_at_10": ("#3b9e8f", "^", "any@10"),
    "any_at_5": (BLUE, "s", "any@5"),
    "any_at_1": (ORANGE, "D", "any@1"),
}
MARKS = {"prototypes": "P", "boundary": "X", "diverse": "*"}


def _panel(axes: Any, results: Results, data: str) -> None:
    for figure, (colour, marker, words) in LINES.items():
        found = [(share, mean(results, f"{data}/stratified-{share}", figure)) for share in SHARES]
        points = [(share, 100 * one[0]) for share, one in found if one is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, ms=5, lw=1.5, label=words)
        paper = [(int(one.setting.split("-")[1]), 100 * one.value) for one in printed("subsets")
                 if (one.data, one.figure) == (data, figure)]  # fmt: skip
        if results.scale == "full":
            axes.plot(*zip(*paper, strict=True), color=colour, marker=marker, ms=7, mfc="none", lw=0.7, ls=":")
    for way, marker in MARKS.items():
        for number, share in enumerate(CHOSEN):
            one = mean(results, f"{data}/{way}-{share}", "any_at_1")
            if one is not None:
                label = f"any@1, {way}" if number == 0 or len(results.cells) < 5 else None
                axes.plot(share, 100 * one[0], marker=marker, color=GREY, ms=8, ls="", label=label)
    axes.set_title(f"{PAIRS[data]}" + ("; open marks: the paper's" if results.scale == "full" else ""), fontsize=11)
    axes.set_xlabel("share of the training samples, %")
    axes.set_ylabel("accuracy, %")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
