"""Line charts as plain geometry; a template draws them as inline SVG, coloured by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A tick: where on the axis, in pixels, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Dot:
    """One measured point, with the words shown when it is pointed at."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Line:
    """One series: an SVG path (with gaps where values are missing), its dots and its last value."""

    name: str
    path: str
    dots: tuple[Dot, ...]
    last: str


@dataclass(frozen=True)
class Chart:
    """A chart in a box of `width` by `height` pixels; the plot lies between the four edges."""

    title: str
    words: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


def line_chart(
    title: str,
    epochs: Sequence[int],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    highest: float | None = None,
    write: Callable[[float], str] = "{:g}".format,
    write_tick: Callable[[float], str] = "{:g}".format,
) -> Chart:
    """Lay out one value an epoch for each series, from 0 up to `highest` or a round number above the data.

    >>> chart = line_chart("Loss", [1, 2], [("loss", [4.0, 1.0])])
    >>> [tick.text for tick in chart.y_ticks], chart.lines[0].last
    (['0', '1', '2', '3', '4'], '1')
    """
    finite = [value for _, values in series for value in values if math.isfinite(value)]
    y_values = steps(0.0, highest if highest is not None else max(finite, default=1.0), _Y_TICKS)
    first, last = (epochs[0], epochs[-1]) if epochs else (0, 1)
    ceiling = y_values[-1]

    def x(epoch: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * ((epoch - first) / (last - first) if last > first else 0.5), 2)

    def y(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value / ceiling, 0.0), 1.0), 2)

    lines = tuple(
        Line(name, _path(dots), tuple(dot for dot in dots if dot), _last(values, write))
        for name, values in series
        for dots in [
            [
                Dot(x(epoch), y(value), f"epoch {epoch}: {name} {write(value)}") if math.isfinite(value) else None
                for epoch, value in zip(epochs, values, strict=True)
            ]
        ]
    )
    x_values = sorted({round(epoch) for epoch in steps(first, last, _X_TICKS) if first <= epoch <= last} | {first})
    return Chart(
        title=title,
        words=f"{title} over {len(epochs)} epochs: " + ", ".join(f"{line.name} ends at {line.last}" for line in lines),
        lines=lines,
        x_ticks=tuple(Tick(x(epoch), str(epoch)) for epoch in x_values),
        y_ticks=tuple(Tick(y(value), write_tick(value)) for value in y_values),
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
    )


def steps(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `wanted` of them.

    >>> steps(0, 6.3, 4)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    span = high - low if high > low else 1.0
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    start = math.floor(low / step + 1e-9)
    end = max(math.ceil(high / step - 1e-9), start + 1)
    return [float(f"{number * step:.12g}") for number in range(start, end + 1)]


def _path(dots: Sequence[Dot | None]) -> str:
    parts: list[str] = []
    pen_down = False
    for dot in dots:
        if dot is not None:
            parts.append(f"{'L' if pen_down else 'M'}{dot.x:g} {dot.y:g}")
        pen_down = dot is not None
    return "".join(parts)


def _last(values: Sequence[float], write: Callable[[float], str]) -> str:
    return write(values[-1]) if values and math.isfinite(values[-1]) else "n/a"


_WIDTH, _HEIGHT = 400, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 386, 14, 206
_X_TICKS, _Y_TICKS = 6, 5


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
        width=_CURVES_WIDTH,
        height=_CURVES_HEIGHT,
        left=_CURVES_LEFT,
        right=_CURVES_RIGHT,
        top=_CURVES_TOP,
        bottom=_CURVES_BOTTOM,
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
    return round(_CURVES_LEFT + (_CURVES_RIGHT - _CURVES_LEFT) * min(max(share, 0.0), 1.0), 2)


def _y(share: float) -> float:
    return round(_CURVES_BOTTOM - (_CURVES_BOTTOM - _CURVES_TOP) * min(max(share, 0.0), 1.0), 2)


_CURVES_WIDTH, _CURVES_HEIGHT = 440, 330
_CURVES_LEFT, _CURVES_RIGHT, _CURVES_TOP, _CURVES_BOTTOM = 64, 424, 12, 276


SIDE, LEFT, TOP, BOTTOM = 300, 64, 10, 44
WIDTH, HEIGHT = LEFT + SIDE + 14, TOP + SIDE + BOTTOM


@dataclass(frozen=True)
class Trace:
    """One line: name, class that colours it, and (x, y) points in 0..1; `words` stand behind it."""

    name: str
    kind: str
    points: tuple[Point, ...]
    words: str = ""


@dataclass(frozen=True)
class Mark:
    """A measured point with an interval up and down, and words shown when it is pointed at."""

    x: float
    y: float
    low: float
    high: float
    words: str
    size: float = 3.5


@dataclass(frozen=True)
class Square:
    """A plot in a box of WIDTH by HEIGHT; places are pixels already."""

    title: str
    words: str
    labels: tuple[str, str]
    paths: tuple[tuple[Trace, str], ...]
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = LEFT + SIDE
    bottom: int = TOP + SIDE


def square_plot(
    title: str, words: str, labels: tuple[str, str], lines: Sequence[Trace], marks: Sequence[Mark] = ()
) -> Square:
    """Lay lines and points out in a square, both axes from 0 to 100 %.

    >>> plot = square_plot("Lorenz", "one line", ("x", "y"), [Trace("even", "guess", ((0.0, 0.0), (1.0, 1.0)))])
    >>> plot.paths[0][1], [tick.text for tick in plot.x_ticks]
    ('M64 310L364 10', ['0 %', '20 %', '40 %', '60 %', '80 %', '100 %'])
    """
    steps = [number / 5 for number in range(6)]
    return Square(
        title=title,
        words=words,
        labels=labels,
        paths=tuple((line, _squares_path(line.points)) for line in lines),
        marks=tuple(
            Mark(_squares_x(m.x), _squares_y(m.y), _squares_y(m.low), _squares_y(m.high), m.words, m.size)
            for m in marks
        ),
        x_ticks=tuple(Tick(_squares_x(step), f"{step * 100:.0f} %") for step in steps),
        y_ticks=tuple(Tick(_squares_y(step), f"{step * 100:.0f} %") for step in steps),
    )


def _squares_path(points: Sequence[Point]) -> str:
    return "".join(
        f"{'L' if number else 'M'}{_squares_x(x):g} {_squares_y(y):g}" for number, (x, y) in enumerate(points)
    )


def _squares_x(share: float) -> float:
    return round(LEFT + SIDE * min(max(share, 0.0), 1.0), 2)


def _squares_y(share: float) -> float:
    return round(TOP + SIDE * (1 - min(max(share, 0.0), 1.0)), 2)
