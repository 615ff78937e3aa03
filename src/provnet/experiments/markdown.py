"""Tables and numbers as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from provnet.experiments.paper import MET, MISSED, NOT_RUN, WITHIN, Standing
from provnet.experiments.records import Figure
from provnet.report.text import percent

DASH = "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, the first `left` columns to the left and the others to the right; empty columns are left out.

    >>> table(("a", "b", "c"), [("x", "", "1")])
    ['| a | c |', '|---|---:|', '| x | 1 |']
    """
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = ["| " + " | ".join(head[place] for place in kept) + " |"]
    lines.append("|" + "|".join("---" if place < left else "---:" for place in kept) + "|")
    return lines + ["| " + " | ".join(row[place].replace("|", "\\|") for place in kept) + " |" for row in rows]


def number(share: float) -> str:
    """A share in per cent, two places, all and none only where they are exact.

    >>> number(0.9941), number(1.0), number(0.99999)
    ('99.41', '100', '99.999')
    """
    return percent(share, 2).removesuffix(" %")


def spread(one: Standing) -> str:
    """Mean and standard deviation over seeds.

    >>> from provnet.experiments.paper import standing
    >>> spread(standing(0.5, [(0.75, 100), (0.76, 100)]))
    '75.50 ± 0.71'
    """
    if one.mean is None:
        return DASH
    return number(one.mean) + ("" if one.std is None else f" ± {100 * one.std:.2f}")


def ends(one: Standing) -> str:
    """The ends of the interval.

    >>> from provnet.experiments.paper import standing
    >>> ends(standing(0.5, [(0.75, 100)]))
    '65.70 to 82.45'
    """
    low, high = one.interval.low, one.interval.high
    return DASH if low is None or high is None else f"{number(low)} to {number(high)}"


def verdict(one: Standing) -> str:
    """The verdict; a miss stands out, a strict win is said."""
    words = {MET: "met" if not one.won else "met, above", WITHIN: WITHIN, MISSED: f"**{MISSED}**"}
    return words.get(one.verdict, one.verdict)


def mean_of(figures: Sequence[Figure]) -> str:
    """The mean of some seeds, or a dash.

    >>> mean_of([(0.5, 10), (0.6, 10)]), mean_of([])
    ('55.00', '–')
    """
    return number(sum(value for value, _ in figures) / len(figures)) if figures else DASH


def tally(all_of: Sequence[Standing]) -> str:
    """How many numbers were met, and how many of them strictly.

    >>> from provnet.experiments.paper import standing
    >>> tally([standing(0.5, [(0.75, 100)]), standing(0.5, [])])
    '1 met (1 strictly above), 0 within the interval, 0 missed, 1 not run, of 2'
    """
    of = {name: sum(one.verdict == name for one in all_of) for name in (MET, WITHIN, MISSED, NOT_RUN)}
    won = sum(one.won for one in all_of)
    return (
        f"{of[MET]} met ({won} strictly above), {of[WITHIN]} within the interval, {of[MISSED]} missed, "
        f"{of[NOT_RUN]} not run, of {len(all_of)}"
    )
