"""Plots whose two axes run from 0 to 1: Lorenz curves, reliability diagrams. Plain geometry; a template draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provnet.report.charts import Tick

Point = tuple[float, float]
SIDE, LEFT, TOP, BOTTOM = 300, 64, 10, 44
WIDTH, HEIGHT = LEFT + SIDE + 14, TOP + SIDE + BOTTOM


@dataclass(frozen=True)
class Line:
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
    paths: tuple[tuple[Line, str], ...]
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = LEFT + SIDE
    bottom: int = TOP + SIDE


def square_plot(
    title: str, words: str, labels: tuple[str, str], lines: Sequence[Line], marks: Sequence[Mark] = ()
) -> Square:
    """Lay lines and points out in a square, both axes from 0 to 100 %.

    >>> plot = square_plot("Lorenz", "one line", ("x", "y"), [Line("even", "guess", ((0.0, 0.0), (1.0, 1.0)))])
    >>> plot.paths[0][1], [tick.text for tick in plot.x_ticks]
    ('M64 310L364 10', ['0 %', '20 %', '40 %', '60 %', '80 %', '100 %'])
    """
    steps = [number / 5 for number in range(6)]
    return Square(
        title=title,
        words=words,
        labels=labels,
        paths=tuple((line, _path(line.points)) for line in lines),
        marks=tuple(Mark(_x(m.x), _y(m.y), _y(m.low), _y(m.high), m.words, m.size) for m in marks),
        x_ticks=tuple(Tick(_x(step), f"{step * 100:.0f} %") for step in steps),
        y_ticks=tuple(Tick(_y(step), f"{step * 100:.0f} %") for step in steps),
    )


def _path(points: Sequence[Point]) -> str:
    return "".join(f"{'L' if number else 'M'}{_x(x):g} {_y(y):g}" for number, (x, y) in enumerate(points))


def _x(share: float) -> float:
    return round(LEFT + SIDE * min(max(share, 0.0), 1.0), 2)


def _y(share: float) -> float:
    return round(TOP + SIDE * (1 - min(max(share, 0.0), 1.0)), 2)
