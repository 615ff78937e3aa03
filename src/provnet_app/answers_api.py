"""Answers to the test split: who is taken for whom, what another run says of the same; and samples alike a picture."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from provnet.answers.evaluation import own_classes
from provnet.tools.debug.fix import paired_difference
from provnet.tools.map.compute import index_features
from provnet_app.data_api import Paging, TestRecord
from provnet_app.engine import stacked
from provnet_app.explain_api import ByHash, ByPixels, ByTest, distorted, find, label_of
from provnet_app.jobs import Answers, unit
from provnet_app.limits import SIMILAR
from provnet_app.map_api import Selected
from provnet_app.routes import BODY, DIGITS, Interval, Label, Named, Words, gives, naming, rounded, router
from provnet_app.run_api import Measure, measures
from provnet_app.security import ApiError, not_ready
from provnet_app.state import State


class Cell(BaseModel):
    """How many test samples of a class are given another."""

    class_: Annotated[int, Field(alias="class")]
    predicted: int
    samples: int

    model_config = ConfigDict(populate_by_name=True)


class Confusion(BaseModel):
    """Which classes are taken for which, the most frequent first; cells that are not there are empty."""

    n: int
    right: int
    cells: list[Cell]


class AnswersWanted(Paging):
    """Which answers: by class, predicted class, whether they are right, and whether the run beside is."""

    class_: Annotated[int | None, Field(alias="class", ge=0, lt=2**53), DIGITS] = None
    predicted: Annotated[int | None, Field(ge=0, lt=2**53), DIGITS] = None
    right: bool | None = None
    beside_right: bool | None = None

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ExemplarName(Named, Words):
    """The training sample that is named first."""


class AnswerRecord(TestRecord):
    """A test sample with its answer, and the training sample that is named first."""

    predicted: Label
    confidence: float
    supported: bool
    first: ExemplarName
    beside: Label | None


class AnswerList(BaseModel):
    """One page of answers, the surest first."""

    total: int
    offset: int
    items: list[AnswerRecord]


class Both(BaseModel):
    """One setting or measure of both runs; null where one has none."""

    name: str
    this: str | None
    beside: str | None


class Pair(BaseModel):
    """One measure of both runs."""

    name: str
    group: str
    this: Measure | None
    beside: Measure | None


class SharedAnswers(BaseModel):
    """Test samples that both runs answer: right in both, in one alone, in none; and the gain with its interval."""

    n: int
    both: int
    this: int
    beside: int
    neither: int
    gain: Interval


class Comparison(BaseModel):
    """What differs between two runs."""

    name: str
    settings: list[Both]
    measures: list[Pair]
    answers: SharedAnswers | None


def answer_routes(state: State) -> APIRouter:
    """GET /confusion, /answers, /compare; POST /similar."""
    routes = router("answers")

    @routes.get("/confusion", responses=gives(409))
    async def confusion() -> Confusion:
        """Which classes are taken for which."""
        truth, found = _truth(state), _answers(state)
        n = len(state.served.run.samples.class_names)
        pairs, counts = np.unique(truth * n + found.predicted, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        cells = [Cell(class_=int(pairs[i] // n), predicted=int(pairs[i] % n), samples=int(counts[i])) for i in order]
        return Confusion(n=len(truth), right=int((truth == found.predicted).sum()), cells=cells)

    @routes.get("/answers", responses=gives(409))
    async def answers(wanted: Annotated[AnswersWanted, Query()]) -> AnswerList:
        """Test samples with their answers, the surest first."""
        return await asyncio.to_thread(_list, state, wanted)

    @routes.get("/compare", responses=gives(409))
    async def compare() -> Comparison:
        """What differs between this run and the one beside it."""
        return await asyncio.to_thread(_compared, state)

    @routes.post("/similar", responses=gives(404, 409, *BODY))
    async def similar(asked: ByHash | ByTest | ByPixels) -> Selected:
        """The training samples most like a picture, as a selection in this order."""
        features = state.jobs.result("features")
        if features is None or state.served.index is None:
            raise not_ready("features")
        image = distorted(find(state, asked).image, asked.distort)
        return await asyncio.get_running_loop().run_in_executor(state.desk, _similar, state, features, image)

    return routes


def _similar(state: State, features: np.ndarray, image: Any) -> Selected:
    query = unit(index_features(state.served.run, stacked([image])))[0].astype(np.float32)
    alike = np.concatenate([part.astype(np.float32) @ query for part in np.array_split(features, 16)])
    rows = np.argsort(-alike, kind="stable")
    index = np.asarray(state.served.index)[rows]
    index = index[~state.served.run.samples.withheld[index]][:SIMILAR]
    return Selected(selection=state.selections.add(index), samples=len(index))


def _answers(state: State) -> Answers:
    found = state.jobs.result("answers")
    if not isinstance(found, Answers):
        raise not_ready("answers")
    return found


def _truth(state: State) -> np.ndarray:
    """(m,) classes of the test samples by the numbers of the run."""
    if state.served.test is None:
        raise not_ready("answers")
    return own_classes(state.served.run, state.served.test).samples.labels


def _list(state: State, wanted: AnswersWanted) -> AnswerList:
    found, truth, test = _answers(state), _truth(state), state.served.test
    assert test is not None
    fits = np.ones(len(truth), dtype=np.bool_)
    fits[list(state.library.hidden_tests)] = False
    if wanted.class_ is not None:
        fits &= truth == wanted.class_
    if wanted.predicted is not None:
        fits &= found.predicted == wanted.predicted
    if wanted.right is not None:
        fits &= (found.predicted == truth) == wanted.right
    if wanted.beside_right is not None:
        fits &= (found.beside >= 0) & ((found.beside == truth) == wanted.beside_right)
    rows = np.flatnonzero(fits)
    rows = rows[np.argsort(-found.confidence[rows], kind="stable")]
    names, table = state.served.run.samples.class_names, test.samples
    items = [
        AnswerRecord(
            position=row,
            sample_id=table.sample_ids[row],
            sha256=table.hex(row),
            class_=int(truth[row]),
            label=names[int(truth[row])] if int(truth[row]) < len(names) else test.class_names[int(table.labels[row])],
            predicted=label_of(state, int(found.predicted[row])),
            confidence=rounded(float(found.confidence[row]), state.digits),
            supported=bool(found.supported[row]),
            first=ExemplarName(
                **naming(state.served.run.samples, int(found.first[row])),
                **state.library.words_of(int(found.first[row])),
            ),
            **state.library.words(state.library.test(row)),
            beside=label_of(state, int(found.beside[row])) if found.beside[row] >= 0 else None,
        )
        for row in rows[wanted.offset : wanted.offset + wanted.limit].tolist()
    ]
    return AnswerList(total=len(rows), offset=wanted.offset, items=items)


def _compared(state: State) -> Comparison:
    beside = state.served.beside
    if beside is None:
        raise ApiError(409, "not_ready", "no run is beside this one: provnet app RUN --beside OTHER")
    this, that = _facts(state.served.run), _facts(beside.run)
    figures = [
        {(one.name, one.group): one for one in measures(run.config.evaluation or {})}
        for run in (state.served.run, beside.run)
    ]
    return Comparison(
        name=beside.name,
        settings=[
            Both(name=name, this=this.get(name), beside=that.get(name))
            for name in dict.fromkeys([*this, *that])
            if this.get(name) != that.get(name)
        ],
        measures=[
            Pair(name=key[0], group=key[1], this=figures[0].get(key), beside=figures[1].get(key))
            for key in dict.fromkeys([*figures[0], *figures[1]])
        ],
        answers=_both(state),
    )


def _facts(run: Any) -> dict[str, str]:
    """Settings of a run in words, flat."""
    said: dict[str, str] = {"training samples": f"{len(run.samples):,}", "classes": f"{len(run.samples.class_names):,}"}
    parts = (vars(run.config.network), run.config.training, run.config.support)
    for name, value in (pair for part in parts for pair in part.items()):
        if not isinstance(value, dict):
            said[name.replace("_", " ")] = str(value)[:100]
    return said


def _both(state: State) -> SharedAnswers | None:
    found = state.jobs.result("answers")
    if not isinstance(found, Answers) or not (found.beside >= 0).any():
        return None
    there, truth = found.beside >= 0, _truth(state)
    ours, theirs = (found.predicted == truth)[there], (found.beside == truth)[there]
    n, only, other = len(ours), int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return SharedAnswers(
        n=n,
        both=int((ours & theirs).sum()),
        this=only,
        beside=other,
        neither=int((~ours & ~theirs).sum()),
        gain=Interval(**paired_difference(theirs, ours).to_json()),
    )
