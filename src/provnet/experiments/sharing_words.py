"""Size and sharing as Markdown: the paper's two tables beside ours, and its sentences tested by name."""

from __future__ import annotations

from collections.abc import Callable

from provnet.experiments.batches import Both, larger_batches
from provnet.experiments.beside import Apart, Finding, chapter, counted, judged, percent_of, standings, summary, told
from provnet.experiments.copies import HEAD, copies_of
from provnet.experiments.markdown import number
from provnet.experiments.pairs import known, less
from provnet.experiments.paper import MISSED, Printed
from provnet.experiments.records import Result, Results
from provnet.experiments.sharing_claims import CLOTHES, DIGITS, LEVELS, NAMES, PAIRS, SIZES, ours, papers
from provnet.experiments.sharing_curves import convergence
from provnet.experiments.sharing_sentences import CLAIMS

FIGURES = {
    "class_accuracy": "CNN1, class",
    "index_accuracy": "CNN2, own index",
    "any_at_1": "consistency, top 1",
    "any_at_5": "consistency, any of 5",
}
AS_PRINTED = "-as-printed"  # pairs trained with the printed batches, too
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
larger by the root of it. Sec. 4.4 calls the pairs class-conditional, app. 7.6 does not: here the index is over all
samples. Small and Medium pairs with the larger batches were trained by an earlier version, in which mixed precision
rounded weights at every step; since then rounded copies are multiplied, which is meant to be the same arithmetic but
was not run side by side. So `mnist/small-3-as-printed` differs from `mnist/small-3` in the version, too. It ran beside
two Large pairs under NVIDIA MPS, so its seconds say little; Large and XLarge pairs ran under MPS as well."""
RATES = """Sentences that compare sizes compare rates, too: as printed those of CNN1 and CNN2 are 1e-3 and 1e-4 for
Small and Medium, 5e-4 for both networks of Large, 2e-4 for both of XLarge, and only those of Small and Medium were
raised with the batches. Epochs of convergence are read off curves with a point an epoch up to 20, then every fifth."""
ONE_RATE = (
    "In Large and XLarge CNN2 learns at the rate of CNN1, in Small and Medium at a tenth of it; whether that is the "
    "cause was not tried"
)


def section(results: Results) -> list[str]:
    """The count, the sentences, then a table a data set."""
    lines = [summary(results, "sharing")] if results.scale == "full" else []
    if results.cells and results.scale == "full":
        lines += ["", "The paper's sentences, on our results (and, in brackets, on the paper's own tables):"]
    lines += told([*_sentences(results), *convergence(results)], results)
    settings = {f"{size}-{level}": f"{NAMES[size]}, level {level}" for size in SIZES for level in LEVELS}
    lines += ["", RATES] if results.cells and results.scale == "full" else []
    for data in PAIRS.items():
        lines += chapter(results, data, settings, FIGURES, name="sharing", head="pair", more=MORE)
    return [*lines, *_missed(results), *larger_batches(_both(results), results.scale), "", LIMITS]


def missed(results: Results) -> list[Printed]:
    """The numbers of the paper that ours are surely below."""
    return [paper for paper, found in standings(results, "sharing").items() if found.verdict == MISSED]


def name_of(paper: Printed) -> str:
    """A number in words.

    >>> name_of(Printed("mnist", "large-4", "class_accuracy", "99.2"))
    'MNIST, Large, level 4, CNN1, class'
    """
    size, level = paper.setting.split("-")
    return f"{PAIRS[paper.data]}, {NAMES[size]}, level {level}, {FIGURES[paper.figure]}"


def _missed(results: Results) -> list[str]:
    """What else is known of the numbers that were missed: their course over the levels, the printed batches."""
    lines = [_explained(results, paper) for paper in missed(results)]
    return ["", "### Where we differ", "", *lines] if lines else []


def _explained(results: Results, paper: Printed) -> str:
    size, _ = paper.setting.split("-")
    cell = f"{paper.data}/{paper.setting}"
    ours = known(results, cell, paper.figure)
    assert ours is not None  # a number is missed only where it was measured
    told_of = [f"- {name_of(paper)}: {number(ours.figure[0])}, paper {paper.text}"]
    for data, words in PAIRS.items():
        rates = [known(results, f"{data}/{size}-{level}", paper.figure) for level in LEVELS]
        theirs = [papers(data, size, level, paper.figure).figure[0] for level in LEVELS]
        each = ", ".join(percent_of(None if one is None else one.figure) for one in rates)
        gap = _level_4(results, data, size, paper.figure)
        last = f", level 4 less level 1 {gap}" if gap is not None else ""
        printed = ", ".join(f"{100 * value:.1f}" for value in theirs)
        told_of.append(f"levels 1 to 4 of {NAMES[size]} on {words}: {each}{last}; paper {printed}")
    others = {one: _level_4(results, paper.data, one, paper.figure) for one in SIZES if one != size}
    falls = "; ".join(f"{NAMES[one]} {gap}" for one, gap in others.items() if gap is not None)
    told_of += [f"level 4 less level 1 of other sizes on {PAIRS[paper.data]}: {falls}"] if falls else []
    told_of += [ONE_RATE] if paper.figure == "class_accuracy" and size in ("large", "xlarge") else []
    as_printed = known(results, f"{cell}{AS_PRINTED}", paper.figure)
    gap = less(ours, as_printed)
    if as_printed is None or gap is None:
        told_of.append("with the printed batches: not run")
    else:
        told_of.append(f"with the printed batches: {number(as_printed.figure[0])}, ours with larger ones less it {gap}")
    return f"{'. '.join(text[0].upper() + text[1:] for text in told_of)}."


def _level_4(results: Results, data: str, size: str, figure: str) -> Apart | None:
    """Level 4 less level 1."""
    last, first = (known(results, f"{data}/{size}-{level}", figure) for level in (4, 1))
    return less(last, first)


def _sentences(results: Results) -> list[Finding]:
    look = ours(results)
    found = []
    for claim in CLAIMS:
        here, there = list(claim.cases(look, claim.data)), list(claim.cases(papers, claim.data))
        evidence = f"{counted(here)} (the paper's own tables: {judged(there, claim.said)}, {counted(there)})"
        if claim.data == DIGITS:
            evidence += f"; on FashionMNIST {counted(claim.cases(look, CLOTHES))}"
        sentence = f"{claim.sentence} ({claim.where}):"
        found.append(Finding(sentence, judged(here, claim.said), evidence, late=claim.late))
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
