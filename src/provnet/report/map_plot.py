"""The map as a PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io

from provnet.report.fonts import face
from provnet.report.map_page import MapReport

# Petroff's ten colours, as on the page
COLOURS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
NAMED = 40  # classes that are named on the picture
LONGEST = 24  # characters of a name, as on the page


def map_png(report: MapReport) -> bytes:
    """Training samples by class, the misattributed test samples as crosses."""
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(9, 9), layout="constrained")
    labels, xy = report.labels[: report.train], report.xy[: report.train]
    colours = np.array(COLOURS)[labels % len(COLOURS)]
    order = np.random.default_rng(0).permutation(report.train)  # no class on top of all others
    size = float(np.clip(30_000 / report.train, 1.2, 20))
    axes.scatter(xy[order, 0], xy[order, 1], s=size, c=colours[order], lw=0, rasterized=True)
    missed = report.xy[report.train :]
    if len(missed):
        axes.scatter(missed[:, 0], missed[:, 1], marker="x", s=26, c="black", lw=1, label="misattributed test samples")
        axes.legend(loc="lower right", frameon=False)
    letters = face(12, "bold")
    present = [label for label in range(len(report.class_names)) if (labels == label).any()]
    for label in present[:NAMED]:
        middle = np.median(xy[labels == label], axis=0)
        name = letters.clean(report.class_names[label])
        name = name[: LONGEST - 1] + "…" if len(name) > LONGEST else name
        words = axes.annotate(name, middle, ha="center", va="center", weight="bold", fontsize=12, parse_math=False)
        words.set_in_layout(False)  # a long name at the edge must not make the map small
        words.set_bbox({"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.5})
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_title(f"{report.train:,} training samples by the last hidden layer of the index branch (t-SNE)")
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150)
    pyplot.close(drawing)
    return buffer.getvalue()
