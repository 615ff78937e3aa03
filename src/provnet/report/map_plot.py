"""The map as a PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from typing import Any

from provnet.report.fonts import face
from provnet.report.map_page import MapReport

# ten colours for a white ground, as on the page: told apart also without full colour vision
COLOURS = (
    *("#0099dd", "#772200", "#227700", "#ff33bb", "#0000dd"),
    *("#bb8811", "#660099", "#aa5577", "#004455", "#7755ff"),
)
SHAPES = "os^D"  # one for each round of colours
NAMED = 40  # classes that are named on the picture
LONGEST = 22  # characters of a name, as on the page
EDGE = 6.0  # pixels between a name and the edge of the picture


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
    rounds = labels[order] // len(COLOURS) % len(SHAPES)
    for number, shape in enumerate(SHAPES):
        rows = order[rounds == number]
        if len(rows):
            axes.scatter(xy[rows, 0], xy[rows, 1], s=size, c=colours[rows], marker=shape, lw=0, rasterized=True)
    missed = report.xy[report.train :]
    if len(missed):
        axes.scatter(missed[:, 0], missed[:, 1], marker="x", s=26, c="black", lw=1, label="misattributed test samples")
        axes.legend(loc="lower right", frameon=False)
    letters = face(12, "bold")
    sizes = np.bincount(labels, minlength=len(report.class_names))
    written = []
    for label in np.argsort(-sizes, kind="stable")[:NAMED].tolist():
        if not sizes[label]:
            break
        name = shortened(letters.clean(report.class_names[label]))
        middle = np.median(xy[labels == label], axis=0)
        words = axes.annotate(name, middle, ha="center", va="center", weight="bold", fontsize=12, parse_math=False)
        words.set_in_layout(False)  # a long name at the edge must not make the map small
        words.set_bbox({"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.5})
        written.append(words)
    axes.set_axis_off()
    axes.set_aspect("equal")
    title = f"{report.train:,} training samples by the last hidden layer of the index branch (t-SNE)"
    if len(report.class_names) > len(COLOURS) * len(SHAPES):
        title += f"\nsigns repeat after {len(COLOURS) * len(SHAPES)} of {len(report.class_names):,} classes"
    axes.set_title(title)
    make_room(drawing, written)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150)
    pyplot.close(drawing)
    return buffer.getvalue()


def shortened(name: str) -> str:
    """A long name less its middle: its end tells it from others.

    >>> shortened("n02085782-Japanese_spaniel"), shortened("dog")
    ('n02085782-J…e_spaniel', 'dog')
    """
    return f"{name[:11]}…{name[-9:]}" if len(name) > LONGEST else name


def make_room(drawing: Any, written: list[Any]) -> None:
    """Move names that reach over the edge inside, and leave those out that would lie on one that stands before them."""
    drawing.canvas.draw()  # places are known only now
    frame, taken = drawing.bbox, list[Any]()
    for words in written:
        box = words.get_window_extent()
        aside = max(EDGE - box.x0, 0.0) - max(box.x1 - frame.x1 + EDGE, 0.0)
        up = max(EDGE - box.y0, 0.0) - max(box.y1 - frame.y1 + EDGE, 0.0)
        if aside or up:
            words.set_position(words.axes.transData.inverted().transform(_shifted(words, aside, up)))
            box = words.get_window_extent()
        words.set_visible(not any(box.overlaps(other) for other in taken))
        if words.get_visible():
            taken.append(box)


def _shifted(words: Any, aside: float, up: float) -> tuple[float, float]:
    x, y = words.axes.transData.transform(words.get_position())
    return x + aside, y + up
