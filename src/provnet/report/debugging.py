"""The page of `provnet debug`: suspects, classes, anomalies, duplicates. Plain records in, one HTML file out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from provnet.report.page import render
from provnet.report.records import ExemplarCard, NextStep, Picture
from provnet.report.scripted import with_script
from provnet.report.text import FLOAT, percent


@dataclass(frozen=True, eq=False)
class SampleTile:
    """A training sample as a small picture; `score` is what it is shown for, 0..1."""

    picture: Picture | None
    sample_id: str
    sha256: str
    label: str
    score: float
    note: str = ""


@dataclass(frozen=True)
class Contribution:
    """What a signal adds to the log-odds that a label is wrong, in words and as a number."""

    name: str
    value: float
    words: str = ""


@dataclass(frozen=True, eq=False)
class Suspect:
    """A label that is probably wrong.

    Attributes:
        sample: picture, id and given label; its score is the probability that the label is wrong.
        suggested: the label that is suggested instead.
        agreement: share of the other votes that the suggestion has.
        contributions: what each signal adds.
        exemplars: trusted training samples with the suggested label that are most like it.
        decision: what is filled in: keep, relabel (as suggested) or drop.
        conflict: whether the same picture is there under another label.
    """

    sample: SampleTile
    suggested: str
    agreement: float
    contributions: tuple[Contribution, ...]
    exemplars: tuple[ExemplarCard, ...] = ()
    decision: str = "relabel"
    conflict: bool = False


@dataclass(frozen=True, eq=False)
class ClassRow:
    """The paper's figure for one class: most typical and most anomalous samples, best first."""

    name: str
    count: int
    flagged: int
    typical: tuple[SampleTile, ...]
    anomalous: tuple[SampleTile, ...]


@dataclass(frozen=True, eq=False)
class DuplicateRow:
    """One group of equal or nearly equal pictures; `count` may be more than are shown."""

    number: int
    exact: bool
    conflict: bool
    count: int
    members: tuple[SampleTile, ...]


@dataclass(frozen=True)
class SignalRow:
    """A signal over all samples: what it is, its mean contribution to flagged labels and to all others.

    `off` says why it says nothing; else empty.
    """

    name: str
    meaning: str
    flagged: float
    others: float
    off: str = ""


@dataclass(frozen=True, eq=False)
class DebugReport:
    """Everything that the page shows.

    Attributes:
        run, network: the run folder, and its network in words.
        count: samples looked at.
        withheld, left_out: samples that were not: withheld, or edited or missing since training.
        threshold: the probability from which a label is flagged.
        flagged, expected: how many labels reach it, and the sum of all probabilities; None where that says nothing.
        cannot_tell: why it says nothing; else empty.
        certain, most: the least number of wrong labels, of equal pictures under several, and about the largest.
        odd: how many samples have an anomaly score of at least .5.
        suspects: the first of the flagged, most suspicious first.
        nearest: where none is flagged or it cannot tell, the samples that come nearest to it.
        confusions: (given, suggested, how often) among the flagged.
        signals, base, fitted: see `applications.mislabels`.
        classes, anomalies, duplicates: findings; `groups`, `conflicts` count all of them.
        class_names: for choosing another label.
        next_steps: commands to try next.
        barred: samples of the data are withheld or erased, which exported decisions do not drop.
        unsure: why wrong labels may hide although none is flagged; else empty.
        no_command: why none is among them that trains again; else empty.
    """

    run: str
    network: str
    count: int
    withheld: int
    left_out: int
    threshold: float
    flagged: int
    expected: float | None
    odd: int
    suspects: tuple[Suspect, ...]
    nearest: tuple[SampleTile, ...]
    confusions: tuple[tuple[str, str, int], ...]
    signals: tuple[SignalRow, ...]
    base: float
    fitted: float
    classes: tuple[ClassRow, ...]
    anomalies: tuple[SampleTile, ...]
    duplicates: tuple[DuplicateRow, ...]
    groups: int
    conflicts: int
    class_names: tuple[str, ...]
    next_steps: tuple[NextStep, ...] = ()
    barred: bool = False
    no_command: str = ""
    unsure: str = ""
    cannot_tell: str = ""
    certain: int = 0
    most: int = 0


def debug_html(report: DebugReport) -> str:
    """Draw the page: one file that loads nothing; its one small script filters cards and exports decisions."""
    strongest = max((abs(part.value) for one in report.suspects for part in one.contributions), default=1.0)
    page = render(
        "debugging.html.j2",
        title="Debugging report",
        report=report,
        strongest=max(strongest, 1e-9),
        given=_counted(one.sample.label for one in report.suspects),
        wanted=_counted(one.suggested for one in report.suspects),
        probability=probability,
        signed=signed,
        largest=max((signal_size(row) for row in report.signals), default=1.0) or 1.0,
    )
    return with_script(page, "debugging.js")


def confusions(given: Sequence[str], suggested: Sequence[str], most: int = 10) -> tuple[tuple[str, str, int], ...]:
    """The most frequent pairs of given and suggested label.

    >>> confusions(["4", "4", "1"], ["9", "9", "7"])
    (('4', '9', 2), ('1', '7', 1))
    """
    found = Counter(zip(given, suggested, strict=True))
    return tuple((one, other, count) for (one, other), count in found.most_common(most))


def probability(share: float) -> str:
    """An estimated probability as the page and the terminal write it: never quite certain.

    >>> probability(0.547815), probability(1.0)
    ('54.8 %', '> 99.999 %')
    """
    return percent(min(share, 1 - 10 * FLOAT))


def signed(value: float, digits: int = 1) -> str:
    """A contribution with its sign; what rounds to nothing has none.

    >>> signed(2.34), signed(-0.04), signed(-0.04, 2)
    ('+2.3', '0.0', '-0.04')
    """
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def signal_size(row: SignalRow) -> float:
    """The larger of a signal's two mean contributions, without sign."""
    return max(abs(row.flagged), abs(row.others))


def _counted(labels: object) -> list[tuple[str, int]]:
    return sorted(Counter(labels).items())  # type: ignore[call-overload]
