"""ROC curves and paired histograms as plain geometry; a template draws them as inline SVG, coloured by the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from provnet.report.charts import Tick, steps

Point = tuple[float, float]


@dataclass(frozen=True)
class Path:
    """One line or area: its name, an SVG path, the class that colours it, and a value for the legend."""

    name: str
    path: str
    kind: str
    value: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot in a box of `width` by `height` pixels; it lies between the four edges."""

    title: str
    words: str
    paths: tuple[Path, ...]
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


@dataclass(frozen=True)
class Curve:
    """A ROC curve: name, colour class, value for the legend, and (false-positive, true-positive) rates, rising."""

    name: str
    kind: str
    value: str
    points: tuple[Point, ...]


def roc_plot(curves: Sequence[Curve], *, log: bool = False, least: float = 1e-3) -> Plot:
    """Lay out ROC curves on linear axes, or on two log axes that begin at `least`, with the line of guessing.

    >>> plot = roc_plot([Curve("index", "k0", "1.00", ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))])
    >>> [tick.text for tick in plot.x_ticks], plot.paths[1].name
    (['0 %', '20 %', '40 %', '60 %', '80 %', '100 %'], 'index')
    """
    low = math.log10(least)

    def share(rate: float) -> float:
        return (math.log10(max(rate, least)) - low) / -low if log else rate

    def place(point: Point) -> Point:
        return _x(share(point[0])), _y(share(point[1]))

    marks = [10.0**power for power in range(round(low), 1)] if log else steps(0, 1, 5)
    guess = Path("guessing", _line([place((least if log else 0.0,) * 2), place((1.0, 1.0))]), "guess")
    paths = [Path(one.name, _line(_distinct([place(p) for p in one.points])), one.kind, one.value) for one in curves]
    scale = "log axes" if log else "linear axes"
    return _plot(
        f"ROC, {scale}",
        f"ROC curves on {scale}: " + ", ".join(f"{one.name} AUC {one.value}" for one in curves),
        (guess, *paths),
        ("nonmembers taken for members (false positives)", "members found (true positives)"),
        [Tick(_x(share(mark)), _power(mark)) for mark in marks],
        [Tick(_y(share(mark)), _power(mark)) for mark in marks],
    )


def histogram_plot(
    title: str, label: str, edges: Sequence[float], members: Sequence[int], nonmembers: Sequence[int]
) -> Plot:
    """Lay out two histograms over each other, each as shares of its own kind.

    >>> plot = histogram_plot("Confidence", "confidence", [0.0, 0.5, 1.0], [1, 3], [4, 0])
    >>> [path.name for path in plot.paths], plot.y_ticks[-1].text
    (['nonmembers', 'members'], '100 %')
    """
    shares = {
        name: [count / max(sum(counts), 1) for count in counts]
        for name, counts in (("nonmembers", nonmembers), ("members", members))
    }
    marks = steps(0, max(max(of, default=0.0) for of in shares.values()), 4)
    first, last = edges[0], edges[-1]

    def x(value: float) -> float:
        return _x((value - first) / (last - first))

    def outline(of: Sequence[float]) -> str:
        points: list[Point] = [(x(first), _y(0))]
        for start, end, part in zip(edges[:-1], edges[1:], of, strict=True):
            points += [(x(start), _y(part / marks[-1])), (x(end), _y(part / marks[-1]))]
        return _line([*points, (x(last), _y(0))]) + "Z"

    values = [value for value in steps(first, last, 5) if first - 1e-9 <= value <= last + 1e-9]
    return _plot(
        title,
        f"{title}: histograms of {sum(members):,} members and {sum(nonmembers):,} nonmembers",
        tuple(Path(name, outline(of), f"h{number}") for number, (name, of) in enumerate(shares.items())),
        (label, ""),
        [Tick(x(value), f"{value:g}") for value in values],
        [Tick(_y(mark / marks[-1]), f"{mark * 100:g} %") for mark in marks],
    )


def _plot(
    title: str, words: str, paths: tuple[Path, ...], labels: tuple[str, str], x_ticks: list[Tick], y_ticks: list[Tick]
) -> Plot:
    return Plot(
        title=title,
        words=words,
        paths=paths,
        x_label=labels[0],
        y_label=labels[1],
        x_ticks=tuple(x_ticks),
        y_ticks=tuple(y_ticks),
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
    )


def _distinct(points: list[Point]) -> list[Point]:
    """Points less those that lie on one place after rounding to a tenth of a pixel."""
    kept: list[Point] = []
    for x, y in points:
        spot = (round(x, 1), round(y, 1))
        if not kept or spot != kept[-1]:
            kept.append(spot)
    return kept


def _line(points: Sequence[Point]) -> str:
    return "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))


def _power(mark: float) -> str:
    """A power of ten as people write rates.

    >>> _power(0.001), _power(1.0)
    ('0.1 %', '100 %')
    """
    return f"{mark * 100:.10g} %"


def _x(share: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * min(max(share, 0.0), 1.0), 2)


def _y(share: float) -> float:
    return round(_BOTTOM - (_BOTTOM - _TOP) * min(max(share, 0.0), 1.0), 2)


_WIDTH, _HEIGHT = 440, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 424, 12, 276
