"""The course of a generator's training for print, as in the paper's figure, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from provnet.errors import UsageError

MEAN, DRAWN, INDEX = "#2f5bb7", "#b0560f", "#00705a"  # told apart without colour vision, and by dashes


def course_png(course: Sequence[Mapping[str, Any]], title: str = "") -> bytes:
    """Losses in parts on the left, accuracies at the mean (solid) and at drawn latents (dashed) on the right."""
    rows = [row for row in course if "class_at_mean" in row]
    if not rows:
        raise UsageError("the log has no epochs of a generator; train with --task generate")
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("figures need matplotlib; install it with: pip install '.[plots]'") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [row["epoch"] for row in rows]
    mark = "o" if len(epochs) == 1 else None  # a line of one point is not seen
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        drawing = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasAgg(drawing)
        left, right = drawing.subplots(1, 2)
        for name, words, colour, style in LOSSES:
            values = [row[name] for row in rows]
            if any(values):
                words = f"{words}, ends at {values[-1]:.3g}"
                left.plot(epochs, values, color=colour, linestyle=style, marker=mark, label=words)
        left.set(xlabel="epoch", ylabel="mean loss a picture", yscale="log")
        for name, words, colour, style in SHARES:
            values = [100 * row[name] for row in rows]
            words = f"{words}, ends at {values[-1]:.2f} %"
            right.plot(epochs, values, color=colour, linestyle=style, marker=mark, label=words)
        right.set(xlabel="epoch", ylabel="training samples, %", ylim=(0, 102))
        for axes in (left, right):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if len(epochs) == 1:
                axes.set_xticks(epochs)
            axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
            axes.grid(alpha=0.25)
        if title:
            drawing.suptitle(title, fontsize=10)
        buffer = io.BytesIO()
        drawing.savefig(buffer, format="png", dpi=170)
    return buffer.getvalue()


LOSSES = (
    ("reconstruction", "reconstruction", MEAN, "-"),
    ("divergence", "divergence (KL)", DRAWN, "--"),
    ("feature", "feature", "#777777", ":"),
    ("task_loss", "class", INDEX, "-."),
    ("index_loss", "index", "#8a3b8f", (0, (5, 1))),
)
SHARES = (
    ("class_at_mean", "class at the mean", MEAN, "-"),
    ("class_at_sample", "class, drawn", MEAN, "--"),
    ("index_at_mean", "index at the mean", DRAWN, "-"),
    ("index_at_sample", "index, drawn", DRAWN, "--"),
)
