"""Jobs over HTTP: which costly things are computed, how far they are; and the exchange of the token for a session."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, StringConstraints
from starlette.responses import Response

from provnet.app.fields import Strict
from provnet.app.jobs import JobState, Progress
from provnet.app.routes import BODY, gives, router
from provnet.app.state import State

JobName = Literal["scores", "map", "membership"]


class Job(BaseModel):
    """One job; `can` is false where it cannot be done, and `why` says why."""

    name: JobName
    state: JobState
    done: int
    total: int
    words: str
    seconds: float
    error: str | None
    can: bool
    why: str


class JobList(BaseModel):
    """All jobs."""

    jobs: list[Job]


class TokenGiven(Strict):
    """The token out of the address that the command printed."""

    token: Annotated[str, StringConstraints(min_length=1, max_length=200)]


def job_routes(state: State) -> APIRouter:
    """GET /jobs, POST /jobs/{name}."""
    routes = router("jobs")

    @routes.get("/jobs", responses=gives())
    async def jobs() -> JobList:
        """How far everything is."""
        return JobList(jobs=[_job(one) for one in state.jobs.progress.values()])

    @routes.post("/jobs/{name}", status_code=202, responses=gives(404))
    async def start(name: JobName) -> Job:
        """Start a job, unless it runs or is done."""
        return _job(state.jobs.start(name))

    return routes


def session_routes(state: State) -> APIRouter:
    """POST /session."""
    routes = router("session")

    @routes.post("/session", status_code=204, response_class=Response, responses=gives(*BODY))
    async def session(given: TokenGiven) -> Response:
        """Exchange the token for a cookie that scripts cannot read."""
        if not state.keys.is_token(given.token):
            raise state.keys.refuse_token()
        return Response(status_code=204, headers={"Set-Cookie": state.keys.set_cookie()})

    return routes


def _job(progress: Progress) -> Job:
    return Job(**vars(progress))
