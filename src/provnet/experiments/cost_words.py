"""What the index branch costs, as a table and a figure."""

from __future__ import annotations

import statistics
from typing import Any

from provnet.experiments.beside import SOME, Finding, apart, counted, judged, told
from provnet.experiments.beside import mean as figure_mean
from provnet.experiments.markdown import ends, spread, table
from provnet.experiments.paper import standing
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Result, Results
from provnet.experiments.settings import DATA, MAIN

# name of a network in the results -> its kind in NETWORKS, None without an index branch
VARIANTS: dict[str, str | None] = {
    "without": None,
    "class-conditional": "class-conditional",
    "class-independent": "class-independent",
}
WORDS = {
    "without": "class branch alone",
    "class-conditional": "with class-conditional index",
    "class-independent": "with class-independent index",
}


def section(results: Results) -> list[str]:
    """A row a data set and network; times as multiples of the network without an index branch, in the same run."""
    rows = []
    for data in MAIN:
        seeds = list(results.cells.get(data, {}).values())
        if not seeds:
            if results.scale == "full":
                rows.append((DATA[data], results.absent.get(data, "not run"), *[""] * 8))
            continue
        for name, words in WORDS.items():
            rows.append((DATA[data], words, *_cells(seeds, name)))
    head = ("data", "network", "class", "95 % interval", "n", "seeds", "parameters", "epoch", "a query alone")
    lines = told(findings(results), results)
    return [*lines, "", *table((*head, "one of 256 queries at once"), rows, left=2)]


def findings(results: Results) -> list[Finding]:
    """Both at once without loss of class accuracy, at the cost of size and time."""
    signs: list[int | None] = []
    larger: list[int | None] = []
    lower: list[int | None] = []
    gaps, ratios = [], []
    for data in MAIN:
        seeds = list(results.cells.get(data, {}).values())
        plain = figure_mean(results, data, "without")
        for name in list(WORDS)[1:] if seeds else ():
            ours = figure_mean(results, data, name)
            if ours is None or plain is None:
                continue
            gap = apart(ours, plain)
            signs.append(gap.no_worse)
            lower.append(-gap.sign)
            gaps.append(f"{DATA[data]}, {name} {gap}")
            of = [mean(seeds, name, what) / mean(seeds, "without", what) for what in ("parameters", "epoch_seconds")]
            larger.append(1 if min(of) > 1 else -1)
            ratios.append(f"{DATA[data]}, {name} {of[0]:.2f} and {of[1]:.2f}")
    return [
        Finding(
            "With an index branch classes are found as often as without:",
            judged(signs),
            "; ".join(gaps) or "not run",
            ours=True,
        ),
        Finding(
            '"The index head also adds computational cost" (sec. 6; parameters and seconds of an epoch, times those of '
            "the class branch alone):",
            judged(larger),
            "; ".join(ratios) or "not run",
        ),
        Finding(
            '"… and may impact main-task performance" (sec. 6; class accuracy below that of the class branch alone):',
            judged(lower, SOME),
            f"the differences above; {counted(lower)}" if gaps else "not run",
        ),
    ]


def _cells(seeds: list[Result], name: str) -> tuple[str, ...]:
    one = standing(None, [result.figures[name] for result in seeds])
    size = seeds[0].told["networks"][name]["parameters"]
    times = []
    for what, unit, factor in (("epoch_seconds", "s", 1.0), ("query_ms_1", "ms", 1.0), ("query_ms_256", "µs", 1e3)):
        value = mean(seeds, name, what) * factor
        ratio = mean(seeds, name, what) / mean(seeds, "without", what)
        times.append(f"{short(value)} {unit}" + ("" if name == "without" else f" ({ratio:.2f}×)"))
    return (spread(one), ends(one), f"{one.n:,}", str(one.seeds), f"{size / 1e6:.2f} M", *times)


def short(value: float) -> str:
    """Three digits that count, without powers of ten.

    >>> short(2612.3), short(0.012345)
    ('2,612', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mean(seeds: list[Result], name: str, what: str) -> float:
    """The mean over seeds of what was measured of a network."""
    return statistics.fmean(float(one.told["networks"][name][what]) for one in seeds)


def cost_figures(results: Results) -> dict[str, bytes]:
    """Class accuracy less that of the class branch alone; bars of parameters and times, a panel each."""
    there = [data for data in MAIN if results.cells.get(data)]
    if not there:
        return {}
    plt: Any = pyplot()
    panels = (
        ("parameters, millions", "parameters", 1e-6),
        ("seconds of an epoch", "epoch_seconds", 1.0),
        ("milliseconds of a query, batch 1", "query_ms_1", 1.0),
    )
    drawing, (first, *every) = plt.subplots(
        1, 1 + len(panels), figsize=(13, 1.5 + 0.75 * len(there)), sharey=True, layout="constrained"
    )
    _class_panel(first, results, there)
    for axes, (title, what, factor) in zip(every, panels, strict=True):
        for place, (name, colour) in enumerate(zip(WORDS, (GREY, BLUE, ORANGE), strict=True)):
            values = [mean(list(results.cells[data].values()), name, what) * factor for data in there]
            heights = [row + (place - 1) * 0.27 for row in range(len(there))]
            drawn = axes.barh(heights, values, height=0.25, color=colour, label=WORDS[name])
            axes.bar_label(drawn, labels=[short(value) for value in values], padding=3, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    first.set_yticks(range(len(there)), [DATA[data] for data in there])
    first.invert_yaxis()
    drawing.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return {"": png(drawing)}


def _class_panel(axes: Any, results: Results, there: list[str]) -> None:
    """Points with 95 % intervals, at the heights of their bars beside."""
    for place, (name, colour) in enumerate(zip(WORDS, (GREY, BLUE, ORANGE), strict=True)):
        for row, data in enumerate(there):
            ours, plain = (figure_mean(results, data, one) for one in (name, "without"))
            if name == "without" or ours is None or plain is None:
                continue
            gap, height = apart(ours, plain), row + (place - 1) * 0.27
            axes.plot([100 * gap.low, 100 * gap.high], [height, height], color=colour, lw=1.5)
            axes.plot(100 * gap.value, height, "o", color=colour, ms=6)
            at = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 8}
            axes.annotate(f"{100 * gap.value:+.2f}", (100 * gap.low, height), (-4, 0), **at)
    axes.axvline(0, color=GREY, lw=1)
    axes.set_title("class accuracy less that of\nthe class branch alone, points", fontsize=10)
    axes.margins(x=0.2)
    axes.spines[["top", "right"]].set_visible(False)
