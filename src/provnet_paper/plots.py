"""Figures of the experiments as PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

from provnet_paper.recipes import DATA, FIGURES
from provnet_paper.records import MET, MISSED, NOT_RUN, WITHIN, Printed, Results, Standing, half_width, printed

BLUE, ORANGE, GREY = "#2f5bb7", "#b0560f", "#7a7f87"  # told apart without colour vision; markers differ too
SHORT = {"class-conditional": "conditional", "class-independent": "independent", "single-0": "single α=0"}
DARK, PALE = "#22262d", "#dcdee3"  # verdicts are dark, the intervals behind them pale
MARKERS = {MET: ("o", BLUE), WITHIN: ("D", DARK), MISSED: ("X", ORANGE)}


def pyplot() -> Any:
    """Matplotlib without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as found

    return found


def png(drawing: Any) -> bytes:
    """A drawing as PNG, closed."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=130)
    pyplot().close(drawing)
    return buffer.getvalue()


def against_paper(results: Results) -> dict[str, bytes]:
    """Ours less the paper's, number by number, a panel a data set; nothing where nothing was run at full scale."""
    from provnet_paper.table2_words import standings

    found = {one: ours for one, ours in standings(results).items() if ours.verdict in MARKERS}
    missing = [one for one, ours in standings(results).items() if ours.verdict == NOT_RUN]
    there = [data for data in DATA if any(one.data == data for one in found)]
    if not there:
        return {}
    plt = pyplot()
    asked = dict.fromkeys((one.setting, one.figure) for one in printed())
    rows = [row for row in asked if any((one.setting, one.figure) == row for one in found)]
    size = (3.2 + 2.6 * len(there), 1.7 + 0.3 * len(rows))
    drawing, every = plt.subplots(
        1, len(there), figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for axes, data in zip(every[0], there, strict=True):
        _panel(axes, {one: ours for one, ours in found.items() if one.data == data}, rows)
        for one in missing:
            if one.data == data and (one.setting, one.figure) in rows:
                row = rows.index((one.setting, one.figure))
                axes.text(0, row, "  not run", va="center", fontsize=8, color=GREY)
        axes.set_title(DATA[data], fontsize=11)
        axes.set_xlabel("percentage points, logarithmic beyond ±1", fontsize=8)
    names = [f"{SHORT.get(setting, 'single α=.5')}: {FIGURES[figure]}" for setting, figure in rows]
    every[0][0].set_yticks(range(len(names)), names, fontsize=8)
    every[0][0].set_ylim(len(rows) - 0.5, -0.5)
    handles = [plt.Line2D([], [], ls="", marker=m, color=c, label=name) for name, (m, c) in MARKERS.items()]
    drawing.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    words = f"ours less the paper's; pale bars: half-width of the Wilson interval; {_seeds(found.values())}"
    drawing.suptitle(words, fontsize=10)
    return {"": png(drawing)}


def _seeds(found: Collection[Standing]) -> str:
    """How many there are, and what is drawn of them."""
    few, many = min(one.seeds for one in found), max(one.seeds for one in found)
    if many == 1:
        return "one seed"
    return f"whiskers: std over {'' if few == many else 'up to '}{many} seeds"


def _panel(axes: Any, found: dict[Printed, Standing], rows: list[tuple[str, str]]) -> None:
    """What was run of the rows, each at its height, which is the same in all panels."""
    for one, ours in found.items():
        assert ours.mean is not None
        row = rows.index((one.setting, one.figure))
        half = 100 * half_width(one.value, ours.n)
        axes.plot([-half, half], [row, row], color=PALE, lw=7, solid_capstyle="butt")
        marker, colour = MARKERS[ours.verdict]
        spread = None if ours.std is None else 100 * ours.std
        axes.errorbar(100 * (ours.mean - one.value), row, xerr=spread, fmt=marker, color=colour, ms=6, capsize=2)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:+g}" if value else "0")
    axes.margins(x=0.08)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
