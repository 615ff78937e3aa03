"""Plots as plain geometry, which `plot.html.j2` draws as inline SVG, coloured by the page; and figures for print."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from provnet.base.errors import UsageError

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """A box of `width` by `height` pixels; the plot lies between the four edges. Shares of an axis become pixels."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def x(self, share: float) -> float:
        """A share of the horizontal axis in pixels, kept inside."""
        return round(self.left + (self.right - self.left) * min(max(share, 0.0), 1.0), 2)

    def y(self, share: float) -> float:
        """A share of the vertical axis in pixels, kept inside."""
        return round(self.bottom - (self.bottom - self.top) * min(max(share, 0.0), 1.0), 2)

    def point(self, share: Point) -> Point:
        """Both."""
        return self.x(share[0]), self.y(share[1])


EPOCHS = Frame(400, 250, 46, 386, 14, 206)
CURVES = Frame(440, 330, 64, 424, 12, 276)
SQUARE = Frame(378, 354, 64, 364, 10, 310)


@dataclass(frozen=True)
class Tick:
    """A tick: where on the axis, in pixels, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A measured point, with words shown when it is pointed at, and an interval up and down where it has one."""

    x: float
    y: float
    words: str
    low: float | None = None
    high: float | None = None
    size: float = 3.4


@dataclass(frozen=True)
class Path:
    """One line or area: its name, an SVG path, the class that colours it, and a value for the legend.

    `key` is how the legend shows it: `line`, `area`, or nothing, where it is left out there. `words` are shown when it
    is pointed at.
    """

    name: str
    path: str
    kind: str
    value: str = ""
    key: str = "line"
    words: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Plot:
    """What a template draws; places are pixels."""

    title: str
    words: str
    frame: Frame
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    paths: tuple[Path, ...]
    marks: tuple[Mark, ...] = ()


def line_chart(
    title: str,
    epochs: Sequence[int],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    highest: float | None = None,
    write: Callable[[float], str] = "{:g}".format,
    write_tick: Callable[[float], str] = "{:g}".format,
) -> Plot:
    """Lay out one value an epoch for each series, from 0 up to `highest` or a round number above the data.

    >>> chart = line_chart("Loss", [1, 2], [("loss", [4.0, 1.0])])
    >>> [tick.text for tick in chart.y_ticks], chart.paths[0].value
    (['0', '1', '2', '3', '4'], '1')
    """
    finite = [value for _, values in series for value in values if math.isfinite(value)]
    levels = steps(0.0, highest if highest is not None else max(finite, default=1.0), 5)
    first, last = (epochs[0], epochs[-1]) if epochs else (0, 1)

    def x(epoch: float) -> float:
        return EPOCHS.x((epoch - first) / (last - first) if last > first else 0.5)

    def drawn(number: int, name: str, values: Sequence[float]) -> Path:
        marks = [
            Mark(x(epoch), EPOCHS.y(value / levels[-1]), f"epoch {epoch}: {name} {write(value)}")
            if math.isfinite(value)
            else None
            for epoch, value in zip(epochs, values, strict=True)
        ]
        end = write(values[-1]) if values and math.isfinite(values[-1]) else "n/a"
        places = [None if mark is None else (mark.x, mark.y) for mark in marks]
        return Path(name, svg_path(places), f"s{number % 2}", end, marks=tuple(mark for mark in marks if mark))

    paths = tuple(drawn(number, name, values) for number, (name, values) in enumerate(series))
    shown = sorted({round(epoch) for epoch in steps(first, last, 6) if first <= epoch <= last} | {first})
    return Plot(
        title,
        f"{title} over {len(epochs)} epochs: " + ", ".join(f"{path.name} ends at {path.value}" for path in paths),
        EPOCHS,
        "epoch",
        "",
        tuple(Tick(x(epoch), str(epoch)) for epoch in shown),
        tuple(Tick(EPOCHS.y(level / levels[-1]), write_tick(level)) for level in levels),
        paths,
    )


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
        return CURVES.point((share(point[0]), share(point[1])))

    levels = [10.0**power for power in range(round(low), 1)] if log else steps(0, 1, 5)
    guess = Path("guessing", svg_path([place((least if log else 0.0,) * 2), place((1.0, 1.0))]), "guess", key="")
    paths = [
        Path(one.name, svg_path(_distinct([place(p) for p in one.points])), one.kind, one.value,
             words=f"{one.name}, AUC {one.value}")
        for one in curves
    ]  # fmt: skip
    scale = "log axes" if log else "linear axes"
    return Plot(
        f"ROC, {scale}",
        f"ROC curves on {scale}: " + ", ".join(f"{one.name} AUC {one.value}" for one in curves),
        CURVES,
        "nonmembers taken for members (false positives)",
        "members found (true positives)",
        tuple(Tick(CURVES.x(share(level)), f"{level * 100:.10g} %") for level in levels),
        tuple(Tick(CURVES.y(share(level)), f"{level * 100:.10g} %") for level in levels),
        (guess, *paths),
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
    levels = steps(0, max(max(of, default=0.0) for of in shares.values()), 4)
    first, last = edges[0], edges[-1]

    def x(value: float) -> float:
        return CURVES.x((value - first) / (last - first))

    def outline(of: Sequence[float]) -> str:
        points: list[Point] = [(x(first), CURVES.y(0))]
        for start, end, part in zip(edges[:-1], edges[1:], of, strict=True):
            points += [(x(start), CURVES.y(part / levels[-1])), (x(end), CURVES.y(part / levels[-1]))]
        return svg_path([*points, (x(last), CURVES.y(0))]) + "Z"

    values = [value for value in steps(first, last, 5) if first - 1e-9 <= value <= last + 1e-9]
    return Plot(
        title,
        f"{title}: histograms of {sum(members):,} members and {sum(nonmembers):,} nonmembers",
        CURVES,
        label,
        "",
        tuple(Tick(x(value), f"{value:g}") for value in values),
        tuple(Tick(CURVES.y(level / levels[-1]), f"{level * 100:g} %") for level in levels),
        tuple(
            Path(name, outline(of), f"h{number}", key="area", words=name)
            for number, (name, of) in enumerate(shares.items())
        ),
    )


def square_plot(
    title: str, words: str, labels: tuple[str, str], lines: Sequence[Path], marks: Sequence[Mark] = ()
) -> Plot:
    """Both axes from 0 to 100 %; lines are those of `line`, marks have shares of the axes as places.

    >>> plot = square_plot("Lorenz", "one line", ("x", "y"), [line("even", "guess", ((0.0, 0.0), (1.0, 1.0)))])
    >>> plot.paths[0].path, [tick.text for tick in plot.x_ticks]
    ('M64 310L364 10', ['0 %', '20 %', '40 %', '60 %', '80 %', '100 %'])
    """
    shares = [number / 5 for number in range(6)]
    return Plot(
        title,
        words,
        SQUARE,
        *labels,
        tuple(Tick(SQUARE.x(share), f"{share * 100:.0f} %") for share in shares),
        tuple(Tick(SQUARE.y(share), f"{share * 100:.0f} %") for share in shares),
        tuple(lines),
        tuple(_in_square(mark) for mark in marks),
    )


def _in_square(mark: Mark) -> Mark:
    low, high = (None if end is None else SQUARE.y(end) for end in (mark.low, mark.high))
    return replace(mark, x=SQUARE.x(mark.x), y=SQUARE.y(mark.y), low=low, high=high)


def line(name: str, kind: str, points: Sequence[Point], value: str = "") -> Path:
    """A line of a square plot, through points in shares of the axes."""
    words = f"{name}, {value}" if value else name
    return Path(name, svg_path([SQUARE.point(point) for point in points]), kind, value, words=words)


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


def svg_path(points: Sequence[Point | None]) -> str:
    """Straight lines between points in pixels, with a gap at each None.

    >>> svg_path([(0, 1), (2, 3), None, (4, 5)])
    'M0 1L2 3M4 5'
    """
    parts, pen_down = [], False
    for point in points:
        if point is not None:
            parts.append(f"{'L' if pen_down else 'M'}{point[0]:g} {point[1]:g}")
        pen_down = point is not None
    return "".join(parts)


def _distinct(points: list[Point]) -> list[Point]:
    """Points less those that lie on one place after rounding to a tenth of a pixel."""
    kept: list[Point] = []
    for x, y in points:
        spot = (round(x, 1), round(y, 1))
        if not kept or spot != kept[-1]:
            kept.append(spot)
    return kept


@contextmanager
def figure_for_print(width: float, height: float) -> Iterator[Any]:
    """A figure of matplotlib, an extra, to be drawn on and given to `figure_bytes` inside of the `with`."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("figures need matplotlib; install it with: pip install '.[plots]'") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)  # which knows the size of words before anything is saved
        yield figure


def figure_bytes(figure: Any, kind: str = "png", *, dpi: int = 150) -> bytes:
    """A figure as a file without a date in it: png, pdf or svg."""
    buffer = io.BytesIO()
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=dates.get(kind))
    return buffer.getvalue()
