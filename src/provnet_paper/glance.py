"""All experiments at a glance: what was run of each, the paper's numbers met, its sentences confirmed or contradicted.

Counted in the lines that the sections are made of, so that the table cannot say anything else than they do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from provnet_paper.beside import table
from provnet_paper.judge import CONFIRMED, CONTRADICTED, MIXED, NOT_CONFIRMED, NOT_TESTED, OURS, UNDECIDED
from provnet_paper.records import Experiment, Results, Scale

HEAD = ("experiment", "cells run", "seeds", "the paper's numbers", "the paper's sentences", "our questions")
_TALLY = re.compile(r"(\d+) met .*?, (\d+) within the interval, (\d+) missed, (\d+) not run")
# good news first, what was not tested last
ORDER = (CONFIRMED, "reached", MIXED, UNDECIDED, NOT_CONFIRMED, CONTRADICTED, "missed", NOT_TESTED)
_LEFT = re.compile(r"\b[1-9]\d* not run")  # of the cases of a sentence
_PLACE = re.compile(r" \((?:sec|app)\. [\d.]+\)")  # where in the paper; the list below says it
_FINDING = re.compile(r"^- (.*?):? \*\*([a-z ]+)\*\*: ")


def at_a_glance(sections: Sequence[tuple[Experiment, Results, Sequence[str]]]) -> list[str]:
    """A table with a row an experiment, each linked to its section."""
    rows = table(HEAD, [_row(*one) for one in sections], left=len(HEAD))
    return [
        *rows,
        "",
        "Verdicts without all of their cases count, too; below they are said to be *so far*.",
    ]


def _row(experiment: Experiment, results: Results, lines: Sequence[str]) -> tuple[str, ...]:
    every = {cell.name for cell in experiment.cells(Scale("full"))}
    seeds = sorted({len(one) for one in results.cells.values()})
    link = f"[{experiment.name}](#{slug(experiment.title)})"
    if not seeds:
        return (link, f"0 of {len(every)}", *[""] * 4)
    span = "–".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    ran = f"{len(every & set(results.cells))} of {len(every)}"
    ours = [line for line in lines if line.startswith(f"- {OURS}")]
    return (link, ran, span, numbers(lines), sentences([line for line in lines if line not in ours]), sentences(ours))


def numbers(lines: Sequence[str]) -> str:
    """How many of the paper's numbers were met, from the lines that say it.

    >>> numbers(["So: 22 met (21 strictly above), 3 within the interval, 5 missed, 0 not run, of 30 numbers."])
    '22 met, 3 within the interval, 5 missed'
    """
    found = [(line.split(":")[0], match) for line in lines if (match := _TALLY.search(line))]
    names = ("met", "within the interval", "missed", "not run")
    parts = []
    for what, match in found:
        counts = zip(match.groups(), names, strict=True)
        text = ", ".join(f"{n} {name}" for n, name in counts if int(n) or name == "met")
        parts.append(f"{what}: {text}" if len(found) > 1 else text)
    return "; ".join(parts)


def sentences(lines: Sequence[str]) -> str:
    """What became of the sentences that were tested.

    >>> sentences(["- It works: **confirmed**: 3 of 3.", "- Always: **undecided**: 1 of 2.", "other **bold**: text"])
    '1 confirmed, 1 undecided'
    """
    found = Counter(match.group(2) for line in lines if (match := _FINDING.match(line)))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in sorted(found, key=ORDER.index))


def in_short(lines: Sequence[str], key: str = "") -> list[str]:
    """What was found: first numbers met and `key` figures, then the sentences by verdict, one entry each.

    >>> in_short(["- It works (sec. 1): **confirmed**: 3 of 3.", "- *Our question.* Always: **undecided**: 1 of 2."])
    ['', '**Confirmed**: It works.', '**Undecided**: Always (our question).']
    >>> in_short(["- It works: **confirmed**: so in 3, of 3 compared, 1 not run."], "Right: 99 %.")
    ['Right: 99 %.', '**Confirmed so far**: It works.']
    """
    tested: dict[tuple[str, bool], list[str]] = {}
    for line in lines:
        if match := _FINDING.match(line):
            sentence, verdict = match.groups()
            own = " (our question)" if sentence.startswith(OURS) else ""
            part = verdict != NOT_TESTED and bool(_LEFT.search(line))
            tested.setdefault((verdict, part), []).append(_PLACE.sub("", sentence.removeprefix(OURS)) + own)
    met = f"The paper's numbers: {text}." if (text := numbers(lines)) else ""
    told = [" ".join(part for part in (met, key) if part)]
    for verdict, part in sorted(tested, key=lambda one: (ORDER.index(one[0]), one[1])):
        words = verdict.capitalize() + (" so far" if part else "")
        told.append(f"**{words}**: {'; '.join(tested[verdict, part])}.")
    return told


def slug(title: str) -> str:
    """The anchor that a heading gets on the usual hosts of Markdown.

    >>> slug("Table 2: class, at 10 to 100 %")
    'table-2-class-at-10-to-100-'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
