"""Whether batches larger than the printed ones, taken to fit the time, change the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provnet.experiments.beside import OURS, judged, percent_of
from provnet.experiments.markdown import table
from provnet.experiments.pairs import Known, with_luck

HEAD = ("network", "number", "batches as printed", "larger batches", "larger less printed")


@dataclass(frozen=True)
class Both:
    """A figure of a network that was trained with either; None where it was not."""

    network: str
    number: str
    printed: Known | None
    larger: Known | None


def larger_batches(figures: Sequence[Both], scale: str) -> list[str]:
    """A heading, the question with its verdict, and a row a figure.

    Nothing where no network was trained with both, and at smaller scales, at which nothing is judged.

    >>> both = [Both("MNIST", "class", Known((0.9, 10_000)), Known((0.99, 10_000)))]
    >>> larger_batches(both, "full")[3].split("; ")[1]
    'most: MNIST, class, +9.00 points (+8.38 to +9.62).'
    >>> larger_batches([Both("MNIST", "class", None, Known((0.99, 10_000)))], "full")
    []
    """
    found = [(one, gap) for one in figures if (gap := with_luck(one.larger, one.printed)) is not None]
    if not found or scale != "full":
        return []
    signs = [gap.sign for _, gap in found]
    near = f"too near to say in {signs.count(0)}"
    counts = f"surely higher in {signs.count(1)}, surely lower in {signs.count(-1)}, {near}"
    most, gap = max(found, key=lambda pair: abs(pair[1].value))
    said = f"**{judged(map(abs, signs))}**: {counts}; most: {most.network}, {most.number}, {gap}."
    rows = [(one.network, one.number, _percent(one.printed), _percent(one.larger), str(gap)) for one, gap in found]
    question = f"- {OURS}Larger batches change the figures: {said}"
    return ["", "### Larger batches", "", question, "", *table(HEAD, rows, left=2)]


def _percent(one: Known | None) -> str:
    return percent_of(None if one is None else one.figure)
