"""Data: training samples with what was found about them, filtered, sorted and counted; and the test split."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from provnet.tools.debug.compute import DROP, FLAGGED, share_flagged
from provnet_app.jobs import KINDS, Scores
from provnet_app.limits import PAGE, TAG
from provnet_app.routes import DIGITS, Hash, Interval, Label, Name, Strict, Words, gives, rounded, router
from provnet_app.security import ApiError, not_ready, unknown
from provnet_app.state import State

Sort = Literal["index", "issue", "mislabel", "anomaly", "typicality", "label", "group", "selection"]
Flag = Literal["suspect", "mislabel", "wrong", "foreign", "bad", "ambiguous", "conflict", "duplicate", "added"]
Kind = Literal["conflict", "wrong", "bad", "foreign", "ambiguous", "duplicate"]
SCORED = ("issue", "mislabel", "anomaly", "typicality")
ODD = 0.5


class Wanted(Strict):
    """The parameters of GET /samples."""

    offset: Annotated[int, Field(ge=0, lt=2**53), DIGITS] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE), DIGITS] = 100
    sort: Sort = "index"
    order: Literal["asc", "desc"] = "asc"
    class_: Annotated[int | None, Field(alias="class", ge=0, lt=2**53), DIGITS] = None
    suggested: Annotated[int | None, Field(ge=0, lt=2**53), DIGITS] = None  # class that a flagged label should be
    flag: Flag | None = None
    tag: Annotated[Name | None, Field(max_length=TAG)] = None
    decision: Literal["none", "any", "keep", "relabel", "drop"] | None = None
    minimum: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    maximum: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    selection: Annotated[str | None, StringConstraints(pattern=r"^[0-9a-f]{16}$")] = None
    group: Annotated[int | None, Field(ge=0, lt=2**53), DIGITS] = None
    text: Annotated[str | None, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")] = None
    id: Name | None = None  # one sample alone; `text` finds train/10 for train/1, too

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class SampleRecord(Words):
    """A training sample with what was found about it."""

    index: int
    sample_id: str
    sha256: str
    label: str
    class_: Annotated[int, Field(alias="class")]
    source: str | None
    kind: Kind | None
    issue: float | None
    mislabel: float | None
    suggested: str | None
    suggested_class: int | None
    advised: Literal["keep", "relabel", "drop"] | None
    anomaly: float | None
    typicality: float | None
    group: int | None
    group_size: int
    exact: bool
    conflict: bool
    flags: list[str]
    decision: str | None
    new_label: str | None
    tags: list[str]
    shown: bool

    model_config = ConfigDict(populate_by_name=True)


def chosen(state: State, wanted: Wanted) -> np.ndarray:
    """All samples that fit, in order."""
    state.decisions.refresh()
    state.tags.refresh()
    samples, scores = state.served.run.samples, scores_of(state)
    fits = ~samples.withheld
    if wanted.class_ is not None:
        fits &= samples.labels == wanted.class_
    if wanted.flag is not None:
        fits &= flagged(state, wanted.flag)
    if wanted.suggested is not None:
        fits &= flagged(state, "mislabel") & (_needed(scores).suggested == wanted.suggested)
    if wanted.decision is not None:
        fits &= state.decisions.mask(wanted.decision)
    if wanted.tag is not None:
        fits &= state.tags.mask(wanted.tag)
    if wanted.id is not None:
        place = samples.id_places.get(wanted.id, -1)
        fits &= np.arange(len(samples)) == place
    if wanted.group is not None:
        fits &= _needed(scores).group == wanted.group
    picked = None if wanted.selection is None else state.selections.find(wanted.selection)
    if wanted.selection is not None:
        if picked is None:
            raise unknown("selection", "selection")
        inside = np.zeros(len(samples), dtype=np.bool_)
        inside[picked] = True
        fits &= inside
    elif wanted.sort == "selection":
        raise ApiError(422, "invalid", "the order of a selection needs a selection", "sort")
    if wanted.sort in SCORED:
        values = np.round(getattr(_needed(scores), wanted.sort).astype(np.float64), 4)  # as they are shown
        fits &= _needed(scores).known
        fits &= values >= (0.0 if wanted.minimum is None else wanted.minimum)
        fits &= values <= (1.0 if wanted.maximum is None else wanted.maximum)
    if wanted.sort == "group" and wanted.group is None:
        fits &= _needed(scores).group >= 0
    rows = np.flatnonzero(fits)
    if wanted.text:
        part = wanted.text.casefold()
        rows = rows[[part in samples.sample_ids[i].casefold() for i in rows.tolist()]] if len(rows) else rows
    return _sorted(state, rows, wanted, picked)


def _sorted(state: State, rows: np.ndarray, wanted: Wanted, picked: np.ndarray | None) -> np.ndarray:
    if wanted.sort == "index":
        return rows if wanted.order == "asc" else rows[::-1]
    if picked is not None and wanted.sort == "selection":
        place = np.empty(len(state.served.run.samples), dtype=np.int64)
        place[picked] = np.arange(len(picked))
        ordered = rows[np.argsort(place[rows])]
        return ordered if wanted.order == "asc" else ordered[::-1]
    values = (
        state.served.run.samples.labels if wanted.sort == "label" else getattr(_needed(scores_of(state)), wanted.sort)
    )
    by = values[rows].astype(np.float64)
    if wanted.sort in (
        "mislabel",
        "issue",
    ):  # pictures under several labels, of which at least one is wrong, are the most suspicious
        by += _needed(scores_of(state)).conflict[rows] & (by >= FLAGGED)
    return rows[np.argsort(by if wanted.order == "asc" else -by, kind="stable")]


def flagged(state: State, flag: Flag) -> np.ndarray:
    """(N,) bool: samples with a flag."""
    if flag == "added":
        return state.served.run.samples.added
    scores = _needed(scores_of(state))
    other = {
        "suspect": (scores.kind > 0) & (scores.kind <= KINDS.index("ambiguous") + 1),
        "mislabel": scores.mislabel >= FLAGGED,
        "duplicate": scores.group >= 0,
        "conflict": scores.conflict,
    }
    return other[flag] if flag in other else np.asarray(scores.kind == KINDS.index(flag) + 1)


def scores_of(state: State) -> Scores | None:
    """The scores, where they were computed."""
    found = state.jobs.result("scores")
    return found if isinstance(found, Scores) else None


def _needed(scores: Scores | None) -> Scores:
    if scores is None:
        raise not_ready("scores")
    return scores


def sample_records(state: State, rows: np.ndarray) -> list[SampleRecord]:
    """Samples as the page shows them."""
    scores = scores_of(state)
    sizes = np.bincount(scores.group[scores.group >= 0]) if scores is not None and (scores.group >= 0).any() else None
    return [_record(state, int(row), scores, sizes) for row in rows]


def _record(state: State, row: int, scores: Scores | None, sizes: np.ndarray | None) -> SampleRecord:
    samples, names = state.served.run.samples, state.served.run.samples.class_names
    label = int(samples.labels[row])
    choice = state.decisions.choices.get(row)
    known = scores is not None and bool(scores.known[row])
    flags = ["added"] if samples.added[row] else []
    found: dict[str, object] = dict.fromkeys(
        ("kind", "issue", "mislabel", "suggested", "suggested_class", "advised", "anomaly", "typicality", "group")
    )
    found |= {"group_size": 1, "exact": False, "conflict": False}
    if scores is not None and known:
        group = int(scores.group[row])
        dropped = int(scores.suggested[row]) == DROP
        other = None if dropped or scores.cannot_tell else int(scores.suggested[row])
        wrong = bool(scores.mislabel[row] >= FLAGGED)
        found = {
            **{name: rounded(float(getattr(scores, name)[row]), 4) for name in SCORED},
            "kind": KINDS[scores.kind[row] - 1] if scores.kind[row] else None,
            "suggested": None if other is None else names[other],
            "suggested_class": other,
            "advised": "drop" if dropped else "relabel" if wrong and other is not None else "keep",
            "group": group if group >= 0 else None,
            "group_size": int(sizes[group]) if sizes is not None and group >= 0 else 1,
            "exact": bool(scores.exact[row]),
            "conflict": bool(scores.conflict[row]),
        }
        marks = (wrong, scores.anomaly[row] >= ODD, group >= 0, scores.conflict[row])
        named = zip(("mislabel", "anomaly", "duplicate", "conflict"), marks, strict=True)
        flags = [name for name, is_so in named if is_so] + flags
    return SampleRecord(
        index=row,
        sample_id=samples.sample_ids[row],
        sha256=samples.hex(row),
        label=names[label],
        class_=label,
        source=samples.sources[row],
        flags=flags,
        decision=choice.kind if choice else None,
        new_label=(choice.new_label or None) if choice else None,
        tags=list(state.tags.tags.get(row, ())),
        shown=state.library.is_shown(row),
        **state.library.words_of(row),
        **found,  # type: ignore[arg-type]
    )


BINS = 20
PAIRS = 50  # pairs of labels that are listed
FLAGS: tuple[Flag, ...] = ("wrong", "foreign", "bad", "ambiguous", "conflict", "duplicate")


class Samples(BaseModel):
    """One page of a list of samples."""

    total: int
    offset: int
    scores: bool
    items: list[SampleRecord]


class Same(BaseModel):
    """Samples of equal content."""

    items: list[SampleRecord]


class Paging(Strict):
    """Which part of a list."""

    offset: Annotated[int, Field(ge=0, lt=2**53), DIGITS] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE), DIGITS] = 50


class GroupsWanted(Paging):
    """The parameters of GET /groups."""

    conflict: bool | None = None


class TestWanted(Paging):
    """The parameters of GET /test."""

    class_: Annotated[int | None, Field(alias="class", ge=0, lt=2**53), DIGITS] = None

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Group(BaseModel):
    """Samples of one picture."""

    group: int
    exact: bool
    conflict: bool
    samples: list[SampleRecord]


class Groups(BaseModel):
    """One page of duplicate groups."""

    total: int
    offset: int
    items: list[Group]


class Histograms(BaseModel):
    """How many samples have a score in each of 20 equal parts of 0..1."""

    issue: list[int]
    mislabel: list[int]
    anomaly: list[int]
    typicality: list[int]


class ClassIssues(Label):
    """What was found among the samples of a class."""

    samples: int
    wrong: int
    foreign: int
    bad: int
    ambiguous: int
    conflict: int
    duplicate: int
    decided: int


class Suggestions(BaseModel):
    """How many labels of a class look like another."""

    class_: Annotated[int, Field(alias="class")]
    suggested: int
    samples: int

    model_config = ConfigDict(populate_by_name=True)


class Summary(BaseModel):
    """What was found in all; nothing where the scores are not computed."""

    scores: bool
    flagged: Interval | None = None
    expected_wrong: float | None = None
    certainly_wrong: int | None = None
    most_wrong: int | None = None
    cannot_tell: str | None = None
    suspects: int | None = None
    kinds: dict[Flag, int] = {}
    duplicate_groups: int | None = None
    conflicts: int | None = None
    histograms: Histograms | None = None
    classes: list[ClassIssues] = []
    suggestions: list[Suggestions] = []


class TestRecord(Label, Words):
    """A sample of the test split."""

    position: int
    sample_id: str
    sha256: str


class Tests(BaseModel):
    """One page of the test split."""

    total: int
    offset: int
    items: list[TestRecord]


def data_routes(state: State) -> APIRouter:
    """GET /samples, /samples/{sha256}, /groups, /summary, /test."""
    routes = router("data")

    @routes.get("/samples", responses=gives(404, 409))
    async def samples(wanted: Annotated[Wanted, Query()]) -> Samples:
        """Training samples, filtered and sorted; one page of them."""
        rows = await asyncio.to_thread(chosen, state, wanted)
        items = sample_records(state, rows[wanted.offset : wanted.offset + wanted.limit])
        return Samples(total=len(rows), offset=wanted.offset, scores=scores_of(state) is not None, items=items)

    @routes.get("/samples/{sha256}", responses=gives(404))
    async def sample(sha256: Annotated[Hash, Path()]) -> Same:
        """All samples of this content."""
        places = state.library.places.get(sha256)
        if places is None:
            raise unknown("sample", "sha256")
        return Same(items=sample_records(state, np.array(places)))

    @routes.get("/groups", responses=gives(409))
    async def groups(wanted: Annotated[GroupsWanted, Query()]) -> Groups:
        """Samples that are there more than once, the largest groups first."""
        return await asyncio.to_thread(_groups, state, wanted)

    @routes.get("/summary", responses=gives())
    async def summary() -> Summary:
        """What was found among the samples in all."""
        return await asyncio.to_thread(_summary, state)

    @routes.get("/test", responses=gives())
    async def test(wanted: Annotated[TestWanted, Query()]) -> Tests:
        """The run's test split, to choose queries from."""
        return await asyncio.to_thread(_tests, state, wanted)

    return routes


def _groups(state: State, wanted: GroupsWanted) -> Groups:
    scores = scores_of(state)
    if scores is None:
        raise not_ready("scores")
    fits = (scores.group >= 0) & ~state.served.run.samples.withheld
    if wanted.conflict is not None:
        fits &= scores.conflict == wanted.conflict
    numbers, sizes = np.unique(scores.group[fits], return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    items = []
    for number in numbers[order][wanted.offset : wanted.offset + wanted.limit]:
        rows = np.flatnonzero(fits & (scores.group == number))
        items.append(
            Group(
                group=int(number),
                exact=bool(scores.exact[rows].all()),
                conflict=bool(scores.conflict[rows].any()),
                samples=sample_records(state, rows[:PAGE]),
            )
        )
    return Groups(total=len(numbers), offset=wanted.offset, items=items)


def _summary(state: State) -> Summary:
    scores = scores_of(state)
    if scores is None:
        return Summary(scores=False)
    known = scores.known & ~state.served.run.samples.withheld
    wrong = scores.mislabel[known]
    groups = scores.group[known]
    return Summary(
        scores=True,
        flagged=Interval(**share_flagged(int((wrong >= FLAGGED).sum()), len(wrong), scores.cannot_tell).to_json()),
        expected_wrong=None if scores.cannot_tell else rounded(float(wrong.sum()), 3),
        certainly_wrong=scores.certain,
        most_wrong=scores.most,
        cannot_tell=scores.cannot_tell or None,
        suspects=int(flagged(state, "suspect")[known].sum()),
        kinds={name: int(flagged(state, name)[known].sum()) for name in FLAGS},
        duplicate_groups=len(np.unique(groups[groups >= 0])),
        conflicts=len(np.unique(groups[scores.conflict[known]])),
        histograms=Histograms(**{name: _histogram(getattr(scores, name)[known]) for name in SCORED}),
        classes=_issues(state),
        suggestions=_suggestions(state, scores),
    )


def _issues(state: State) -> list[ClassIssues]:
    samples = state.served.run.samples
    masks: dict[str, np.ndarray] = {name: flagged(state, name) for name in FLAGS}
    masks |= {"decided": state.decisions.mask("any")}
    there, n = ~samples.withheld, len(samples.class_names)
    counts = {name: np.bincount(samples.labels[there & mask], minlength=n) for name, mask in masks.items()}
    sizes = np.bincount(samples.labels[there], minlength=n)
    return [
        ClassIssues(
            class_=c, label=name, samples=int(sizes[c]), **{key: int(found[c]) for key, found in counts.items()}
        )
        for c, name in enumerate(samples.class_names)
    ]


def _suggestions(state: State, scores: Scores) -> list[Suggestions]:
    """The most frequent first."""
    labels = state.served.run.samples.labels
    fits = flagged(state, "mislabel") & ~state.served.run.samples.withheld
    fits &= (scores.suggested >= 0) & (scores.suggested != labels) & (not scores.cannot_tell)
    found = Counter(zip(labels[fits].tolist(), scores.suggested[fits].tolist(), strict=True))
    return [Suggestions(class_=given, suggested=other, samples=n) for (given, other), n in found.most_common(PAIRS)]


def _histogram(values: np.ndarray) -> list[int]:
    counts: list[Any] = np.histogram(values, BINS, (0.0, 1.0))[0].tolist()
    return counts


def _tests(state: State, wanted: TestWanted) -> Tests:
    test, hidden = state.served.test, state.library.hidden_tests
    if test is None:
        return Tests(total=0, offset=wanted.offset, items=[])
    table = test.samples
    rows = np.arange(len(test)) if wanted.class_ is None else np.flatnonzero(table.labels == wanted.class_)
    if hidden:
        rows = rows[[int(row) not in hidden for row in rows]]
    items = [
        TestRecord(
            position=row,
            sample_id=table.sample_ids[row],
            sha256=table.hex(row),
            class_=int(table.labels[row]),
            label=test.class_names[int(table.labels[row])],
            **state.library.words(state.library.test(row)),
        )
        for row in rows[wanted.offset : wanted.offset + wanted.limit].tolist()
    ]
    return Tests(total=len(rows), offset=wanted.offset, items=items)
