"""From findings to the records that the page of `provnet debug` draws; pictures only where their hash still fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.debugging import Debugging
    from provnet.data.evidence import Evidence
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run
    from provnet.report.debugging import ClassRow, DuplicateRow, SampleTile, SignalRow, Suspect

FIVE, ODD, NEAREST, GROUPS, MEMBERS, CLASSES = 5, 20, 20, 20, 12, 60
LONGEST = 128  # pixels of a picture on the page: there are hundreds
MEANING = {
    "course": "mean class loss over the epochs, kept while training",
    "neighbours": "labels of the most similar other samples, each counted by the trust in it",
    "margin": "how far another class scores above the given one at the end",
    "equal": "the same picture under another label",
}


def debug_page(
    run: Run,
    result: Debugging,
    parts: Sequence[ImageData],
    *,
    run_name: str,
    threshold: float,
    top: int,
    how: str,
    why: str = "",
    review: str = "",
    unsure: str = "",
    barred: bool = False,
    lost: int,
) -> bytes:
    """The page as bytes; `review` is the command that writes decisions to edit, none where they are written."""
    from provnet.report.debugging import DebugReport, confusions, debug_html
    from provnet.report.records import NextStep

    maker = _Tiles(run, result, parts)
    suspects = result.suspects(threshold)
    names = result.samples.class_names
    labels, other, advised = result.samples.labels, result.mislabels.suggested, result.advised(threshold)
    ranking = result.ranking() if not len(suspects) or result.expected is None else suspects
    nearest = ranking[~result.flagged(threshold)[ranking]]
    labels_of = "decisions.csv, once you have edited it" if "decisions.csv" in how else "the suggested labels"
    report = DebugReport(
        run=run_name,
        network=f"{run.config.network.network} network, {run.config.network.head} head",
        count=len(result),
        withheld=result.withheld,
        left_out=lost,
        threshold=threshold,
        flagged=len(suspects),
        expected=result.expected,
        cannot_tell=result.mislabels.cannot_tell,
        certain=result.certainly_wrong,
        most=result.most_wrong,
        odd=int((result.anomalies.score >= 0.5).sum()),
        suspects=tuple(_suspect(result, maker, row, int(advised[row])) for row in suspects[:top].tolist()),
        nearest=maker.tiles(nearest[:NEAREST], result.mislabels.score),
        confusions=confusions([names[c] for c in labels[suspects]], [names[c] for c in other[suspects]]),
        signals=_signals(result, threshold),
        base=float(result.mislabels.base),
        fitted=result.mislabels.fitted,
        classes=_classes(result, maker, threshold),
        anomalies=maker.tiles(_first(result.anomalies.score, ODD, 0.5), result.anomalies.score),
        duplicates=_groups(result, maker),
        groups=int(result.duplicates.group.max()) + 1,
        conflicts=len(set(result.duplicates.group[result.duplicates.conflict].tolist())),
        class_names=names,
        barred=barred,
        no_command=why,
        unsure=unsure,
        next_steps=(
            *([NextStep(review, "write decisions.csv with suggestions to edit")] if review else []),
            *([NextStep(how, f"train again with {labels_of}")] if how else []),
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
        import numpy as np

        from provnet.data.evidence import Evidence, evidence
        from provnet.report.pictures import fitted, to_image

        if row not in self.known:
            found = evidence(self.result.samples, list(self.parts), [row])[0]
            if found.picture is not None and max(found.picture.shape[:2]) > LONGEST:
                found = Evidence(np.asarray(fitted(to_image(found.picture), LONGEST)), found.note)
            self.known[row] = found
        return self.known[row]

    def tile(self, row: int, score: float) -> SampleTile:
        """One sample with the score it is shown for."""
        from provnet.report.debugging import SampleTile

        found, samples = self.evidence(row), self.result.samples
        label = samples.class_names[int(samples.labels[row])]
        return SampleTile(found.picture, samples.sample_ids[row], samples.hex(row), label, score, found.note)

    def tiles(self, rows: Iterable[int], scores: np.ndarray) -> tuple[SampleTile, ...]:
        """Several of them."""
        return tuple(self.tile(int(row), float(scores[row])) for row in rows)


def _first(scores: np.ndarray, most: int, least: float) -> list[int]:
    """Rows of the highest scores that are at least `least`."""
    import numpy as np

    best = np.argsort(-scores, kind="stable")[:most]
    return [int(row) for row in best if scores[row] >= least]


def _suspect(result: Debugging, maker: _Tiles, row: int, advised: int) -> Suspect:
    from provnet.applications.debugging import DROP
    from provnet.report.debugging import Contribution, Suspect
    from provnet.report.records import ExemplarCard

    samples, wrong = result.samples, result.mislabels
    cards = []
    for other, share in result.witnesses(row, FIVE):
        found = maker.evidence(other)
        label = samples.class_names[int(samples.labels[other])]
        cards.append(
            ExemplarCard(found.picture, samples.sample_ids[other], samples.hex(other), label, share, found.note)
        )
    return Suspect(
        sample=maker.tile(row, float(wrong.score[row])),
        suggested=samples.class_names[int(wrong.suggested[row])],
        agreement=float(wrong.agreement[row]),
        contributions=tuple(Contribution(name, float(part[row])) for name, part in wrong.contributions.items()),
        exemplars=tuple(cards),
        decision="drop" if advised == DROP else "keep" if advised == samples.labels[row] else "relabel",
        conflict=bool(result.duplicates.conflict[row]),
    )


def _signals(result: Debugging, threshold: float) -> tuple[SignalRow, ...]:
    from provnet.report.debugging import SignalRow

    flagged = result.flagged(threshold)
    rows = []
    for name, part in result.mislabels.contributions.items():
        mean, others = (float(part[mine].mean()) if mine.any() else 0.0 for mine in (flagged, ~flagged))
        rows.append(SignalRow(name, MEANING[name], mean, others, result.mislabels.off.get(name, "")))
    return tuple(rows)


def _classes(result: Debugging, maker: _Tiles, threshold: float) -> tuple[ClassRow, ...]:
    import numpy as np

    from provnet.report.debugging import ClassRow

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
    import numpy as np

    from provnet.report.debugging import DuplicateRow

    group, found = result.duplicates.group, []
    for number in range(int(group.max()) + 1):
        members = result.duplicates.members(number)
        exact = bool(result.duplicates.exact[members].all())
        found.append((bool(result.duplicates.conflict[members].any()), exact, len(members), number, members))
    found.sort(key=lambda each: (not each[0], -each[2], each[3]))
    ones = np.ones(len(group))
    return tuple(
        DuplicateRow(number, exact, conflict, count, maker.tiles(members[:MEMBERS].tolist(), ones))
        for conflict, exact, count, number, members in found[:GROUPS]
    )
