"""Size and sharing as Markdown: the paper's two tables beside ours, and its sentences tested by name."""

from __future__ import annotations

from collections.abc import Callable

from provnet.experiments.batches import Both, larger_batches
from provnet.experiments.beside import Finding, chapter, counted, judged, summary, told
from provnet.experiments.copies import HEAD, copies_of
from provnet.experiments.pairs import known
from provnet.experiments.records import Result, Results
from provnet.experiments.sharing_claims import CLAIMS, CLOTHES, DIGITS, LEVELS, PAIRS, SIZES, ours, papers
from provnet.experiments.sharing_curves import convergence

FIGURES = {
    "class_accuracy": "CNN1, class",
    "index_accuracy": "CNN2, own index",
    "any_at_1": "consistency, top 1",
    "any_at_5": "consistency, any of 5",
}
AS_PRINTED = "-as-printed"  # pairs trained with the printed batches, too
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
    return [*lines, *larger_batches(_both(results), results.scale), "", LIMITS]


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


def _both(results: Results) -> list[Both]:
    """The pairs that were also trained with batches as printed."""
    return [
        Both(
            f"{PAIRS[data]}, {NAMES[size]}, level {level}",
            words,
            known(results, f"{data}/{size}-{level}{AS_PRINTED}", figure),
            known(results, f"{data}/{size}-{level}", figure),
        )
        for data in PAIRS
        for size in SIZES
        for level in LEVELS
        for figure, words in FIGURES.items()
    ]
