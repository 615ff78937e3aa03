"""The pages of `provnet generate` and `provnet interpolate`: pictures that were made, and their sources. Plain records.

The contact sheet has a row for each picture: the picture, then its training samples with their weights.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from provnet.answers.queries import Query
from provnet.base.batches import pieces
from provnet.base.errors import UsageError
from provnet.report.charts import Plot, figure_bytes, figure_for_print, line_chart
from provnet.report.page import render
from provnet.report.pictures import scale_to_box, to_image
from provnet.report.records import ExplanationCard, percent
from provnet.report.sheet import PAGE, explanation_png
from provnet.runs.run import Run
from provnet.samples.identity import hash_rows

SHEET = 48  # pictures of a contact sheet; the page has all
ONE_COLUMN = 6
STILL = 8  # frames of an animation that stand beside it


@dataclass(frozen=True, eq=False)
class GenerationReport:
    """Everything that the page shows.

    Attributes:
        title, intro: what is on the page.
        cards: the pictures with their sources, in order.
        run, network: the run folder, and its network in words.
        course: rows of the run's log, one an epoch.
        facts: more `(name, value)` lines.
        notes: remarks.
        moving: an animation as GIF, or None.
    """

    title: str
    intro: str
    cards: tuple[ExplanationCard, ...]
    run: str
    network: str
    course: tuple[Mapping[str, Any], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    moving: bytes | None = None


def generation_html(report: GenerationReport) -> str:
    """Draw the page as one self-contained HTML file.

    >>> card = ExplanationCard(None, "generated 1", "7", 0.9, True)
    >>> "<script" in generation_html(GenerationReport("Made", "", (card,), "runs/a", "a VAE"))
    False
    """
    moving = still = None
    if report.moving is not None:
        moving = "data:image/gif;base64," + base64.b64encode(report.moving).decode("ascii")
        still = "data:image/png;base64," + base64.b64encode(_still(report.moving)).decode("ascii")
    drawn = charts(report.course)
    return render("generation.html.j2", title=report.title, report=report, charts=drawn, moving=moving, still=still)


def charts(course: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The course of training: parts of the loss, class and index accuracy at the mean and at drawn latents."""
    rows = [row for row in course if "class_at_mean" in row]
    if not rows:
        return []
    epochs = [int(row["epoch"]) for row in rows]

    def series(*names: tuple[str, str]) -> list[tuple[str, list[float]]]:
        return [(words, [float(row[key]) for row in rows]) for words, key in names]

    shares: dict[str, Any] = {"highest": 1.0, "write": percent, "write_tick": lambda value: f"{value:.0%}"}
    losses = series(("reconstruction", "reconstruction"), ("divergence", "divergence"))
    return [
        line_chart("Generative loss", epochs, losses, write="{:.1f}".format),
        line_chart(
            "Class and index loss",
            epochs,
            series(("class", "task_loss"), ("index", "index_loss")),
            write="{:.3f}".format,
        ),
        line_chart(
            "Class accuracy", epochs, series(("at the mean", "class_at_mean"), ("drawn", "class_at_sample")), **shares
        ),
        line_chart(
            "Index accuracy", epochs, series(("at the mean", "index_at_mean"), ("drawn", "index_at_sample")), **shares
        ),
    ]


def sheet_png(cards: Sequence[ExplanationCard]) -> bytes:
    """The contact sheet, of at most 48 pictures; many stand in two columns, the left one first.

    >>> sheet_png([ExplanationCard(None, "generated 1", "7", 0.9, True)])[:4]
    b'\\x89PNG'
    """
    shown, buffer = cards[:SHEET], io.BytesIO()
    length = len(shown) if len(shown) <= ONE_COLUMN else -(-len(shown) // 2)
    columns = [explanation_png(shown[rows]) for rows in pieces(len(shown), length)]
    sheet = Image.new("RGB", (sum(one.width for one in columns), max(one.height for one in columns)), PAGE)
    for number, one in enumerate(columns):
        sheet.paste(one, (number * columns[0].width, 0))
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def animation(pictures: Sequence[np.ndarray], side: int = 224, milliseconds: int = 120) -> bytes:
    """Pictures there and back as an endless GIF; first and last are shown longer.

    >>> animation([np.zeros((4, 4), np.uint8), np.full((4, 4), 255, np.uint8)])[:6]
    b'GIF89a'
    """
    if len(pictures) < 2:
        raise UsageError(f"an animation needs two pictures or more, got {len(pictures)}")
    frames = [scale_to_box(to_image(picture), side) for picture in pictures]
    times = [8 * milliseconds, *[milliseconds] * (len(frames) - 2), 8 * milliseconds]
    frames, times = frames + frames[-2:0:-1], times + times[-2:0:-1]
    buffer = io.BytesIO()
    plain = [_plain(frame) for frame in frames]
    plain[0].save(buffer, "GIF", save_all=True, append_images=plain[1:], duration=times, loop=0, disposal=1)
    return buffer.getvalue()


def _still(moving: bytes) -> bytes:
    """At most eight frames of the way there, side by side, as PNG: for who does not want motion, and for print."""
    with Image.open(io.BytesIO(moving)) as found:
        last = int(getattr(found, "n_frames", 1)) // 2  # the rest is the way back
        frames = []
        for number in sorted({round(last * part / (STILL - 1)) for part in range(STILL)}):
            found.seek(number)
            frames.append(found.convert("RGB").resize((found.width // 2, found.height // 2), Image.Resampling.BOX))
    gap, buffer = 4, io.BytesIO()
    strip = Image.new("RGBA", (sum(one.width + gap for one in frames) - gap, frames[0].height))
    for number, one in enumerate(frames):
        strip.paste(one, (number * (one.width + gap), 0))
    strip.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _plain(frame: Image.Image) -> Image.Image:
    """Grey has its 256 levels; colours are chosen for each frame."""
    return frame if frame.mode == "L" else frame.quantize(256)


MEAN, DRAWN, INDEX = "#2f5bb7", "#b0560f", "#00705a"  # told apart without colour vision, and by dashes


def course_png(course: Sequence[Mapping[str, Any]], title: str = "") -> bytes:
    """Losses in parts on the left, accuracies at the mean (solid) and at drawn latents (dashed) on the right."""
    rows = [row for row in course if "class_at_mean" in row]
    if not rows:
        raise UsageError("the log has no epochs of a generator; train with --task generate")
    epochs = [row["epoch"] for row in rows]
    mark = "o" if len(epochs) == 1 else None  # a line of one point is not seen
    with figure_for_print(9, 4) as drawing:
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
            axes.locator_params(axis="x", integer=True)
            if len(epochs) == 1:
                axes.set_xticks(epochs)
            axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
            axes.grid(alpha=0.25)
        if title:
            drawing.suptitle(title, fontsize=10)
        return figure_bytes(drawing, dpi=170)


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


def made_queries(names: Sequence[str], images: np.ndarray) -> list[Query]:
    """Pictures that were made, as inputs to be explained."""
    hashes = [bytes(one).hex() for one in hash_rows(images)]
    return [Query(*parts) for parts in zip(names, images, hashes, strict=True)]


def network_in_words(run: Run) -> str:
    """The network of a run in a line."""
    config = run.config.network
    return f"{config.backbone}, {config.network}, head {config.head}, {len(run.samples):,} training samples"
