"""Decisions over HTTP: made, taken back, listed, and given out as the file that `provnet train --apply` takes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from provnet_app.fields import Hash, Name, Strict
from provnet_app.limits import DECIDED, LISTED, TAG
from provnet_app.routes import BODY, gives, router
from provnet_app.security import ApiError
from provnet_app.state import Choice, State


class SampleName(Strict):
    """A sample by its id and the hash of its content."""

    sample_id: Name
    sha256: Hash


class Decide(Strict):
    """Keep or drop samples, or forget what was decided about them."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    decision: Literal["keep", "drop", "clear"]


class Relabel(Strict):
    """Give samples another label."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    decision: Literal["relabel"]
    new_label: Name


class Decided(BaseModel):
    """One decision."""

    index: int
    sample_id: str
    sha256: str
    decision: str
    new_label: str | None


class Counts(BaseModel):
    """Samples of each kind of decision."""

    keep: int
    relabel: int
    drop: int


class Decisions(BaseModel):
    """What is decided; `saved` is false where it is lost with the server, each change gives another `revision`."""

    total: int
    revision: int
    undo: int
    redo: int
    saved: bool
    counts: Counts
    items: list[Decided]


class Tag(Strict):
    """Give samples a tag, or take it away."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    tag: Annotated[Name, Field(max_length=TAG)]
    on: Annotated[bool, Field(strict=True)] = True


class TagCount(BaseModel):
    """A tag and how many samples have it."""

    tag: str
    samples: int


class Tags(BaseModel):
    """All tags; `saved` is false where they are lost with the server."""

    saved: bool
    items: list[TagCount]


def decision_routes(state: State) -> APIRouter:
    """GET and POST /decisions, undo, redo, /decisions.csv; GET and POST /tags."""
    routes, book = router("decisions"), state.decisions

    @routes.get("/decisions", responses=gives())
    async def decisions() -> Decisions:
        """All decisions."""
        await asyncio.to_thread(book.refresh)
        return _record(state, listed=True)

    @routes.post("/decisions", responses=gives(404, *BODY))
    async def decide(given: Decide | Relabel) -> Decisions:
        """Decide about some samples; one step that can be undone."""
        choice = None if given.decision == "clear" else Choice(given.decision)
        if isinstance(given, Relabel):
            if given.new_label not in book.samples.class_names:
                raise ApiError(422, "invalid", "new_label must be the name of a class of this run", "new_label")
            choice = Choice("relabel", given.new_label)
        places = [book.place(one.sample_id, one.sha256) for one in given.items]
        await asyncio.to_thread(book.decide, places, choice)
        return _record(state)

    @routes.post("/decisions/undo", responses=gives(409))
    async def undo() -> Decisions:
        """Take the last step back."""
        await asyncio.to_thread(book.undo)
        return _record(state)

    @routes.post("/decisions/redo", responses=gives(409))
    async def redo() -> Decisions:
        """Do the last undone step again."""
        await asyncio.to_thread(book.undo, forward=True)
        return _record(state)

    @routes.get(
        "/decisions.csv", response_class=Response, responses=gives(kind="text/csv", words="for `provnet train --apply`")
    )
    async def decisions_csv() -> Response:
        """All decisions as a CSV file."""
        await asyncio.to_thread(book.refresh)
        return csv_reply(book.csv(), "decisions.csv")

    @routes.get("/tags", responses=gives())
    async def tags() -> Tags:
        """All tags."""
        await asyncio.to_thread(state.tags.refresh)
        return _tags(state)

    @routes.post("/tags", responses=gives(404, *BODY))
    async def tag(given: Tag) -> Tags:
        """Give some samples a tag, or take it away."""
        places = [book.place(one.sample_id, one.sha256) for one in given.items]
        await asyncio.to_thread(state.tags.change, places, given.tag, on=given.on)
        return _tags(state)

    return routes


def _tags(state: State) -> Tags:
    found = state.tags.counts().items()
    return Tags(saved=state.tags.saved, items=[TagCount(tag=tag, samples=samples) for tag, samples in found])


def csv_reply(content: bytes, name: str) -> Response:
    """A CSV file to be saved."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Type": "text/csv; charset=utf-8"}
    return Response(content, headers=headers)


def _record(state: State, *, listed: bool = False) -> Decisions:
    book = state.decisions
    undo, redo = book.steps
    samples = book.samples
    items = [
        Decided(
            index=place,
            sample_id=samples.sample_ids[place],
            sha256=samples.hex(place),
            decision=choice.kind,
            new_label=choice.new_label or None,
        )
        for place, choice in (sorted(book.choices.items())[:LISTED] if listed else [])
    ]
    return Decisions(
        total=len(book.choices),
        revision=book.revision,
        undo=undo,
        redo=redo,
        saved=book.saved,
        counts=Counts(**book.counts()),
        items=items,
    )
