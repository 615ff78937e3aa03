"""Sentences put to the test: which cases each speaks of, how a case is decided, what the verdict is.

A sentence is a row of claims.csv. Its cases are the data sets of `data` times the values of `over` (`level=1,2`; a
value may have words after `|`), and each compares the figures of `cells`: `setting:figure` of the data set, or
`data/setting:figure`. `test` is one of TESTS, or a function of its experiment for what fits none of them. Evidence is
said by two templates, `case` and `evidence`; letters stand for the figures in their order.
"""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from provnet.base.stats import Z95, t_quantile, wilson
from provnet.tools.robustness.compute import paired_difference
from provnet_paper.beside import mean, number, percent_of, rate, table
from provnet_paper.records import Figure, Results, Told, half_width
from provnet_paper.samples import packed, unpacked

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


@dataclass(frozen=True)
class Known:
    """A rate with n, and which samples were right, seed by seed, where that was kept; `each` are the rates of seeds."""

    figure: Figure
    right: Mapping[int, np.ndarray] = field(default_factory=dict)
    each: tuple[float, ...] = ()
    area: tuple[float, float] | None = None  # the interval, where it is no rate but an area under a curve

    def __str__(self) -> str:
        return number(self.figure[0])

    @property
    def ends(self) -> str:
        """With its interval."""
        if self.area is None:
            return rate(self.figure)
        return f"{self.figure[0]:.4f} ({self.area[0]:.4f} to {self.area[1]:.4f})"

    @property
    def area3(self) -> str:
        """An area to three places."""
        low, high = self.area or (math.nan, math.nan)
        return f"{self.figure[0]:.3f} ({low:.3f} to {high:.3f})"


def kept_hits(hits: Mapping[str, np.ndarray]) -> Told:
    """What a cell keeps of (n,) right or wrong answers, to be compared with other cells later.

    >>> sorted(kept_hits({"class_accuracy": np.array([True, False])}))
    ['hits']
    """
    return {"hits": {name: packed(values) for name, values in hits.items()}}


def known(results: Results, cell: str, figure: str) -> Known | None:
    """A figure of a cell, None where it was not measured.

    >>> known(Results("x", "full", {}, {}), "mnist/0", "any_at_1") is None
    True
    """
    found = mean(results, cell, figure)
    if found is None:
        return None
    seeds = results.cells[cell].items()
    each = tuple(one.figures[figure][0] for _, one in seeds if figure in one.figures)
    there = {seed: one.told["hits"][figure] for seed, one in seeds if figure in one.told.get("hits", {})}
    return Known(found, {seed: unpacked(value) for seed, value in there.items()}, each)


def less(one: Known | None, other: Known | None) -> Apart | None:
    """The first less the second, sample by sample where both kept them; None where one is missing.

    >>> right = np.array([True] * 90 + [False] * 10)
    >>> str(less(Known((0.9, 100), {0: right}), Known((0.88, 100), {0: right & (np.arange(100) > 1)})))
    '+2.00 points (-1.35 to +5.27)'
    >>> str(less(Known((0.9, 100)), Known((0.88, 100))))
    '+2.00 points (-6.78 to +10.78)'
    """
    if one is None or other is None:
        return None
    both = sorted(set(one.right) & set(other.right))
    pairs = [(one.right[seed], other.right[seed]) for seed in both]
    if not pairs or any(mine.shape != theirs.shape for mine, theirs in pairs):
        return apart(one.figure, other.figure)
    return difference(pairs)


def with_luck(one: Known | None, other: Known | None) -> Apart | None:
    """`less`; where either has several seeds, how far they lie apart is in the interval, too.

    >>> one, other = (Known((rate, 10_000), each=(rate, rate + 0.01)) for rate in (0.95, 0.9))
    >>> str(less(one, other)), str(with_luck(one, other))
    ('+5.00 points (+4.27 to +5.73)', '+5.00 points (+1.87 to +8.13)')
    """
    gap = less(one, other)
    if gap is None or one is None or other is None:
        return gap
    several = [side.each for side in (one, other) if len(side.each) > 1]
    if not several:
        return gap
    free = sum(len(rates) - 1 for rates in several)
    variance = sum((len(rates) - 1) * statistics.variance(rates) for rates in several) / free
    trainings = 1 / len(one.each) + 1 / len(other.each)
    luck = round(t_quantile(free), 3) * math.sqrt(variance * trainings)
    half = math.hypot((gap.high - gap.low) / 2, luck)
    return Apart(gap.value, gap.value - half, gap.value + half)


def difference(pairs: list[tuple[np.ndarray, np.ndarray]], comparisons: int = 1) -> Apart:
    """Of (ours, theirs), right or wrong on the same samples, one pair a seed; surely apart only if all seeds agree.

    >>> ours, theirs = np.array([True] * 90 + [False] * 10), np.array([True] * 60 + [False] * 40)
    >>> difference([(ours, theirs)]).sign
    1
    """
    if len(pairs) == 1:
        one = paired_difference(*pairs[0], comparisons)
        return Apart(one.value, one.low, one.high)
    each = np.stack([ours.astype(float) - theirs for ours, theirs in pairs])
    mean_of = each.mean(0)
    value = float(mean_of.mean())
    half = NormalDist().inv_cdf(1 - 0.025 / comparisons) * float(mean_of.std(ddof=1)) / len(mean_of) ** 0.5
    signs = np.sign(each.mean(1))
    if not (signs == np.sign(value)).all():  # seeds disagree: not sure, whatever the interval
        half = max(half, abs(value))
    return Apart(value, value - half, value + half)


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


WORDS = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stanford-dogs": "Stanford Dogs",
    "lfw": "LFW",
}
Sign = int | None
Look = Callable[[str, str], Known | None]  # cell, figure -> what is known of it
Seen = tuple[list[Sign], str]  # what the test of an experiment's own returns: cases, and their evidence
Decided = tuple[list[Sign], Apart | None, Apart | None]  # of one case: signs, and the differences that were looked at
Test = Callable[[Sequence["Known"], Sequence[float]], Decided]
HEADLINE = "headline"


@dataclass(frozen=True)
class Claim:
    """A row of claims.csv."""

    sentence: str
    said: str
    late: str
    ours: bool
    test: str
    data: tuple[str, ...]
    beside: tuple[str, ...]
    over: Mapping[str, Mapping[str, str]]
    cells: tuple[str, ...]
    bars: tuple[float, ...]
    case: str
    evidence: str
    untested: str


@dataclass(frozen=True)
class Case:
    """One case of a sentence, decided: its signs and how it is written."""

    data: str
    signs: list[Sign]
    text: str


@cache
def claims(experiment: str) -> tuple[Claim, ...]:
    """The rows of an experiment, in their order.

    >>> claims("mixing")[1].test, claims("mixing")[1].cells
    ('below', ('1:index_accuracy', '0:index_accuracy'))
    """
    with Path(__file__).with_name("claims.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    return tuple(
        Claim(
            sentence=row["sentence"],
            said=row["said"] or ALL,
            late={"bar": BAR, "cases": CASES}.get(row["late"], ""),
            ours=bool(row["ours"]),
            test=row["test"],
            data=tuple(row["data"].split()),
            beside=tuple(row["beside"].split()),
            over={
                name: _choices(values) for name, values in (one.split("=") for one in row["over"].split("; ") if one)
            },
            cells=tuple(row["cells"].split()),
            bars=tuple(float(bar) for bar in row["bars"].split()),
            case=row["case"],
            evidence=row["evidence"],
            untested=row["untested"] or "not run",
        )
        for row in rows
    )


def _choices(values: str) -> dict[str, str]:
    """Value -> its words.

    >>> _choices("1,2|second")
    {'1': '1', '2': 'second'}
    """
    pairs = (value.partition("|") for value in values.split(","))
    return {value: words if bar else value for value, bar, words in pairs}


def of_results(results: Results) -> Look:
    """Looks into results: rates; areas under curves of the first seed (`auc.NAME`) or in the mean (`area.NAME`)."""

    def look(cell: str, figure: str) -> Known | None:
        if figure.startswith("area."):
            name = figure.removeprefix("area.")
            value, low, high = (mean(results, cell, f"{name}_auc{end}") for end in ("", "_low", "_high"))
            return None if value is None or low is None or high is None else Known(value, area=(low[0], high[0]))
        if not figure.startswith("auc."):
            return known(results, cell, figure)
        seeds = list(results.cells.get(cell, {}).values())
        if not seeds:
            return None
        area = seeds[0].told["auc"][figure.removeprefix("auc.")]
        return Known((area["value"], 0), area=(area["low"], area["high"]))

    return look


def decided(claim: Claim, look: Look, data: Sequence[str]) -> list[Case]:
    """Every case of a claim; one that lacks a figure has no sign and no text."""
    return [
        _case(claim, look, one, dict(zip(claim.over, chosen, strict=True)))
        for one in data
        for chosen in itertools.product(*claim.over.values())
    ]


def signs_of(claim: Claim, look: Look, data: Sequence[str]) -> list[Sign]:
    """The signs of all cases."""
    return [sign for case in decided(claim, look, data) for sign in case.signs]


def _case(claim: Claim, look: Look, data: str, chosen: Mapping[str, str]) -> Case:
    values = []
    for text in claim.cells:
        cell, _, figure = text.format(data=data, **chosen).partition(":")
        values.append(look(cell if "/" in cell else f"{data}/{cell}" if cell else data, figure))
    there = [one for one in values if one is not None]
    if len(there) < len(values):
        return Case(data, [None] * (len(claim.bars) if claim.test in EACH else 1), "")
    signs, gap, other = TESTS[claim.test](there, claim.bars)
    shown = {f"{name}_": claim.over[name][value] for name, value in chosen.items()}
    letters = dict(zip("abcdef", there, strict=False))
    text = claim.case.format(data=WORDS[data], gap=gap, other=other, **chosen, **shown, **letters)
    return Case(data, list(signs), text)


def findings(
    results: Results, tests: Mapping[str, Callable[[Results], Seen | None]], theirs: Look | None = None
) -> list[Finding]:
    """The sentences of an experiment, judged; `tests` are its own, `theirs` looks into the paper's own tables."""
    look, found = of_results(results), []
    for claim in claims(results.name):
        if claim.test == HEADLINE:
            continue
        if claim.test in TESTS:
            cases = decided(claim, look, claim.data)
            if "{data}" in claim.sentence and not any(case.text for case in cases):
                continue
            seen: Seen | None = [sign for case in cases for sign in case.signs], _evidence(claim, cases, look, theirs)
        else:
            seen = tests[claim.test](results) if claim.test else ([], claim.evidence)
        if seen is not None:
            late = claim.late if any(sign is not None for sign in seen[0]) else ""
            found.append(Finding(claim.sentence, judged(seen[0], claim.said), seen[1], claim.ours, late))
    return found


def _evidence(claim: Claim, cases: Sequence[Case], look: Look, theirs: Look | None) -> str:
    """The evidence of a claim in words."""
    signs = [sign for case in cases for sign in case.signs]
    texts = [case.text for case in cases if case.text]
    if claim.case and not texts:
        return claim.untested
    of = {data: [case.text for case in cases if case.data == data and case.text] for data in claim.data}
    left = [WORDS[data] for data, own in of.items() if not own]
    papers = [] if theirs is None else signs_of(claim, theirs, claim.data)
    return claim.evidence.format(
        cases="; ".join(texts),
        listed=", ".join(texts),
        groups="; ".join(f"{WORDS[data]} {', '.join(own)}" for data, own in of.items() if own),
        left=f"; {len(left)} not run: {', '.join(left)}" if left else "",
        here=len(of) - len(left),
        all=len(of),
        yes=signs.count(1),
        n=len(signs),
        counted=counted(signs),
        beside=counted(signs_of(claim, look, claim.beside)),
        papers=f"{judged(papers, claim.said)}, {counted(papers)}",
    )


def headline(results: Results, own: Callable[[Results], str] = lambda results: "") -> str:
    """Key figures in a sentence or two; nothing at smaller scales, or where they were not measured.

    >>> headline(Results("mixing", "full", {}, {}))
    ''
    """
    if results.scale != "full":
        return ""
    look = of_results(results)
    said = [
        _evidence(claim, decided(claim, look, claim.data), look, None)
        for claim in claims(results.name)
        if claim.test == HEADLINE
    ]
    return " ".join(text for text in (*said, own(results)) if text not in ("", "not run"))


def _above(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    gap = less(values[0], values[1])
    return [_sign(gap)], gap, None


def _best(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """1 surely above each of the others, -1 surely below one of them, else 0."""
    signs = [_sign(less(values[0], one)) for one in values[1:]]
    return [-1 if -1 in signs else 1 if set(signs) == {1} else 0], None, None


def _no_worse(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    gap = less(values[0], values[1])
    return [None if gap is None else gap.no_worse], gap, None


def _matches(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """1 where the first lies within the interval of the second, or above it."""
    gap, whole = less(values[0], values[1]), values[1].figure
    return [1 if values[0].figure[0] >= whole[0] - half_width(*whole) else _sign(gap)], gap, None


def _with_luck(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    gap = with_luck(values[0], values[1])
    return [_sign(gap)], gap, None


def _together(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """Above, with an interval that holds for so many comparisons together."""
    gap = apart(values[0].figure, values[1].figure, int(bars[0]))
    return [gap.sign], gap, None


def _past(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """1 where the first less the second is surely above the bar, -1 where surely below."""
    gap = less(values[0], values[1])
    assert gap is not None
    return [1 if gap.low > bars[0] else -1 if gap.high < bars[0] else 0], gap, None


def changed_more(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """1 where the first less the second is surely more than the third less the fourth, as if of other samples."""
    one, other = less(values[0], values[1]), less(values[2], values[3])
    assert one is not None and other is not None
    half = ((one.high - one.value) ** 2 + (other.high - other.value) ** 2) ** 0.5
    value = one.value - other.value
    return [1 if value > half else -1 if value < -half else 0], one, other


def _gained_more(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """The same, and the first difference is surely above 0."""
    (more,), one, other = changed_more(values, bars)
    assert one is not None and more is not None
    return [min(one.sign, more)], one, other


def _at_least(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """1 where the interval of a figure lies above its bar, -1 where below; a sign for each bar."""
    return [_beyond(one, bar) for one, bar in zip(values, bars, strict=False)], None, None


def _beyond(one: Known, bar: float) -> Sign:
    if one.area is None:
        return beyond(one.figure, bar)
    low, high = one.area
    return 1 if low > bar else -1 if high < bar else 0


def _about(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """Rates near what the paper calls about so much."""
    return [about(one, bar) for one, bar in zip(values, bars, strict=False)], None, None


def about(one: Known, bar: float) -> int:
    """1 where a rate is what the paper calls about so much, else -1."""
    return 1 if abs(one.figure[0] - bar) <= ABOUT else -1


def _separates_less(values: Sequence[Known], bars: Sequence[float]) -> Decided:
    """Of two areas: 1 where the interval of the first lies below that of the second."""
    (low, high), (least, most) = (one.area or (0.0, 1.0) for one in values[:2])
    return [1 if high < least else -1 if low > most else 0], None, None


def _sign(found: Apart | None) -> Sign:
    return None if found is None else found.sign


def _turned(
    test: Callable[[Sequence[Known], Sequence[float]], Decided],
) -> Callable[[Sequence[Known], Sequence[float]], Decided]:
    """The opposite of a test."""

    def turned(values: Sequence[Known], bars: Sequence[float]) -> Decided:
        signs, one, other = test(values, bars)
        return [None if sign is None else -sign for sign in signs], one, other

    return turned


EACH = ("at least", "less than", "about")  # a figure, a bar, a sign
ABOUT = 0.03  # what "about" is taken to mean
TESTS: dict[str, Test] = {
    "above": _above,
    "below": _turned(_above),
    "above with luck": _with_luck,
    "below with luck": _turned(_with_luck),
    "above of many": _together,
    "best": _best,
    "no worse": _no_worse,
    "matches": _matches,
    "past": _past,
    "short of": _turned(_past),
    "changed more": changed_more,
    "gained more": _gained_more,
    "at least": _at_least,
    "less than": _turned(_at_least),
    "about": _about,
    "separates less": _separates_less,
    HEADLINE: lambda values, bars: ([], None, None),
}
