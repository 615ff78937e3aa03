"""Sentences put to the test: claims.csv is the table of all of them, this is the one judge.

The cases of a row are the data sets of `data` times the values of `over` (`level=1,2`; a value may have words after
`|`), and each compares the figures of `cells`: `[experiment!][data/]setting:figure[@paper]`, where `(1,2)` stands for
one figure after the other and `@paper` for the paper's own number. `test` is one of TESTS, which takes the `bars`.
Evidence is said by two templates, `case` and `evidence`; letters stand for the figures in their order.
"""

from __future__ import annotations

import csv
import itertools
import re
import statistics
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from provnet.base.stats import Z95
from provnet_paper.measures import DASH, Known, beyond, figure_of, half_width, less, of_paper, widen_interval, with_luck
from provnet_paper.records import Results

CONFIRMED, CONTRADICTED, MIXED = "confirmed", "contradicted", "holds in part"
NOT_CONFIRMED, UNDECIDED, NOT_TESTED = "not confirmed", "undecided", "not tested"
ORDER = (CONFIRMED, MIXED, UNDECIDED, NOT_CONFIRMED, CONTRADICTED, NOT_TESTED)  # as they are told
ALL, MOST, SOME = "all", "most", "some"  # of its cases a sentence may speak of
LATE = {"bar": "the bar was set", "cases": "the cases were chosen"}  # what of a sentence may have come late
HEADLINE = "headline"
WORDS = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stanford-dogs": "Stanford Dogs",
    "lfw": "LFW",
}
ABOUT = 0.03  # what "about" is taken to mean
Sign = int | None  # of a case: 1 surely as claimed, -1 surely not, 0 too near to say, None not run
Look = Callable[[str], Known | None]  # from a text of `cells`
Decided = tuple[list[Sign], Any, Any]  # of one case: signs, and up to two things that its text may show


@dataclass(frozen=True)
class Finding:
    """A sentence and what became of it; `late` says what was settled by us when the results were known already."""

    claim: str
    verdict: str
    evidence: str
    ours: bool = False
    late: str = ""
    so_far: bool = False  # some cases were not run


@dataclass(frozen=True)
class Claim:
    """A row of claims.csv."""

    experiment: str
    sentence: str
    said: str
    late: str
    ours: bool
    test: str
    data: tuple[str, ...]
    beside: tuple[str, ...]
    over: Mapping[str, Mapping[str, str]]
    cells: tuple[str, ...]
    bars: tuple[str, ...]
    case: str
    evidence: str
    untested: str


PARTS: dict[str, Callable[[str], Any]] = {
    "said": lambda text: text or ALL,
    "late": lambda text: LATE.get(text, ""),
    "ours": bool,
    **dict.fromkeys(("data", "beside", "bars"), lambda text: tuple(text.split())),
    "over": lambda text: {
        name: _choices(values) for name, values in (one.split("=") for one in text.split("; ") if one)
    },
    "cells": lambda text: tuple(cell for one in text.split() for cell in _each(one)),
    "evidence": lambda text: text or "{cases}",
    "untested": lambda text: text or "not run",
}


@dataclass(frozen=True)
class Case:
    """One case of a sentence, decided: its signs and how it is written."""

    data: str
    signs: list[Sign]
    text: str


class Missing:
    """Stands in the text of a case for a figure that was not measured."""

    ends = DASH

    def __str__(self) -> str:
        return DASH


@cache
def claims(experiment: str) -> tuple[Claim, ...]:
    """The rows of an experiment, in their order."""
    with Path(__file__).with_name("claims.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    return tuple(Claim(**{name: PARTS.get(name, str)(text) for name, text in row.items()}) for row in rows)


def _choices(values: str) -> dict[str, str]:
    """Value -> its words."""
    pairs = (value.partition("|") for value in values.split(","))
    return {value: words if bar else value for value, bar, words in pairs}


def _each(text: str) -> list[str]:
    """One text for each value in brackets."""
    found = re.search(r"\(([^)]*)\)", text)
    if found is None:
        return [text]
    every = [text[: found.start()] + one + text[found.end() :] for one in found[1].split(",")]
    return [one for part in every for one in _each(part)]


def looking(results: Results, table: str, others: Callable[[str], Results | None] = lambda name: None) -> Look:
    """Looks into results, into those of `others` and into the paper's own `table`."""

    def look(text: str) -> Known | None:
        name, bar, rest = text.rpartition("!")
        there = others(name) if bar else results
        cell, _, figure = rest.partition(":")
        if figure.endswith("@paper"):
            return of_paper(table, cell, figure.removesuffix("@paper"))
        return None if there is None else figure_of(there, cell, figure)

    return look


def decide_cases(claim: Claim, look: Look, data: Sequence[str]) -> list[Case]:
    """Every case of a claim; one that lacks a figure has no sign and no text."""
    return [
        _case(claim, look, one, dict(zip(claim.over, chosen, strict=True)))
        for one in data
        for chosen in itertools.product(*claim.over.values())
    ]


def _case(claim: Claim, look: Look, data: str, chosen: Mapping[str, str]) -> Case:
    shown = {**chosen, **{f"{name}_": claim.over[name][value] for name, value in chosen.items()}}
    values = []
    for text in claim.cells:
        name, bar, rest = text.format(data=data, **shown).rpartition("!")
        cell, colon, figure = rest.partition(":")
        whole = cell if "/" in cell else f"{data}/{cell}" if cell else data
        values.append(look(f"{name}{bar}{whole}{colon}{figure}"))
    bars = [float(bar.format(**shown)) for bar in claim.bars]
    there = [one for one in values if one is not None]
    if not there or (len(there) < len(values) and claim.test not in EACH):
        return Case(data, [None] * (len(bars) if claim.test in EACH else 1), "")
    signs, gap, other = TESTS[claim.test](values, bars)
    letters = dict(zip(string.ascii_lowercase, (one or Missing() for one in values), strict=False))
    ends = {"low": min(there, key=_value), "high": max(there, key=_value)}
    text = claim.case.format(data=WORDS[data], gap=gap, other=other, **shown, **letters, **ends)
    return Case(data, list(signs), text)


def _value(one: Known) -> float:
    return one.figure[0]


def findings(name: str, look: Look, papers: Look) -> list[Finding]:
    """The sentences of an experiment, judged; `papers` looks into the paper's own tables for everything."""
    found = []
    for claim in claims(name):
        if claim.test == HEADLINE:
            continue
        cases = decide_cases(claim, look, claim.data) if claim.test else []
        signs = [sign for case in cases for sign in case.signs]
        tested = any(sign is not None for sign in signs)
        text = _evidence(claim, cases, look, papers) if claim.test else claim.untested
        late, so_far = (claim.late if tested else ""), tested and None in signs
        found.append(Finding(claim.sentence, verdict_of(signs, claim.said), text, claim.ours, late, so_far))
    return found


def headline(name: str, look: Look) -> str:
    """Key figures in a sentence or two; nothing where they were not measured."""
    rows = [claim for claim in claims(name) if claim.test == HEADLINE]
    said = [_evidence(claim, decide_cases(claim, look, claim.data), look, look) for claim in rows]
    return " ".join(text for text in said if text != "not run")


def _evidence(claim: Claim, cases: Sequence[Case], look: Look, papers: Look) -> str:
    """The evidence of a claim in words."""
    signs = [sign for case in cases for sign in case.signs]
    texts = [case.text for case in cases if case.text]
    if all(sign is None for sign in signs) and not (claim.test == HEADLINE and texts):
        return claim.untested
    of = {data: [case.text for case in cases if case.data == data and case.text] for data in claim.data}
    left = [WORDS[data] for data, own in of.items() if not own]
    theirs = _signs(claim, papers, claim.data) if "{papers}" in claim.evidence else []
    return claim.evidence.format(
        cases="; ".join(texts),
        listed=", ".join(texts),
        groups="; ".join(f"{WORDS[data]} {', '.join(own)}" for data, own in of.items() if own),
        left=f"; {len(left)} not run: {', '.join(left)}" if left else "",
        here=len(of) - len(left),
        all=len(of),
        yes=signs.count(1),
        n=len(signs) - signs.count(None),
        counted=count_cases(signs),
        plainly=count_cases(signs, sure=False),
        beside=count_cases(_signs(claim, look, claim.beside), sure=claim.test not in PLAIN),
        papers=f"{verdict_of(theirs, claim.said)}, {count_cases(theirs)}",
    )


def _signs(claim: Claim, look: Look, data: Sequence[str]) -> list[Sign]:
    return [sign for case in decide_cases(claim, look, data) for sign in case.signs]


def verdict_of(signs: Iterable[Sign], said: str = ALL) -> str:
    """One verdict of many cases: 1 surely as claimed, -1 surely not, 0 too near to say, None not run.

    Confirmed and contradicted need more than half of the cases that were run, and none against. A sentence that speaks
    of MOST cases is confirmed by more than half, one that speaks of SOME by any, if fewer are against.

    >>> verdict_of([1, 1, 0]), verdict_of([1, -1]), verdict_of([1, 0]), verdict_of([-1, -1, 0])
    ('confirmed', 'holds in part', 'holds in part', 'contradicted')
    >>> verdict_of([-1, 0]), verdict_of([0]), verdict_of([None]), verdict_of([1, None, None])
    ('not confirmed', 'undecided', 'not tested', 'confirmed')
    >>> verdict_of([1, 1, -1], MOST), verdict_of([1, 0, 0], SOME), verdict_of([1, -1], SOME)
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


def count_cases(signs: Iterable[Sign], *, sure: bool = True) -> str:
    """The same in numbers; `sure` where signs were told from chance.

    >>> count_cases([1, 0, -1, None])
    'surely so in 1, surely not in 1, too near to say in 1, of 3 compared, 1 not run'
    >>> count_cases([1, 0, 1], sure=False)
    'so in 2, not in 0, alike in 1, of 3 compared'
    """
    cases = list(signs)
    found = [sign for sign in cases if sign is not None]
    if not found:
        return f"{len(cases)} not run"
    yes, no, near = (found.count(sign) for sign in (1, -1, 0))
    of = f"of {len(found)} compared" + (f", {len(cases) - len(found)} not run" if len(found) < len(cases) else "")
    words = ("surely so", "surely not", "too near to say") if sure else ("so", "not", "alike")
    return f"{words[0]} in {yes}, {words[1]} in {no}, {words[2]} in {near}, {of}"


def _compared(compare: Callable[..., Any], sign: Callable[[Any], Sign] = lambda gap: gap.sign) -> Test:
    """A test of the first less the second; where a bar is given, for so many comparisons together."""

    def test(values: Sequence[Any], bars: Sequence[float]) -> Decided:
        gap = compare(values[0], values[1], *(int(bar) for bar in bars))
        return [sign(gap)], gap, None

    return test


def _turned(test: Test) -> Test:
    """The opposite of a test."""

    def turned(values: Sequence[Any], bars: Sequence[float]) -> Decided:
        signs, one, other = test(values, bars)
        return [None if sign is None else -sign for sign in signs], one, other

    return turned


def _best(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 surely above each of the others, -1 surely below one of them, else 0."""
    signs = [less(values[0], one).sign for one in values[1:]]
    return [-1 if -1 in signs else 1 if set(signs) == {1} else 0], None, None


def _any_better(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where any of the others surely beats the first, -1 where all surely lose; intervals hold for all together."""
    gaps = [less(one, values[0], int(bars[0])) for one in values[1:]]
    signs = [gap.sign for gap in gaps]
    best = max(gaps, key=lambda gap: gap.value)
    return [1 if 1 in signs else -1 if set(signs) == {-1} else 0], best, f"{(gaps.index(best) + 1) / 10:g}"


def _matches(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the first lies within the interval of the second, or above it."""
    gap, whole = less(values[0], values[1]), values[1].figure
    return [1 if values[0].figure[0] >= whole[0] - half_width(*whole) else gap.sign], gap, None


def _past(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the first less the second is surely above the bar, -1 where surely below."""
    gap = less(values[0], values[1])
    return [1 if gap.low > bars[0] else -1 if gap.high < bars[0] else 0], gap, None


def _changed_more(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the first less the second is surely more than the third less the fourth, as if of other samples."""
    one, other = less(values[0], values[1]), less(values[2], values[3])
    half = ((one.high - one.value) ** 2 + (other.high - other.value) ** 2) ** 0.5
    value = one.value - other.value
    return [1 if value > half else -1 if value < -half else 0], one, other


def _gained_more(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """The same, and the first difference is surely above 0."""
    (more,), one, other = _changed_more(values, bars)
    return [min(one.sign, more or 0)], one, other


def _both_fall(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """Three signs: either difference is surely above 0, and the first is more than the second."""
    signs, one, other = _changed_more(values, bars)
    return [one.sign, other.sign, *signs], one, other


def _plateaus(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the second gains surely more on the first than the third on the second, which counts in both gains."""
    few, half, most = (one.figure for one in values[:3])
    first, second = less(values[1], values[0]), less(values[2], values[1])
    spread = sum(weight * one[0] * (1 - one[0]) / one[1] for weight, one in ((1, few), (4, half), (1, most)))
    more, chance = first.value - second.value, Z95 * spread**0.5
    return [1 if more > chance else -1 if more < -chance else 0], first, second


def _falls(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where one of the steps from each to the next surely goes down; sure for so many steps together."""
    gaps = [less(more, one, int(bars[0])) for one, more in itertools.pairwise(values)]
    down = sum(gap.sign < 0 for gap in gaps)
    return [int(down > 0)], f"{down} of {len(gaps)}", None


def _steadier(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the first half of the figures vary less than the second."""
    half = len(values) // 2
    ranges = [max(map(_value, part)) - min(map(_value, part)) for part in (values[:half], values[half:])]
    return [1 if ranges[0] < ranges[1] else -1], *(f"{100 * one:.1f}" for one in ranges)  # type: ignore[return-value]


def _at_least(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the interval of a figure lies above its bar, -1 where below; a sign for each bar."""
    return [beyond(one, bar) for one, bar in zip(values, bars, strict=False)], None, None


def _all_at_least(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """The same, one sign for all figures together."""
    signs = [beyond(one, bars[0]) for one in values]
    return [-1 if -1 in signs else int(set(signs) == {1})], None, None


def _at_least_of_many(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """Of an area; the interval holds for so many comparisons together."""
    wide = widen_interval(values[0], int(bars[1]))
    return [beyond(wide, bars[0])], wide.ends, None


def _about(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where a rate is what the paper calls about so much, else -1; a sign for each bar."""
    return [None if one is None else 1 if abs(_value(one) - bar) <= ABOUT else -1
            for one, bar in zip(values, bars, strict=False)], None, None  # fmt: skip


def _separates_less(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """Of two areas: 1 where the interval of the first lies below that of the second."""
    (low, high), (least, most) = (one.area or (0.0, 1.0) for one in values[:2])
    return [1 if high < least else -1 if low > most else 0], None, None


def _smaller(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """Of plain numbers, without chance."""
    one, other = map(_value, values[:2])
    return [(one < other) - (one > other)], f"{one / other:.2f}" if other else DASH, None


def _reaches(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where a number is at or above the paper's, without chance, else -1."""
    return [1 if _value(values[0]) >= _value(values[1]) else -1], None, None


def _one_reaches(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the best of the figures is at or above the bar, else -1."""
    best = max((one for one in values if one is not None), key=_value)
    return [1 if _value(best) >= bars[0] else -1], best.ends, None


def _share(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the first number is such a share of the second, in whole per cent."""
    one, other = map(_value, values[:2])
    return [1 if round(100 * one / other) == round(100 * bars[0]) else -1], None, None


def _jump(values: Sequence[Any]) -> float:
    """The last of the numbers less the mean of those before."""
    return _value(values[-1]) - statistics.fmean(map(_value, values[:-1]))


def _jumps(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """1 where the fourth of each four numbers lies above the three before by more than the bar, -1 where below."""
    signs = {_by(_jump(values[at : at + 4]), bars[0]) for at in range(0, len(values), 4)}
    return [signs.pop() if len(signs) == 1 else 0], None, None


def _jumps_more(values: Sequence[Any], bars: Sequence[float]) -> Decided:
    """The same of how much further the first four jump than the second."""
    one, other = _jump(values[:4]), _jump(values[4:])
    return [_by(one - other, bars[0])], f"{100 * one:.0f}", f"{100 * other:.0f}"


def _by(value: float, bar: float) -> int:
    return 1 if value > bar else -1 if value < -bar else 0


Test = Callable[[Sequence[Any], Sequence[float]], Decided]
EACH = ("at least", "less than", "about", "one reaches")  # these do without figures that were not measured
PLAIN = ("smaller", "larger", "not smaller", "jumps", "no jump", "jumps more", "steadier")  # these know no chance
TESTS: dict[str, Test] = {
    "above": _compared(less),
    "below": _turned(_compared(less)),
    "above with luck": _compared(with_luck),
    "below with luck": _turned(_compared(with_luck)),
    "differs": _compared(with_luck, lambda gap: abs(gap.sign)),
    "not above": _compared(with_luck, lambda gap: -1 if gap.sign > 0 else 1),
    "no worse": _compared(less, lambda gap: 1 if gap.value >= 0 else min(gap.sign, 0)),
    "best": _best,
    "any better": _any_better,
    "matches": _matches,
    "past": _past,
    "short of": _turned(_past),
    "changed more": _changed_more,
    "gained more": _gained_more,
    "both fall": _both_fall,
    "plateaus": _plateaus,
    "falls": _falls,
    "steadier": _steadier,
    "at least": _at_least,
    "less than": _turned(_at_least),
    "all at least": _all_at_least,
    "at least of many": _at_least_of_many,
    "about": _about,
    "separates less": _separates_less,
    "smaller": _smaller,
    "larger": _turned(_smaller),
    "not smaller": lambda values, bars: ([1 if _smaller(values, bars)[0] != [1] else -1], None, None),
    "reaches": _reaches,
    "one reaches": _one_reaches,
    "share": _share,
    "jumps": _jumps,
    "no jump": lambda values, bars: ([-1 if _jump(values) > bars[0] else 1], None, None),
    "jumps more": _jumps_more,
    HEADLINE: lambda values, bars: ([], None, None),
}
