"""The heat map and the curves of a robustness report as PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from provnet.report.robustness import RobustnessReport

BLUE, ORANGE = "#2f5bb7", "#b0560f"  # told apart without colour vision, and by line style


def heat_map_png(report: RobustnessReport, figure: str = "top_1") -> bytes:
    """Conditions by networks, in per cent."""
    pyplot = _pyplot()
    values = np.array(
        [[np.nan if one is None else one.value * 100 for one in row.shares[figure]] for row in report.rows]
    )
    size = (3.2 + 0.62 * len(report.networks), 1.2 + 0.34 * len(report.rows))
    drawing, axes = pyplot.subplots(figsize=size, layout="constrained")
    drawn = axes.imshow(values, cmap="cividis", aspect="auto")
    axes.set_xticks(range(len(report.networks)), [net.name for net in report.networks], rotation=45, ha="right")
    axes.set_yticks(range(len(report.rows)), [row.words for row in report.rows])
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (y, x), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(x, y, f"{value:.1f}", ha="center", va="center", color="black" if value > middle else "white")
    axes.set_title(f"{figure.replace('_', '-')} in per cent, n = {report.n:,}")
    drawing.colorbar(drawn, ax=axes, shrink=0.6)
    return _png(pyplot, drawing)


def curves_png(report: RobustnessReport) -> bytes | None:
    """Right answers over label mixing, one small chart a condition, as the paper draws it; None below three α."""
    mixed = sorted((net.alpha, i) for i, net in enumerate(report.networks) if net.alpha is not None)
    if len(mixed) < 3:
        return None
    pyplot = _pyplot()
    cnn = next((i for i, net in enumerate(report.networks) if net.isolated), None)
    columns = 5
    lines = -(-len(report.rows) // columns)
    drawing, every = pyplot.subplots(
        lines, columns, figsize=(2.5 * columns, 2.1 * lines), sharex=True, sharey=True, layout="constrained"
    )
    for axes, row in zip(every.flat, report.rows, strict=False):
        for figure, style in (("top_1", "-"), ("top_5", "--")):
            shares = row.shares[figure]
            found = [(alpha, share) for alpha, i in mixed if (share := shares[i]) is not None]
            values = np.array([(alpha, share.value, share.low, share.high) for alpha, share in found]) * [1, *[100] * 3]
            axes.plot(values[:, 0], values[:, 1], style, color=BLUE, marker="o" if style == "-" else None, ms=3)
            axes.fill_between(values[:, 0], values[:, 2], values[:, 3], color=BLUE, alpha=0.15, lw=0)
            theirs = None if cnn is None else shares[cnn]
            if theirs is not None:
                axes.axhline(theirs.value * 100, color=ORANGE, ls=style, lw=1.2)
        axes.set_title(row.words, fontsize=9)
        axes.grid(alpha=0.25)
    for axes in list(every.flat)[len(report.rows) :]:
        axes.set_visible(False)
    drawing.supxlabel("label mixing α")
    drawing.supylabel("right answers, per cent")
    drawing.suptitle("Blue: index network, orange: isolated CNN; solid: top-1, dashed: top-5", fontsize=10)
    return _png(pyplot, drawing)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _png(pyplot: Any, drawing: Any) -> bytes:
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150)
    pyplot.close(drawing)
    return buffer.getvalue()
