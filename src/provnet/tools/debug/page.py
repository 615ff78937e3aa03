"""The page of `provnet debug`: suspects, classes, anomalies, duplicates. Plain records in, one HTML file out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from provnet.base.options import Debug
from provnet.data.dataset import ImageData
from provnet.data.evidence import Evidence
from provnet.report.page import render, with_script
from provnet.report.pictures import pictures_of, sight
from provnet.report.records import FLOAT, ExemplarCard, NextStep, Passage, Picture, percent
from provnet.runs.data import Found
from provnet.runs.run import Run
from provnet.tools.debug.compute import DROP, Debugging


@dataclass(frozen=True, eq=False)
class SampleTile:
    """A training sample as a small picture; `score` is what it is shown for, 0..1."""

    picture: Picture | Passage | None
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
        suggested: the best other label.
        agreement: share of the other votes that it has.
        contributions: what each signal adds.
        exemplars: trusted training samples with that label that are most like it.
        decision: what is filled in: keep, relabel (as suggested) or drop.
        conflict: whether the same picture is there under another label.
        suggests: whether the other label is suggested; else nothing says which is right.
    """

    sample: SampleTile
    suggested: str
    agreement: float
    contributions: tuple[Contribution, ...]
    exemplars: tuple[ExemplarCard, ...] = ()
    decision: str = "relabel"
    conflict: bool = False
    suggests: bool = True


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
    """One group of equal, nearly equal or mirrored pictures (`kind`); `count` may be more than are shown."""

    number: int
    kind: str
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
        copies: how many of the flagged have copies under other labels.
        odd: how many samples have an anomaly score of at least .5.
        suspects: the first of the flagged, most suspicious first.
        nearest: where none is flagged or it cannot tell, the samples that come nearest to it.
        confusions: (given, suggested, how often) among the flagged, where a label is suggested.
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
    copies: int = 0


def debug_html(report: DebugReport) -> str:
    """Draw the page: one file that loads nothing; its one small script filters cards and exports decisions."""
    strongest = max((abs(part.value) for one in report.suspects for part in one.contributions), default=1.0)
    page = render(
        "debugging.html.j2",
        title="Debugging report",
        report=report,
        strongest=max(strongest, 1e-9),
        given=_counted(one.sample.label for one in report.suspects),
        wanted=_counted(one.suggested for one in report.suspects if one.suggests),
        probability=probability,
        signed=with_sign,
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


def with_sign(value: float, digits: int = 1) -> str:
    """A contribution with its sign; what rounds to nothing has none.

    >>> with_sign(2.34), with_sign(-0.04), with_sign(-0.04, 2)
    ('+2.3', '0.0', '-0.04')
    """
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def signal_size(row: SignalRow) -> float:
    """The larger of a signal's two mean contributions, without sign."""
    return max(abs(row.flagged), abs(row.others))


def _counted(labels: object) -> list[tuple[str, int]]:
    return sorted(Counter(labels).items())  # type: ignore[call-overload]


FIVE, ODD, NEAREST, GROUPS, MEMBERS, CLASSES = 5, 20, 20, 20, 12, 60
SUSPECT, TILE = 400, 200  # pixels of a picture on the page, and of the many that stand beside it
MEANING = {
    "course": "mean class loss over the epochs, kept while training",
    "neighbours": "labels of the most similar other samples, each counted by the trust in it",
    "margin": "how far another class scores above the given one at the end",
    "equal": "the same picture under another label",
    "ridge": "a linear model of the features, fitted without the sample",
    "words": "naive Bayes on words and pieces of words, without the sample",
    "linear": "a linear model of words and pieces of words, fitted without the sample",
    "gaussian": "the distance to the classes in the features, without the sample",
    "votes": "labels of the nearest other samples by the features, each counted by the trust in it",
    "confusions": "how often such labels are confused, and what other classes say",
    "foreign": "that the sample may be of no class",
}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What the page says of the next step.

    Attributes:
        command: that trains again; none where `why` says why.
        review: the command that writes decisions to edit, none where they are written.
        memorised: why wrong labels may hide; empty where they do not.
        barred: whether some samples must not be trained on again.
    """

    command: str = ""
    why: str = ""
    review: str = ""
    memorised: str = ""
    barred: bool = False


def debug_page(
    run: Run,
    result: Debugging,
    found: Found,
    asked: Debug,
    advice: Advice,
) -> bytes:
    """The page as bytes."""
    maker, threshold = _Tiles(run, result, found.parts), asked.threshold
    suspects = result.suspects(threshold)
    names = result.samples.class_names
    labels, other, advised = result.samples.labels, result.suggested(threshold), result.advised(threshold)
    changed = suspects[other[suspects] != labels[suspects]]
    ranking = result.ranking() if not len(suspects) or result.expected is None else suspects
    nearest = ranking[~result.flagged(threshold)[ranking]]
    labels_of = (
        "decisions.csv, once you have edited it" if "decisions.csv" in advice.command else "the suggested labels"
    )
    report = DebugReport(
        run=str(asked.run),
        network=f"{run.config.network.network} network, {run.config.network.head} head",
        count=len(result),
        withheld=result.withheld,
        left_out=found.kept.left_out,
        threshold=threshold,
        flagged=len(suspects),
        expected=result.expected,
        cannot_tell=result.mislabels.cannot_tell,
        certain=result.certainly_wrong,
        most=result.most_wrong,
        copies=int(result.duplicates.conflict[suspects].sum()),
        odd=int((result.anomalies.score >= 0.5).sum()),
        suspects=tuple(_suspect(result, maker, row, int(advised[row])) for row in suspects[: asked.top].tolist()),
        nearest=maker.tiles(nearest[:NEAREST], result.mislabels.score),
        confusions=confusions([names[c] for c in labels[changed]], [names[c] for c in other[changed]]),
        signals=_signals(result, threshold),
        base=float(result.mislabels.base),
        fitted=result.mislabels.fitted,
        classes=_classes(result, maker, threshold),
        anomalies=maker.tiles(_first(result.anomalies.score, ODD, 0.5), result.anomalies.score),
        duplicates=_groups(result, maker),
        groups=int(result.duplicates.group.max()) + 1,
        conflicts=len(set(result.duplicates.group[result.duplicates.conflict].tolist())),
        class_names=names,
        barred=advice.barred,
        no_command=advice.why,
        unsure=advice.memorised,
        next_steps=(
            *([NextStep(advice.review, "write decisions.csv to edit")] if advice.review else []),
            *([NextStep(advice.command, f"train again with {labels_of}")] if advice.command else []),
        ),
    )
    return debug_html(report).encode("utf-8", "backslashreplace")


class _Tiles:
    """Small pictures of rows, each read and hashed once."""

    def __init__(self, run: Run, result: Debugging, parts: Sequence[ImageData]) -> None:
        self.run, self.result, self.parts = run, result, parts
        self.known: dict[int, Evidence] = {}

    def evidence(self, row: int) -> Evidence:
        """The picture of a row, no larger than the page needs, or why there is none."""
        if row not in self.known:
            self.known[row] = pictures_of(self.result.samples, list(self.parts), [row], SUSPECT)[0]
        return self.known[row]

    def tile(self, row: int, score: float, longest: int = TILE) -> SampleTile:
        """One sample with the score it is shown for."""
        found, samples = self.evidence(row), self.result.samples
        label = samples.class_names[int(samples.labels[row])]
        return SampleTile(sight(found, longest), samples.sample_ids[row], samples.hex(row), label, score, found.note)

    def tiles(self, rows: Iterable[int], scores: np.ndarray) -> tuple[SampleTile, ...]:
        """Several of them."""
        return tuple(self.tile(int(row), float(scores[row])) for row in rows)


def _first(scores: np.ndarray, most: int, least: float) -> list[int]:
    """Rows of the highest scores that are at least `least`."""
    best = np.argsort(-scores, kind="stable")[:most]
    return [int(row) for row in best if scores[row] >= least]


def _suspect(result: Debugging, maker: _Tiles, row: int, advised: int) -> Suspect:

    samples, wrong, conflict = result.samples, result.mislabels, bool(result.duplicates.conflict[row])
    suggests = advised != DROP and not wrong.cannot_tell
    cards = []
    said = [maker.evidence(row).text]
    for other, share in result.witnesses(row, FIVE) if suggests or not conflict else []:
        found = maker.evidence(other)
        label, seen = samples.class_names[int(samples.labels[other])], sight(found, TILE, said)
        cards.append(ExemplarCard(seen, samples.sample_ids[other], samples.hex(other), label, share, found.note))
    return Suspect(
        sample=maker.tile(row, float(wrong.score[row]), SUSPECT),
        suggested=samples.class_names[int(wrong.suggested[row])],
        agreement=float(wrong.agreement[row]),
        contributions=tuple(Contribution(name, float(part[row])) for name, part in wrong.contributions.items()),
        exemplars=tuple(cards),
        decision="drop" if advised == DROP else "keep" if advised == samples.labels[row] else "relabel",
        conflict=conflict,
        suggests=suggests,
    )


def _signals(result: Debugging, threshold: float) -> tuple[SignalRow, ...]:

    flagged = result.flagged(threshold)
    rows = []
    for name, part in result.mislabels.contributions.items():
        mean, others = (float(part[mine].mean()) if mine.any() else 0.0 for mine in (flagged, ~flagged))
        rows.append(SignalRow(name, MEANING[name], mean, others, result.mislabels.off.get(name, "")))
    return tuple(rows)


def _classes(result: Debugging, maker: _Tiles, threshold: float) -> tuple[ClassRow, ...]:

    labels, names = result.samples.labels, result.samples.class_names
    flagged = result.flagged(threshold)
    sizes = np.bincount(labels, minlength=len(names))
    shown = np.sort(np.argsort(-sizes, kind="stable")[:CLASSES])
    rows = []
    for each in shown.tolist():
        mine = np.flatnonzero(labels == each)
        if len(mine) == 0:
            continue
        typical = mine[np.argsort(-result.anomalies.typicality[mine], kind="stable")][:FIVE]
        odd = mine[np.argsort(-result.anomalies.score[mine], kind="stable")][:FIVE]
        rows.append(
            ClassRow(
                name=names[each],
                count=len(mine),
                flagged=int(flagged[mine].sum()),
                typical=maker.tiles(typical.tolist(), result.anomalies.typicality),
                anomalous=maker.tiles(odd.tolist(), result.anomalies.score),
            )
        )
    return tuple(rows)


def _groups(result: Debugging, maker: _Tiles) -> tuple[DuplicateRow, ...]:

    group, found = result.duplicates.group, []
    for number in range(int(group.max()) + 1):
        members = result.duplicates.members(number)
        twice = result.duplicates
        kind = "exact" if twice.exact[members].all() else "mirrored" if twice.mirrored[members].any() else "near"
        found.append((bool(twice.conflict[members].any()), kind, len(members), number, members))
    found.sort(key=lambda each: (not each[0], -each[2], each[3]))
    ones = np.ones(len(group))
    return tuple(
        DuplicateRow(number, kind, conflict, count, maker.tiles(members[:MEMBERS].tolist(), ones))
        for conflict, kind, count, number, members in found[:GROUPS]
    )
