"""Train again: decisions, and suggestions that are certain enough, in a new run beside this one; and back again."""

from __future__ import annotations

import asyncio
import glob
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field

from provnet.base.errors import ProvnetError
from provnet.samples.decisions import Decision
from provnet.tools.debug.compute import DROP, FLAGGED
from provnet.tools.debug.fix import fix, undo
from provnet_app.data_api import scores_of
from provnet_app.jobs import LEVELS, Progress
from provnet_app.limits import LISTED
from provnet_app.routes import BODY, NUMBER, Interval, Strict, gives, router
from provnet_app.security import ApiError
from provnet_app.served import Served, hashes
from provnet_app.state import State

MARK = "-fixed"  # behind the name of the run


class Ask(Strict):
    """What to apply: decisions; with a certainty also suggestions where nobody has decided; and what to leave out."""

    certainty: Annotated[float, Field(ge=LEVELS[0], le=LEVELS[-1]), NUMBER] | None = None
    leave_out: Annotated[bool, Field(strict=True)] = False


class Counted(BaseModel):
    """How many samples a choice changes: by suggestions of a certainty, or null for decisions alone."""

    certainty: float | None
    relabel: int
    drop: int


class Change(BaseModel):
    """A sample that has another label in the new run, or is not in it."""

    sample_id: str
    sha256: str
    decision: str
    label: str
    new: str


class Differs(BaseModel):
    """A test sample that the two runs answer differently; its position where the app knows it."""

    position: int | None
    sample_id: str
    sha256: str | None
    label: str
    before: str
    after: str


class Outcome(BaseModel):
    """The new run and what changed; the accuracies are of the same test samples, by the labels that they have.

    `beside` says whether its answers are shown beside those of this run.
    """

    name: str
    beside: bool
    relabelled: int
    dropped: int
    before: Interval
    after: Interval
    difference: Interval
    tested: int
    changes: list[Change]
    answers: list[Differs]


class Again(BaseModel):
    """What training again would apply, how far it is, and what came of it."""

    job: Progress
    choices: list[Counted]
    doubtful: int
    made: Outcome | None


def again_routes(state: State) -> APIRouter:
    """GET, POST and DELETE /again."""
    routes = router("again")
    _find(state)

    @routes.get("/again", responses=gives())
    async def look() -> Again:
        """What would be applied, how far training is, and what came of it."""
        return await asyncio.to_thread(_look, state)

    @routes.post("/again", status_code=202, responses=gives(409, *BODY))
    async def start(given: Ask) -> Again:
        """Train again beside this run, from a copy of its data description; neither it nor the data are written to."""
        chosen = await asyncio.to_thread(decisions, state, given.certainty, given.leave_out)
        if not any(one.kind != "keep" for one in chosen):
            words = "nothing would change: relabel or drop a sample, or apply suggestions"
            raise ApiError(409, "not_ready", words, "certainty")
        state.jobs.launch("again", lambda: _train(state, chosen))
        return await asyncio.to_thread(_look, state)

    @routes.delete("/again", responses=gives(409))
    async def back() -> Again:
        """Remove the new run; the one before and all decisions are as they were."""
        await asyncio.to_thread(_undo, state)
        return await asyncio.to_thread(_look, state)

    return routes


def decisions(state: State, certainty: float | None = None, leave_out: bool = False) -> list[Decision]:
    """What is applied: what people decided; then suggestions, and drops of what is doubtful, where nobody did."""
    book, samples, scores = state.decisions, state.served.run.samples, scores_of(state)
    book.refresh()
    found = book.rows()
    if scores is None or (certainty is None and not leave_out):
        return found
    free = ~book.mask("any") & ~samples.withheld & scores.known
    changed = free & (scores.sure >= np.float32(2 if certainty is None else certainty))
    for row in np.flatnonzero(changed).tolist():
        other = int(scores.suggested[row])
        kind, label = ("drop", "") if other == DROP else ("relabel", samples.class_names[other])
        found.append(Decision(samples.sample_ids[row], samples.hex(row), kind, label))
    for row in np.flatnonzero(_doubtful(state) & ~changed).tolist() if leave_out else []:
        found.append(Decision(samples.sample_ids[row], samples.hex(row), "drop"))
    return found


def _doubtful(state: State) -> np.ndarray:
    """(N,) bool: samples that probably have a wrong label or belong to no class, and that nobody has decided about."""
    scores, samples = scores_of(state), state.served.run.samples
    if scores is None:
        return np.zeros(len(samples), dtype=np.bool_)
    suspicious = (scores.mislabel >= FLAGGED) | (scores.anomaly >= FLAGGED)
    return np.asarray(suspicious & ~state.decisions.mask("any") & ~samples.withheld)


def _look(state: State) -> Again:
    levels = [None, *(LEVELS if scores_of(state) is not None else ())]
    made = state.jobs.result("again")
    return Again(
        job=state.jobs.progress["again"],
        choices=[_counted(level, decisions(state, level)) for level in levels],
        doubtful=int(_doubtful(state).sum()),
        made=_outcome(state, *made) if made is not None else None,
    )


def _counted(level: float | None, chosen: list[Decision]) -> Counted:
    kinds = [one.kind for one in chosen]
    return Counted(certainty=level, relabel=kinds.count("relabel"), drop=kinds.count("drop"))


def _find(state: State) -> None:
    """The run that was made of this one before the server was started, the newest where there are several."""
    folder = state.served.folder
    if folder is None:
        return
    here = folder.resolve()
    for out in sorted(here.parent.glob(f"{glob.escape(here.name)}{MARK}*"), key=lambda path: -path.stat().st_mtime):
        try:
            before, about = undo(out)
        except ProvnetError:
            continue
        if before == here:
            state.jobs.have("again", (out, about))
            return


def _train(state: State, chosen: list[Decision]) -> tuple[Path, Mapping[str, Any]]:
    served = state.served
    assert served.folder is not None, "the job cannot be done without"
    here = served.folder.resolve()
    names = [f"{here.name}{MARK}", *(f"{here.name}{MARK}-{number}" for number in range(2, 1000))]
    out = next(path for path in (here.parent / name for name in names) if not path.exists())
    device = str(next(served.run.network.parameters()).device)
    try:
        found = fix(served.run, out, decisions=chosen, device=device)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)  # half a run is of no use to anybody
        raise
    beside = Served(run=found.run, name=out.name, folder=out, test=served.test, opened=hashes(out))
    _put_beside(state, beside)
    return out, found.to_json()


def _put_beside(state: State, beside: Served | None) -> None:
    """Show the answers of another run, or of none, beside those of this one."""
    state.served = state.jobs.served = replace(state.served, beside=beside)
    state.jobs.forget("answers")


def _undo(state: State) -> None:
    made = state.jobs.result("again")
    if made is None:
        raise ApiError(409, "not_ready", "no run was trained again here")
    out = made[0]
    try:
        undo(out)  # refuses what this run was not made into
    except ProvnetError as error:
        raise ApiError(409, "not_ready", str(error)) from None
    state.jobs.forget("again")
    if state.served.beside is not None and state.served.beside.folder == out:
        _put_beside(state, None)
    shutil.rmtree(out)


def _outcome(state: State, out: Path, about: Mapping[str, Any]) -> Outcome:
    test, beside = state.served.test, state.served.beside
    places = {} if test is None else test.samples.id_places
    shown = [(one, places.get(one["sample_id"])) for one in about["answers_changed"]]
    shown = [(one, at) for one, at in shown if at not in state.library.hidden_tests]
    return Outcome(
        name=out.name,
        beside=beside is not None and beside.folder == out,
        relabelled=about["relabelled"],
        dropped=about["dropped"],
        before=Interval(**about["before"]),
        after=Interval(**about["after"]),
        difference=Interval(**about["difference"]),
        tested=about["before"]["n"],
        changes=[Change(**one) for one in about["changes"][:LISTED]],
        answers=[
            Differs(position=at, sha256=None if test is None or at is None else test.samples.hex(at), **one)
            for one, at in shown[:LISTED]
        ],
    )
