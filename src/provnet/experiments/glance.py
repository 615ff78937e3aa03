"""All experiments at a glance: what was run of each, the paper's numbers met, its sentences confirmed or contradicted.

Counted in the lines that the sections are made of, so that the table cannot say anything else than they do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from provnet.experiments.markdown import table
from provnet.experiments.records import Experiment, Results, Scale

HEAD = ("experiment", "cells run", "seeds", "the paper's numbers", "its sentences, or our bars")
_TALLY = re.compile(r"(\d+) met .*?, (\d+) within the interval, (\d+) missed, (\d+) not run")
_FINDING = re.compile(r"^- .*?:? \*\*([a-z ]+)\*\*: ")


def at_a_glance(sections: Sequence[tuple[Experiment, Results, Sequence[str]]]) -> list[str]:
    """A table with a row an experiment, each linked to its section."""
    return table(HEAD, [_row(*one) for one in sections], left=5)


def _row(experiment: Experiment, results: Results, lines: Sequence[str]) -> tuple[str, ...]:
    every = {cell.name for cell in experiment.cells(Scale("full"))}
    seeds = sorted({len(one) for one in results.cells.values()})
    link = f"[{experiment.name}](#{slug(experiment.title)})"
    if not seeds:
        return (link, f"0 of {len(every)}", "", "", "")
    span = "–".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    ran = f"{len(every & set(results.cells))} of {len(every)}"
    return (link, ran, span, numbers(lines), sentences(lines))


def numbers(lines: Sequence[str]) -> str:
    """How many of the paper's numbers were met, from the line that says it.

    >>> numbers(["So: 22 met (21 strictly above), 3 within the interval, 5 missed, 0 not run, of 30 numbers."])
    '22 met, 3 within the interval, 5 missed'
    """
    found = next((match for line in lines if (match := _TALLY.search(line))), None)
    if found is None:
        return ""
    names = ("met", "within the interval", "missed", "not run")
    return ", ".join(f"{n} {name}" for n, name in zip(found.groups(), names, strict=True) if int(n) or name == "met")


def sentences(lines: Sequence[str]) -> str:
    """What became of the sentences that were tested.

    >>> sentences(["- It works: **confirmed**: 3 of 3.", "- Always: **undecided**: 1 of 2.", "other **bold**: text"])
    '1 confirmed, 1 undecided'
    """
    found = Counter(match.group(1) for line in lines if (match := _FINDING.match(line)))
    return ", ".join(f"{n} {verdict}" for verdict, n in found.items())


def slug(title: str) -> str:
    """The anchor that a heading gets on the usual hosts of Markdown.

    >>> slug("Table 2: class, at 10 to 100 %")
    'table-2-class-at-10-to-100-'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
