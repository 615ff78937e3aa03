"""Jobs over HTTP: which costly things are computed, how far they are; and the exchange of the token for a session."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from provnet_app.jobs import JobState, Progress
from provnet_app.routes import gives, router
from provnet_app.state import State

JobName = Literal["answers", "features", "scores", "map", "membership"]


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

    @routes.post("/session", status_code=204, response_class=Response, responses=gives())
    async def session() -> Response:
        """Exchange the token for a cookie that scripts cannot read."""
        return Response(status_code=204, headers={"Set-Cookie": state.keys.set_cookie()})

    return routes


def _job(progress: Progress) -> Job:
    return Job(**vars(progress))
