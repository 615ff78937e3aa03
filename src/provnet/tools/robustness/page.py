"""The page of `provnet robustness`: heat maps, curves over label mixing, a contact sheet; made of plain records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from provnet.data.dataset import ImageData
from provnet.data.modalities.image import picture_of
from provnet.report.charts import figure_bytes, figure_for_print
from provnet.report.page import render
from provnet.report.pictures import scale_to_box, strip, to_image
from provnet.report.records import Picture, percent
from provnet.report.sheet import face
from provnet.samples.csvfile import csv_text, quoted
from provnet.tools.robustness.compute import FIGURES, Difference, Measured, distort, sample_keys_of


@dataclass(frozen=True)
class Share:
    """A rate with its 95 % interval."""

    value: float
    n: int
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """How much better than the isolated CNN, as a share, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class NetworkColumn:
    """A column: what the network is called, what it is, its label mixing (None where it has no say)."""

    name: str
    words: str
    alpha: float | None
    isolated: bool = False


@dataclass(frozen=True, eq=False)
class ConditionRow:
    """A row: a condition, what every network scored (figure -> one share a network, None where there is none).

    Attributes:
        name, words: of the condition.
        fixed: whether all networks saw the same pictures.
        shares: figure -> one share a network.
        gains: one a network, None for the isolated CNN itself.
        pictures: the same few test pictures under this condition, for the contact sheet.
    """

    name: str
    words: str
    fixed: bool
    shares: Mapping[str, Sequence[Share | None]]
    gains: Sequence[Gain | None]
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, eq=False)
class RobustnessReport:
    """Everything that the page shows; `classes` is how many the networks tell apart."""

    data: str
    n: int
    networks: Sequence[NetworkColumn]
    rows: Sequence[ConditionRow]
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    classes: int = 0


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map: text, words shown when it is pointed at, tint 0..1, a class for its colour, interval, n."""

    text: str
    words: str
    tint: float
    kind: str
    ends: str = ""
    n: int | None = None


@dataclass(frozen=True)
class HeatMap:
    """A table of cells, one line a condition."""

    title: str
    meaning: str
    lines: tuple[tuple[ConditionRow, tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class Curve:
    """One condition over label mixing: paths of top-1 and top-5, and the heights of the isolated CNN's (or None)."""

    words: str
    top_1: str
    top_5: str
    cnn_1: float | None
    cnn_5: float | None
    dots: tuple[tuple[float, float, str], ...]


def robustness_html(report: RobustnessReport) -> str:
    """Draw the page as one self-contained HTML file."""
    answers, attribution = (
        [_heat_map(report, key, *words) for key, words in shown.items() if _has(report, key)]
        for shown in (ANSWERS, ATTRIBUTION)
    )
    has_gains = any(gain is not None for row in report.rows for gain in row.gains)
    return render(
        "robustness.html.j2",
        title="Robustness",
        report=report,
        attacked=max(
            (share.n for row in report.rows if not row.fixed for share in row.shares["top_1"] if share), default=0
        ),
        answers=answers,
        gains=_gain_map(report) if has_gains else None,
        attribution=attribution,
        verdict=verdict(report),
        curves=curves(report),
        ticks=[(side, f"{share:.0%}".replace("%", " %")) for share in (0, 0.5, 1) for side in [_y(share)]],
        strips=[(row.words, strip(row.pictures)) for row in report.rows if row.pictures],
    )


def verdict(report: RobustnessReport) -> list[tuple[str, str]]:
    """(condition, network) wherever a network is better than the isolated CNN beyond its interval: the best of each.

    Attacks are left out: a network whose gradients vanish resists them without being robust.

    >>> row = ConditionRow("blur-1", "blur", True, {}, [None, Gain(0.1, 0.05, 0.15)])
    >>> verdict(RobustnessReport("x", 9, [NetworkColumn("cnn", "", None, True), NetworkColumn("a", "", 0.5)], [row]))
    [('blur', 'a')]
    """
    found = []
    for row in report.rows:
        better = [(gain.value, i) for i, gain in enumerate(row.gains) if gain is not None and gain.low > 0]
        if better and row.fixed:
            found.append((row.words, report.networks[max(better)[1]].name))
    return found


def curves(report: RobustnessReport) -> list[Curve]:
    """One small chart a condition, over the networks that differ in label mixing; none below three of them.

    >>> curves(RobustnessReport("x", 9, [], []))
    []
    """
    mixed = sorted((net.alpha, i) for i, net in enumerate(report.networks) if net.alpha is not None)
    if len(mixed) < 3:
        return []
    cnn = next((i for i, net in enumerate(report.networks) if net.isolated), None)
    found = []
    for row in report.rows:
        one, five = row.shares["top_1"], row.shares["top_5"]
        points = {
            key: [(_x(alpha), _y(share.value), share) for alpha, i in mixed if (share := shares[i]) is not None]
            for key, shares in (("1", one), ("5", five))
        }
        dots = tuple(
            (x, y, f"α {alpha:g}: top-1 {percent(share.value)}")
            for (alpha, _), (x, y, share) in zip(mixed, points["1"], strict=False)
        )
        level = [None if cnn is None or shares[cnn] is None else _y(shares[cnn].value) for shares in (one, five)]  # type: ignore[union-attr]
        found.append(Curve(row.words, _path(points["1"]), _path(points["5"]), level[0], level[1], dots))
    return found


def contact_sheet(rows: Sequence[ConditionRow]) -> Image.Image:
    """The same few pictures under every condition, as one picture with names.

    >>> import numpy as np
    >>> contact_sheet([ConditionRow("clean", "no distortion", True, {}, [], [np.zeros((28, 28), np.uint8)])]).mode
    'RGB'
    """
    shown = [row for row in rows if row.pictures]
    columns = max(len(row.pictures) for row in shown)
    words = face(24)
    sheet = Image.new("RGB", (_LABEL + columns * _BOX + 24, len(shown) * _BOX + 24), "#ffffff")
    draw = ImageDraw.Draw(sheet)
    for number, row in enumerate(shown):
        top = 12 + number * _BOX
        draw.text((16, top + _BOX / 2), words.shorten(row.words, _LABEL - 28), "#1c2028", words.font, anchor="lm")
        for column, picture in enumerate(row.pictures):
            image = scale_to_box(to_image(picture), _BOX - 4).convert("RGB")
            sheet.paste(image, (_LABEL + 12 + column * _BOX, top + 2))
    return sheet


def _has(report: RobustnessReport, key: str) -> bool:
    return any(share is not None for row in report.rows for share in row.shares.get(key, ()))


def _meaning(report: RobustnessReport, key: str, meaning: str) -> str:
    if key != "top_5" or not report.classes or all(net.alpha is not None for net in report.networks):
        return meaning
    if report.classes <= FIVE:
        return f"{meaning} Class branches are left out: of {report.classes} classes the right one is always among five."
    return f"{meaning} For a class branch five of {report.classes:,} classes: the fewer there are, the lower the bar."


def _heat_map(report: RobustnessReport, key: str, title: str, meaning: str) -> HeatMap:
    every = [share.value for row in report.rows for share in row.shares.get(key, ()) if share is not None]
    low, high = min(every), max(every)
    lines = []
    for row in report.rows:
        cells = []
        for share in row.shares.get(key, ()):
            if share is None:
                why = NOT_MEASURED.get(key, "no index branch")
                cells.append(Cell("", f"not measured: {why}", 0.0, "none"))
                continue
            tint = round((share.value - low) / (high - low), 3) if high > low else 1.0
            words = f"{percent(share.value, 2)}, 95 % interval {percent(share.low, 2)} to {percent(share.high, 2)}"
            ends = f"{_digits(share.low)} to {_digits(share.high)}"
            cells.append(Cell(_digits(share.value), f"{words}, n = {share.n:,}", tint, "yes", ends, share.n))
        lines.append((row, tuple(cells)))
    return HeatMap(title, _meaning(report, key, meaning), tuple(lines))


def _gain_map(report: RobustnessReport) -> HeatMap:
    most = max(abs(gain.value) for row in report.rows for gain in row.gains if gain is not None) or 1.0
    lines = []
    for row in report.rows:
        cells = []
        for gain, share in zip(row.gains, row.shares["top_1"], strict=True):
            if gain is None or share is None:
                cells.append(Cell("", "the isolated CNN itself", 0.0, "none"))
                continue
            sure = "sure" if gain.low > 0 or gain.high < 0 else "unsure"
            side = "yes" if gain.value > 0 else "no"
            words = f"{gain.value * 100:+.2f} points, interval {gain.low * 100:+.2f} to {gain.high * 100:+.2f}"
            tint, ends = round(abs(gain.value) / most, 3), f"{gain.low * 100:+.1f} to {gain.high * 100:+.1f}"
            cells.append(Cell(f"{gain.value * 100:+.1f}", words, tint, f"{side} {sure}", ends, share.n))
        lines.append((row, tuple(cells)))
    meaning = (
        "In points of top-1, on the same pictures. Bold: beyond an interval that holds for all networks of the row "
        "together. It covers the choice of test samples, not the luck of one training."
    )
    return HeatMap("Better or worse than the isolated CNN", meaning, tuple(lines))


def _digits(share: float) -> str:
    return percent(share).removesuffix(" %")


def _x(alpha: float) -> float:
    return round(_LEFT + alpha * (_RIGHT - _LEFT), 1)


def _y(share: float) -> float:
    return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)


def _path(points: Sequence[tuple[float, float, Share]]) -> str:
    return "".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y, _) in enumerate(points))


_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 212, 8, 118
_LABEL, _BOX = 330, 88

ANSWERS = {
    "top_1": (
        "Right answers, top-1",
        "Single branch: the first exemplar is of the true class. Others: the most probable class is the true one.",
    ),
    "top_5": ("Right answers, top-5", "The same, any of five."),
}
FIVE = 5  # up to so many classes the top five of a class branch say nothing
NOT_MEASURED = {"unnamed": "nothing is withheld", "top_5": "the right class is always among five"}
ATTRIBUTION = {
    "same_exemplar": (
        "The same exemplar",
        "The first exemplar is the very sample that was named for the clean picture.",
    ),
    "same_exemplar_in_5": ("The same exemplar among five", "The clean picture's first exemplar is still among five."),
    "same_exemplar_class": (
        "An exemplar of the same class",
        "The first exemplar is of the class that the clean picture's first exemplar has.",
    ),
    "most_named": (
        "One of the ten exemplars named most often",
        "Near 100 the same few samples are named whatever the picture shows: then they explain nothing.",
    ),
    "unnamed": (
        "No exemplar",
        "All samples of the predicted class are withheld. Wherever an exemplar is asked for, this counts as wrong.",
    ),
    "supported": ("Supported", "Some training sample supports the answer; distorted pictures should lose support."),
}


BLUE, ORANGE = "#2f5bb7", "#b0560f"  # told apart without colour vision, and by line style


def heat_map_png(report: RobustnessReport, figure: str = "top_1") -> bytes:
    """Conditions by networks, in per cent."""
    values = np.array(
        [[np.nan if one is None else one.value * 100 for one in row.shares[figure]] for row in report.rows]
    )
    size = (3.2 + 0.62 * len(report.networks), 1.2 + 0.34 * len(report.rows))
    with figure_for_print(*size) as drawing:
        axes = drawing.subplots()
        drawn = axes.imshow(values, cmap="cividis", aspect="auto")
        axes.set_xticks(range(len(report.networks)), [net.name for net in report.networks], rotation=45, ha="right")
        axes.set_yticks(range(len(report.rows)), [row.words for row in report.rows])
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (y, x), value in np.ndenumerate(values):
            if np.isfinite(value):
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", color="black" if value > middle else "white")
        axes.set_title(f"{figure.replace('_', '-')} in per cent, n = {report.n:,}")
        drawing.colorbar(drawn, ax=axes, shrink=0.6)
        return figure_bytes(drawing)


def curves_png(report: RobustnessReport) -> bytes | None:
    """Right answers over label mixing, one small chart a condition, as the paper draws it; None below three α."""
    mixed = sorted((net.alpha, i) for i, net in enumerate(report.networks) if net.alpha is not None)
    if len(mixed) < 3:
        return None
    cnn = next((i for i, net in enumerate(report.networks) if net.isolated), None)
    columns = 5
    lines = -(-len(report.rows) // columns)
    with figure_for_print(2.5 * columns, 2.1 * lines) as drawing:
        every = drawing.subplots(lines, columns, sharex=True, sharey=True)
        for axes, row in zip(every.flat, report.rows, strict=False):
            for figure, style in (("top_1", "-"), ("top_5", "--")):
                shares = row.shares[figure]
                found = [(alpha, share) for alpha, i in mixed if (share := shares[i]) is not None]
                values = np.array([(alpha, share.value, share.low, share.high) for alpha, share in found]) * [
                    1,
                    *[100] * 3,
                ]
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
        return figure_bytes(drawing)


PICTURES = 10  # test pictures on the contact sheet


def robustness_csv(measured: list[Measured]) -> str:
    """One line a network, condition and figure."""
    head = ["network", "kind", "alpha", "isolated", "condition", "figure", "value", "n", "low", "high"]
    lines: list[list[object]] = [[*head]]
    for one in measured:
        for row in one.rows:
            for figure, rate in row.figures.items():
                about = [quoted(one.name), one.network, one.alpha, int(one.isolated), row.condition, figure]
                lines.append([*about, rate.value, rate.n, rate.low, rate.high])
    return csv_text(lines)


def robustness_report(
    measured: Sequence[Measured],
    gains: Mapping[tuple[str, str], Difference],
    test: ImageData,
    about: Mapping[str, Any],
) -> RobustnessReport:
    """One column a network, the isolated CNN first, then by label mixing."""
    classes = len(test.class_names)
    columns = sorted(measured, key=lambda one: (not one.isolated, one.network != "single", one.alpha))
    rows = []
    for number, row in enumerate(measured[0].rows):
        theirs = [one.rows[number].figures for one in columns]
        shares: dict[str, list[Share | None]] = {}
        for figure in FIGURES:
            rates = [figures.get(figure) for figures in theirs]
            shares[figure] = [
                None
                if rate is None or rate.value is None
                else Share(rate.value, rate.n, rate.low or 0.0, rate.high or 0.0)
                for rate in rates
            ]
        if classes <= FIVE:  # five classes hold the right one whatever a class branch says
            chief = zip(columns, shares["top_5"], strict=True)
            shares["top_5"] = [share if one.network == "single" and not one.isolated else None for one, share in chief]
        found = [gains.get((one.name, row.condition)) for one in columns]
        rows.append(
            ConditionRow(
                name=row.condition,
                words=row.words,
                fixed=row.fixed,
                shares=shares,
                gains=[None if gain is None else Gain(gain.value, gain.low, gain.high) for gain in found],
                pictures=_pictures(test, row.condition, about["seed"], PICTURES) if row.fixed else (),
            )
        )
    facts = [
        ("Test data", str(about["data"])),
        ("Fingerprint", str(about["fingerprint"])),
        ("Samples", f"{len(test):,}"),
        ("Seed of all draws", str(about["seed"])),
        ("Epsilon of attacks", f"{about['epsilon']:g} on pixels from 0 to 1"),
    ]
    return RobustnessReport(str(about["data"]), len(test), [_network(one) for one in columns], rows, facts, classes)


def _network(one: Measured) -> NetworkColumn:

    if one.isolated:
        words = f"isolated CNN: backbone {one.backbone} with a class head, index branch not trained"
        return NetworkColumn(one.name, words, None, isolated=True)
    single = one.network == "single"
    return NetworkColumn(
        one.name,
        f"{one.network} network, backbone {one.backbone}, label mixing α {one.alpha:g}",
        one.alpha if single else None,
    )


def _pictures(test: ImageData, condition: str, seed: int, count: int) -> list[np.ndarray]:
    """A few test pictures under a condition, the same ones every time; none where they are no pictures."""
    labels = test.samples.labels
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)]  # one a class, then any
    rows = np.array(list(dict.fromkeys([*firsts, *range(len(test))]))[:count], dtype=np.int64)
    few = test.select(rows)
    copies = distort(few.images, sample_keys_of(few), condition, seed=seed).numpy()
    return [picture for copy in copies if (picture := picture_of(copy)) is not None]
