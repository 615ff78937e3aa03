"""Data: training samples with their scores, duplicate groups, a summary; the test split."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from provnet.tools.debug.compute import FLAGGED, share_flagged
from provnet_app.fields import DIGITS, Hash, Interval, Label, Strict, rounded
from provnet_app.jobs import Scores
from provnet_app.limits import PAGE
from provnet_app.routes import gives, router
from provnet_app.sample_query import ODD, SCORED, SampleRecord, Wanted, chosen, flagged, sample_records, scores_of
from provnet_app.security import not_ready, unknown
from provnet_app.state import State

BINS = 20
PAIRS = 50  # pairs of labels that are listed
FLAGS = ("mislabel", "anomaly", "duplicate", "conflict")


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

    mislabel: list[int]
    anomaly: list[int]
    typicality: list[int]


class ClassIssues(Label):
    """What was found among the samples of a class."""

    samples: int
    mislabel: int
    anomaly: int
    duplicate: int
    conflict: int
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
    odd: int | None = None
    duplicate_groups: int | None = None
    conflicts: int | None = None
    histograms: Histograms | None = None
    classes: list[ClassIssues] = []
    suggestions: list[Suggestions] = []


class TestRecord(Label):
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
        odd=int((scores.anomaly[known] >= ODD).sum()),
        duplicate_groups=len(np.unique(groups[groups >= 0])),
        conflicts=len(np.unique(groups[scores.conflict[known]])),
        histograms=Histograms(**{name: _histogram(getattr(scores, name)[known]) for name in SCORED}),
        classes=_issues(state),
        suggestions=_suggestions(state, scores),
    )


def _issues(state: State) -> list[ClassIssues]:
    samples = state.served.run.samples
    masks = {name: flagged(state, name) for name in FLAGS} | {"decided": state.decisions.mask("any")}
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
        )
        for row in rows[wanted.offset : wanted.offset + wanted.limit].tolist()
    ]
    return Tests(total=len(rows), offset=wanted.offset, items=items)
