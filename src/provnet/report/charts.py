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
