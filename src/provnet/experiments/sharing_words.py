"""Size and sharing as Markdown: the paper's two tables beside ours, and its sentences tested by name."""

from __future__ import annotations

from collections.abc import Callable

from provnet.experiments.beside import (
    Finding,
    chapter,
    counted,
    judged,
    percent_of,
    summary,
    told,
)
from provnet.experiments.copies import HEAD, copies_of
from provnet.experiments.markdown import table
from provnet.experiments.pairs import known, less
from provnet.experiments.records import Result, Results
from provnet.experiments.sharing_claims import CLAIMS, CLOTHES, DIGITS, LEVELS, PAIRS, SIZES, ours, papers
from provnet.experiments.sharing_curves import convergence

FIGURES = {
    "class_accuracy": "CNN1, class",
    "index_accuracy": "CNN2, own index",
    "any_at_1": "consistency, top 1",
    "any_at_5": "consistency, any of 5",
}
NAMES = {"small": "Small", "medium": "Medium", "large": "Large", "xlarge": "XLarge"}
MORE: dict[str, Callable[[Result], str]] = {
    HEAD: copies_of,
    "shared": lambda one: f"{100 * one.told['shared']:.1f} %",
    "parameters": lambda one: f"{one.told['parameters'] / 1e6:.1f} M",
    "seconds": lambda one: f"{one.told['seconds']['all']:.0f}",
}
LIMITS = """The totals of parameters cannot be reproduced: with 7×7 maps and 60,000 outputs the layers as listed have
9.5, 22.6, 59.4 and 176 million (the paper says 4.0, 17.2, 35.8 and 79.6); the shares of level 4 fit. Optimiser,
schedule and how the steps of the two networks alternate are not stated: AdamW, constant rates, spread evenly. To fit
the time batches are 8 times the printed ones (XLarge 16 times: 512 and 256 for all); rates of Small and Medium are
larger by the root of it."""


def section(results: Results) -> list[str]:
    """The count, the sentences, then a table a data set."""
    lines = [summary(results, "sharing")] if results.scale == "full" else []
    if results.cells and results.scale == "full":
        lines += ["", "The paper's sentences, on our results (and, in brackets, on the paper's own tables):"]
    lines += told([*_sentences(results), *convergence(results)], results)
    settings = {f"{size}-{level}": f"{NAMES[size]}, level {level}" for size in SIZES for level in LEVELS}
    for data in PAIRS.items():
        lines += chapter(results, data, settings, FIGURES, name="sharing", head="pair", more=MORE)
    return [*lines, *_batches(results), "", LIMITS]


def _sentences(results: Results) -> list[Finding]:
    look = ours(results)
    found = []
    for claim in CLAIMS:
        here, there = list(claim.cases(look, claim.data)), list(claim.cases(papers, claim.data))
        evidence = f"{counted(here)} (the paper's own tables: {judged(there, claim.said)}, {counted(there)})"
        if claim.data == DIGITS:
            evidence += f"; on FashionMNIST {counted(claim.cases(look, CLOTHES))}"
        found.append(Finding(f"{claim.sentence} ({claim.where}):", judged(here, claim.said), evidence))
    return found


def _batches(results: Results) -> list[str]:
    """The pairs that were also trained with batches as printed, to see whether larger ones change the picture."""
    rows = []
    signs = []
    for cell in results.cells:
        if not cell.endswith("-as-printed"):
            continue
        other = cell.removesuffix("-as-printed")
        for figure, words in FIGURES.items():
            raised, printed = known(results, other, figure), known(results, cell, figure)
            gap = less(raised, printed)
            signs += [] if gap is None else [gap.sign]
            values = [percent_of(None if one is None else one.figure) for one in (printed, raised)]
            rows.append((f"`{other}`", words, *values, "" if gap is None else str(gap)))
    if not rows:
        return []
    head = ("pair", "number", "batches as printed", "larger batches", "larger less printed")
    sure = f"surely higher with larger batches: {signs.count(1)}, surely lower: {signs.count(-1)}"
    return ["", "### Larger batches", "", f"Of {len(signs)} numbers {sure}.", "", *table(head, rows, left=2)]
