"""Our numbers beside the paper's for the tables other than table 2, and sentences of the paper put to the test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from provnet.base.stats import Z95, wilson
from provnet.report.text import percent
from provnet_paper.records import (
    MET,
    MISSED,
    NOT_RUN,
    WITHIN,
    Figure,
    Printed,
    Result,
    Results,
    Standing,
    printed,
    standing,
)

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

    >>> from provnet_paper.records import standing
    >>> spread(standing(0.5, [(0.75, 100), (0.76, 100)]))
    '75.50 ± 0.71'
    """
    if one.mean is None:
        return DASH
    return number(one.mean) + ("" if one.std is None else f" ± {100 * one.std:.2f}")


def ends(one: Standing) -> str:
    """The ends of the interval.

    >>> from provnet_paper.records import standing
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

    >>> from provnet_paper.records import standing
    >>> tally([standing(0.5, [(0.75, 100)]), standing(0.5, [])])
    '1 met (1 strictly above), 0 within the interval, 0 missed, 1 not run, of 2'
    """
    of = {name: sum(one.verdict == name for one in all_of) for name in (MET, WITHIN, MISSED, NOT_RUN)}
    won = sum(one.won for one in all_of)
    return (
        f"{of[MET]} met ({won} strictly above), {of[WITHIN]} within the interval, {of[MISSED]} missed, "
        f"{of[NOT_RUN]} not run, of {len(all_of)}"
    )


OURS = "*Our question.* "
CONFIRMED, CONTRADICTED, MIXED = "confirmed", "contradicted", "holds in part"
NOT_CONFIRMED, UNDECIDED, NOT_TESTED = "not confirmed", "undecided", "not tested"
ALL, MOST, SOME = "all", "most", "some"  # of its cases a sentence may speak of
CHANCE = (
    "Intervals hold the chance of the samples alone. Two networks that were asked the same samples are compared as if "
    "each had samples of its own, which makes intervals of differences wider than need be."
)
PAIRED = (
    "Intervals hold the chance of the samples alone. Two networks that were asked the same samples are compared sample "
    "by sample."
)
SEEDS = (
    "Intervals of differences hold the chance of the samples and, where a network has several seeds, how far these lie "
    "apart. Two networks that were asked the same samples are compared as if each had samples of its own."
)
ONE_SEED = (
    "Every network was trained once: the luck of one training is not in the intervals, nor in the word *surely*. How "
    "much that can be is told at the head of docs/results.md."
)
BAR, CASES = "the bar was set", "the cases were chosen"  # what of a finding may have come late
FAR = 0.05  # so far above the paper's number a result says that the set-up differs


@dataclass(frozen=True)
class Apart:
    """A difference of two rates with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 where it is surely above 0, -1 where surely below, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    @property
    def no_worse(self) -> int:
        """1 where it is 0 or above, -1 where it is surely below; 0 where it is below, but that may be chance."""
        return 1 if self.value >= 0 else min(self.sign, 0)

    def __str__(self) -> str:
        return f"{100 * self.value:+.2f} points ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


@dataclass(frozen=True)
class Finding:
    """A sentence of the paper, or a question of ours, and what became of it.

    `late`: what was settled by us when the results were known already (BAR, CASES), which the page says.
    """

    claim: str
    verdict: str
    evidence: str
    ours: bool = False
    late: str = ""


def apart(one: Figure, other: Figure, comparisons: int = 1) -> Apart:
    """The first rate less the second, as if each were counted on samples of its own; `pairs.less` is narrower.

    Where the best or worst of several `comparisons` is looked for, the interval holds for all of them together.

    >>> str(apart((0.99, 10_000), (0.98, 10_000)))
    '+1.00 points (+0.66 to +1.34)'
    """
    variance = sum(rate * (1 - rate) / max(n, 1) + 1 / (4 * max(n, 1) ** 2) for rate, n in (one, other))
    z = Z95 if comparisons == 1 else NormalDist().inv_cdf(1 - 0.025 / comparisons)
    value, half = one[0] - other[0], z * math.sqrt(variance)
    return Apart(value, value - half, value + half)


def beyond(one: Figure | None, bar: float) -> int | None:
    """1 where the Wilson interval of a rate, as it is printed, lies above a bar, -1 where below, else 0.

    >>> beyond((0.9918, 10_000), 0.99), beyond((0.95, 10_000), 0.9), beyond((0.0, 10_000), 0.5), beyond(None, 0.5)
    (0, 1, -1, None)
    """
    if one is None:
        return None
    found = wilson(min(one[0] * one[1], one[1]), one[1])
    if found.low is None or found.high is None:
        return None
    return 1 if found.low > bar else -1 if found.high < bar else 0


def judged(signs: Iterable[int | None], said: str = ALL) -> str:
    """One verdict of many cases: 1 surely as claimed, -1 surely not, 0 too near to say, None not run.

    Confirmed and contradicted need more than half of the cases that were run, and none against. A sentence that speaks
    of MOST cases is confirmed by more than half, one that speaks of SOME by any, if fewer are against.

    >>> judged([1, 1, 0]), judged([1, -1]), judged([1, 0]), judged([-1, -1, 0])
    ('confirmed', 'holds in part', 'holds in part', 'contradicted')
    >>> judged([-1, 0]), judged([0]), judged([None]), judged([1, None, None])
    ('not confirmed', 'undecided', 'not tested', 'confirmed')
    >>> judged([1, 1, -1], MOST), judged([1, 0, 0], SOME), judged([1, -1], SOME)
    ('confirmed', 'confirmed', 'holds in part')
    """
    found = [sign for sign in signs if sign is not None]
    if not found:
        return NOT_TESTED
    yes, no, half = found.count(1), found.count(-1), len(found) / 2
    if yes:
        enough = {ALL: yes > half and not no, MOST: yes > half, SOME: yes > no}
        return CONFIRMED if enough[said] else MIXED
    return CONTRADICTED if no > half else NOT_CONFIRMED if no else UNDECIDED


def counted(signs: Iterable[int | None], *, sure: bool = True) -> str:
    """The same in numbers; `sure` where signs were told from chance.

    >>> counted([1, 0, -1, None])
    'surely so in 1, surely not in 1, too near to say in 1, of 3 compared, 1 not run'
    >>> counted([1, 0, 1], sure=False)
    'so in 2, not in 0, alike in 1, of 3 compared'
    """
    cases = list(signs)
    found = [sign for sign in cases if sign is not None]
    if not found:
        return f"{len(cases)} not run"
    yes, no, near = (found.count(sign) for sign in (1, -1, 0))
    of = f"of {len(found)} compared" + (f", {len(cases) - len(found)} not run" if len(found) < len(cases) else "")
    if not sure:
        return f"so in {yes}, not in {no}, alike in {near}, {of}"
    return f"surely so in {yes}, surely not in {no}, too near to say in {near}, {of}"


def told(findings: Sequence[Finding], results: Results, chance: str = "") -> list[str]:
    """The sentences as a list; at smaller scales nothing is judged. `chance`: what intervals hold, if not the usual."""
    if results.scale != "full" or not results.cells:
        return []
    lines = [
        f"- {OURS if one.ours else ''}{one.claim} **{one.verdict}**: {one.evidence}"
        f"{f'; {one.late} when the results were known' if one.late else ''}."
        for one in findings
    ]
    pairs = any({"hits", "right"} & set(one.told) for seeds in results.cells.values() for one in seeds.values())
    held = [chance or (PAIRED if pairs else CHANCE)] if any("points (" in line for line in lines) else []
    alone = [ONE_SEED] if lines and all(len(seeds) == 1 for seeds in results.cells.values()) else []
    return ["", *lines, *(["", " ".join([*held, *alone])] if held or alone else [])]


def mean(results: Results, cell: str, figure: str) -> Figure | None:
    """The mean of a figure over seeds, and n; None where it was not measured.

    >>> mean(Results("x", "full", {}, {}), "mnist/0", "any_at_1") is None
    True
    """
    seeds: Mapping[int, Result] = results.cells.get(cell, {})
    found = [one.figures[figure] for one in seeds.values() if figure in one.figures]
    return (statistics.fmean(rate for rate, _ in found), min(n for _, n in found)) if found else None


def standings(results: Results, name: str) -> dict[Printed, Standing]:
    """Every number of a table of the paper with what we have of it."""
    found = {}
    for one in printed(name):
        seeds = results.cells.get(f"{one.data}/{one.setting}", {}).values()
        ours = [result.figures[one.figure] for result in seeds if one.figure in result.figures]
        found[one] = standing(one.value, ours, compared=results.scale == "full")
    return found


def summary(results: Results, name: str) -> str:
    """How many of the paper's numbers were met, and how many are so far above that something else was measured."""
    found = standings(results, name)
    far = sum(ours.mean is not None and ours.mean > paper.value + FAR for paper, ours in found.items())
    words = f"The paper's numbers: {tally(list(found.values()))}."
    if far:
        words += f" Above by more than {100 * FAR:.0f} points, more than chance among the samples explains, so the two "
        words += f"set-ups differ: {far}."
    return words


def chapter(
    results: Results,
    data: tuple[str, str],
    settings: Mapping[str, str],
    figures: Mapping[str, str],
    *,
    name: str,
    head: str,
    more: Mapping[str, Callable[[Result], str]] | None = None,
) -> list[str]:
    """The table of a data set (name, words) under its heading; smaller scales have the settings that were run.

    >>> chapter(Results("mixing", "tiny", {}, {}), ("mnist", "MNIST"), {"0": "0"}, {}, name="mixing", head="α")
    []
    """
    key, words = data
    if results.scale != "full":
        settings = {setting: text for setting, text in settings.items() if f"{key}/{setting}" in results.cells}
        if not settings:
            return []
    rows = against(results, key, settings, figures, name=name, head=head, more=more)
    return ["", f"### {words}", "", counts(results, key), "", *rows]


def against(
    results: Results,
    data: str,
    settings: Mapping[str, str],
    figures: Mapping[str, str],
    *,
    name: str,
    head: str = "setting",
    more: Mapping[str, Callable[[Result], str]] | None = None,
) -> list[str]:
    """A row a setting: ours with its interval / the paper's number and the verdict, then columns of `more`."""
    found = {
        (one.setting, one.figure): (one, ours) for one, ours in standings(results, name).items() if one.data == data
    }
    rows = []
    begun = any(cell.split("/")[0] == data for cell in results.cells)
    for setting, words in settings.items():
        seeds = list(results.cells.get(f"{data}/{setting}", {}).values())
        if not begun and not any((setting, figure) in found for figure in figures):
            continue  # nothing to say: neither run nor printed
        cells = []
        for figure in figures:
            ours = standing(None, [one.figures[figure] for one in seeds if figure in one.figures])
            cells.append(_cell(*found.get((setting, figure), (None, ours))))
        extra = [say(seeds[0]) if seeds else "" for say in (more or {}).values()]
        rows.append((words, *cells, *extra, str(len(seeds) or DASH)))
    return table((head, *figures.values(), *(more or {}), "seeds"), rows) if rows else []


def _cell(paper: Printed | None, ours: Standing) -> str:
    if ours.mean is None:
        return f"{NOT_RUN}; paper {paper.text}" if paper is not None else NOT_RUN
    text = f"{spread(ours)} ({ends(ours)})"
    return text if paper is None else f"{text}; paper {paper.text}: {verdict(ours)}"


def counts(results: Results, data: str) -> str:
    """How many samples the rates of a data set are counted on, or why there are none."""
    for cell, seeds in results.cells.items():
        for one in seeds.values() if cell.split("/")[0] == data else ():
            if "samples" in one.told:
                given = one.told["samples"]
                return f"n = {given['test']:,} unseen samples, {given['train']:,} training samples."
    why = next((why for cell, why in results.absent.items() if cell.split("/")[0] == data), "")
    return f"Not run{': ' + why if why else ' yet'}."


def percent_of(figure: Figure | None) -> str:
    """A mean in per cent, or a dash.

    >>> percent_of((0.5, 10)), percent_of(None)
    ('50.00', '–')
    """
    return DASH if figure is None else number(figure[0])


def rate(one: Figure | None) -> str:
    """A rate in per cent with its interval.

    >>> rate((0.99, 10_000)), rate(None)
    ('99.00 (98.79 to 99.18)', '–')
    """
    found = standing(None, [] if one is None else [one])
    return DASH if one is None else f"{spread(found)} ({ends(found)})"
