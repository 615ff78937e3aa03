"""Map: where the samples lie, where a query belongs, and selections that filter the list and are given out as CSV."""

from __future__ import annotations

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from provnet.samples.csvfile import csv_text, quoted
from provnet_app.data_api import scores_of
from provnet_app.explain_api import ByHash, ByPixels, ByTest, distorted, find
from provnet_app.jobs import Map
from provnet_app.routes import BODY, WHOLE, Label, Named, Strict, csv_reply, gives, naming, rounded, router
from provnet_app.security import ApiError, not_ready, unknown
from provnet_app.state import State

SelectionId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
NEAR = 10  # samples that place a query
REACH = 0.1  # of the map: how far from the middle one they may lie to count


class ClusterRecord(BaseModel):
    """A group of samples inside a class."""

    class_: Annotated[int, Field(alias="class")]
    cluster: int
    samples: int
    nearest: list[str]

    model_config = {"populate_by_name": True}


class Misattributed(Label):
    """A test sample whose first exemplar is of another class."""

    position: int
    sha256: str
    x: float
    y: float
    predicted: str


class MapRecord(BaseModel):
    """All points; the same place in every list is the same sample."""

    n: int
    engine: str
    x: list[float]
    y: list[float]
    index: list[int]
    class_: Annotated[list[int], Field(alias="class")]
    cluster: list[int]
    mislabel: list[float] | None
    anomaly: list[float] | None
    typicality: list[float] | None
    clusters: list[ClusterRecord]
    misattributed: list[Misattributed]
    withheld: int
    left_out: int

    model_config = {"populate_by_name": True}


class Near(Named):
    """A sample that places a query."""

    share: float


class Place(BaseModel):
    """Where a query belongs."""

    x: float
    y: float
    near: list[Near]


class Select(Strict):
    """Samples by their positions."""

    index: Annotated[list[Annotated[int, Field(ge=0, lt=2**53), WHOLE]], Field(min_length=1, max_length=500_000)]


class Selected(BaseModel):
    """A selection and how many samples are in it."""

    selection: str
    samples: int


def map_routes(state: State) -> APIRouter:
    """GET /map, /map/hashes; POST /map/place, /selections; GET /selections/{id}.csv."""
    routes = router("map")

    @routes.get("/map", responses=gives(409))
    async def whole() -> MapRecord:
        """All points of the map."""
        return await asyncio.to_thread(_record, state, _map(state))

    @routes.get(
        "/map/hashes",
        response_class=Response,
        responses=gives(409, kind="application/octet-stream", words="32 bytes a point"),
    )
    async def hashes() -> Response:
        """The SHA-256 of every point's sample, 32 bytes each, in the order of /map."""
        content = state.served.run.samples.sha256[_map(state).index].tobytes()
        return Response(content, media_type="application/octet-stream")

    @routes.post("/map/place", responses=gives(404, 409, *BODY))
    async def place(asked: ByHash | ByTest | ByPixels) -> Place:
        """Where a query belongs: among the samples that are named for it."""
        found = _map(state)
        image = distorted(find(state, asked).image, asked.distort)
        answer = await state.engine.explain(image, NEAR, asked.weights)
        return _placed(state, found, answer.index, answer.weight)

    @routes.post("/selections", responses=gives(*BODY, 404))
    async def select(given: Select) -> Selected:
        """Remember some samples, to filter the list by."""
        index = np.unique(np.array(given.index, dtype=np.int64))
        samples = state.served.run.samples
        if index[-1] >= len(samples) or samples.withheld[index].any():
            raise ApiError(404, "unknown_hash", f"samples are counted from 0 to {len(samples) - 1}", "index")
        return Selected(selection=state.selections.add(index), samples=len(index))

    @routes.get(
        "/selections/{selection}.csv",
        response_class=Response,
        responses=gives(404, kind="text/csv", words="sample_id,sha256,label"),
    )
    async def selection_csv(selection: Annotated[SelectionId, Path()]) -> Response:
        """A selection as a CSV file."""
        index = state.selections.find(selection)
        if index is None:
            raise unknown("selection", "selection")
        return csv_reply(await asyncio.to_thread(_csv, state, index), "selection.csv")

    return routes


def _map(state: State) -> Map:
    found = state.jobs.result("map")
    if not isinstance(found, Map):
        raise not_ready("map")
    return found


def _record(state: State, found: Map) -> MapRecord:
    samples, test, scores = state.served.run.samples, state.served.test, scores_of(state)
    hidden = state.library.hidden_tests

    def column(name: str) -> list[float] | None:
        return None if scores is None else _few(np.maximum(getattr(scores, name)[found.index], 0))

    wrong = zip(found.test.tolist(), found.test_xy.tolist(), found.test_class.tolist(), strict=True)
    return MapRecord(
        n=len(found.index),
        engine=found.engine,
        x=_few(found.xy[:, 0]),
        y=_few(found.xy[:, 1]),
        index=found.index.tolist(),
        class_=samples.labels[found.index].tolist(),
        cluster=found.cluster.tolist(),
        mislabel=column("mislabel"),
        anomaly=column("anomaly"),
        typicality=column("typicality"),
        clusters=[
            ClusterRecord(
                class_=row[0], cluster=row[1], samples=row[2], nearest=[samples.hex(i) for i in row[3:] if i >= 0]
            )
            for row in found.groups.tolist()
        ],
        misattributed=[
            Misattributed(
                position=position,
                sha256=test.samples.hex(position),
                x=rounded(xy[0], 4),
                y=rounded(xy[1], 4),
                class_=int(test.samples.labels[position]),
                label=test.class_names[int(test.samples.labels[position])],
                predicted=samples.class_names[predicted],
            )
            for position, xy, predicted in wrong
            if test is not None and position not in hidden
        ],
        withheld=int(samples.withheld.sum()),
        left_out=found.left_out,
    )


def _few(values: np.ndarray) -> list[float]:
    """Four digits each."""
    found: list[float] = np.round(values.astype(np.float64), 4).tolist()
    return found


def _placed(state: State, found: Map, index: np.ndarray, weight: np.ndarray) -> Place:
    """The weighted middle of the samples that are named, without those that lie elsewhere on the map."""
    samples = state.served.run.samples
    row = np.full(len(samples), -1, dtype=np.int64)
    row[found.index] = np.arange(len(found.index))
    on_map = row[index] >= 0
    index, weight = index[on_map], weight[on_map] + 1e-9
    if len(index) == 0:
        raise ApiError(409, "not_ready", "none of the samples that are named for this query is on the map")
    xy = found.xy[row[index]].astype(np.float64)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=2)
    middle = int((apart * weight[None]).sum(1).argmin())
    close = apart[middle] <= REACH
    x, y = (xy[close] * weight[close, None]).sum(0) / weight[close].sum()
    near = [
        Near(**naming(samples, int(i)), share=rounded(float(w), state.digits))
        for i, w in zip(index, weight, strict=True)
    ]
    return Place(x=rounded(float(x), 4), y=rounded(float(y), 4), near=near)


def _csv(state: State, index: np.ndarray) -> bytes:
    samples = state.served.run.samples
    rows = [["sample_id", "sha256", "label"]]
    for i in index.tolist():
        label = samples.class_names[int(samples.labels[i])]
        rows.append([quoted(samples.sample_ids[i]), samples.hex(i), quoted(label)])
    return csv_text(rows).encode("utf-8", "backslashreplace")
