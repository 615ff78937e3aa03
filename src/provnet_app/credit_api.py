"""Credit: whose samples stand behind the answers to some queries; contributors from the run or from a file."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from provnet.tools.credit.compute import Contributors, Credit, contributors_of, credit
from provnet_app.data_api import Paging
from provnet_app.engine import stacked
from provnet_app.limits import BATCH, CREDITED
from provnet_app.routes import (
    BODY,
    CSV,
    WHOLE,
    Hash,
    Interval,
    Named,
    Strict,
    Weights,
    Words,
    gives,
    naming,
    raw_body,
    router,
    takes,
)
from provnet_app.security import ApiError
from provnet_app.state import State

TOP = 8  # contributors whose samples are listed
SAMPLES = 5


class Person(BaseModel):
    """A contributor and how many samples are theirs."""

    name: str
    samples: int


class People(BaseModel):
    """One page of the contributors."""

    known: bool
    about: str
    unlisted: int
    strangers: int
    total: int
    items: list[Person]


class Counting(Strict):
    """Which weights are counted: the k largest of each query, 0 for all."""

    k: Annotated[int, Field(ge=0, le=2**31), WHOLE] = 0
    weights: Weights = "plain"


class CreditKnown(Counting):
    """Queries by their hashes."""

    sha256: Annotated[list[Hash], Field(min_length=1, max_length=BATCH)]


class Span(Strict):
    """A part of the test split."""

    first: Annotated[int, Field(ge=0, lt=2**53), WHOLE] = 0
    count: Annotated[int, Field(ge=1, le=CREDITED), WHOLE]


class CreditTest(Counting):
    """Queries from the run's test split."""

    test: Span


class Ranked(BaseModel):
    """The credit of one contributor."""

    name: str
    listed: bool
    samples: int
    share: Interval
    rank: int
    rank_low: int
    rank_high: int
    first: float
    lift: float | None


class Credited(Named, Words):
    """A sample with its share of all credit."""

    share: float


class Leading(BaseModel):
    """The samples of a contributor that have the most credit."""

    name: str
    samples: list[Credited]


class CreditRecord(BaseModel):
    """Whose samples stand behind the answers."""

    queries: int
    supported: int
    unsupported: int
    unnamed: int
    withheld: int
    counted: str
    k: int
    weights: str
    contributors: list[Ranked]
    gini: Interval
    gini_samples: float
    lorenz: list[list[float]]
    lorenz_samples: list[list[float]]
    top: list[Leading]


def credit_routes(state: State) -> APIRouter:
    """GET /credit/contributors, POST and DELETE /credit/sources, POST /credit."""
    routes = router("credit")

    @routes.get("/credit/contributors", responses=gives())
    async def contributors(wanted: Annotated[Paging, Query()]) -> People:
        """Who contributed samples, those with the most first."""
        return _people(state, wanted)

    @routes.post("/credit/sources", responses=gives(*BODY), openapi_extra=takes(CSV))
    async def sources(request: Request) -> People:
        """Say who contributed which sample: a CSV file with sample_id,contributor."""
        blob = await raw_body(request, CSV)
        state.people = await asyncio.to_thread(_read, state, blob)
        return _people(state, Paging())

    @routes.delete("/credit/sources", responses=gives())
    async def forget() -> People:
        """Forget the file; the run's own contributors hold again, if it has any."""
        state.people = state.own_people
        return _people(state, Paging())

    @routes.post("/credit", responses=gives(404, 409, *BODY))
    async def share(given: CreditKnown | CreditTest) -> CreditRecord:
        """Share the credit for the answers to some queries."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(state.desk, _credit, state, given)

    return routes


def _read(state: State, blob: bytes) -> Contributors:
    with tempfile.TemporaryDirectory(prefix="provnet-") as folder:  # the reader takes a file; the name is ours
        path = Path(folder, "sources.csv")
        path.write_bytes(blob)
        return contributors_of(state.served.run.samples, path)


def _people(state: State, wanted: Paging) -> People:
    people = state.people
    if people is None:
        return People(known=False, about="", unlisted=0, strangers=0, total=0, items=[])
    active = state.library.active
    counts = Counter(name for i in active.tolist() if (name := people.names[i]) is not None)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    page = ordered[wanted.offset : wanted.offset + wanted.limit]
    return People(
        known=True,
        about=people.about,
        unlisted=len(active) - sum(counts.values()),
        strangers=people.strangers,
        total=len(ordered),
        items=[Person(name=name, samples=count) for name, count in page],
    )


def _credit(state: State, given: CreditKnown | CreditTest) -> CreditRecord:
    people = state.people
    if people is None:
        raise ApiError(409, "not_ready", "nobody said who contributed the samples: POST /api/v1/credit/sources")
    if isinstance(given, CreditKnown):
        known = [state.library.find(key) for key in given.sha256]
    else:
        last = 0 if state.served.test is None else len(state.served.test)
        places = range(given.test.first, min(given.test.first + given.test.count, last))
        known = [state.library.test(place) for place in places if place not in state.library.hidden_tests]
        if not known:
            raise ApiError(404, "unknown_hash", "the test split has no sample there", "test")
    images = stacked([one.image for one in known])
    found = credit(state.served.run, images, people.names, k=given.k, weights=given.weights)
    values = found.to_json()
    top = [
        Leading(name=one.name, samples=[_credited(state, found, int(i)) for i in found.top(place, SAMPLES)])
        for place, one in enumerate(found.ranking[:TOP])
    ]
    return CreditRecord(**values, top=top)


def _credited(state: State, found: Credit, place: int) -> Credited:
    return Credited(
        **naming(state.served.run.samples, place),
        **state.library.words_of(place),
        share=round(float(found.by_sample[place]), 6),
    )
