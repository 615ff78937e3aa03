"""Membership: was a picture trained on, how sure is that, which sample is it; and how well the run tells at all."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from provnet.tools.membership.compute import SCORES
from provnet.tools.membership.member import Heldout, Membership, memberships
from provnet_app.engine import stacked
from provnet_app.jobs import Audited
from provnet_app.library import Known
from provnet_app.limits import BATCH
from provnet_app.routes import BODY, Hash, Interval, Label, Strict, Words, gives, router
from provnet_app.security import not_ready
from provnet_app.state import State


class Judged(Strict):
    """Pictures that are known here."""

    sha256: Annotated[list[Hash], Field(min_length=1, max_length=BATCH)]


class Match(Label, Words):
    """The training sample behind a verdict."""

    index: int
    sample_id: str
    sha256: str
    equal: int
    shown: bool


class Verdict(Words):
    """The verdict on one picture."""

    sha256: str
    origin: str
    verdict: str
    agrees: str
    match: Match | None
    score: str
    value: float | None
    p_value: float | None
    heldout: int
    missed: float | None
    why: str


class Verdicts(BaseModel):
    """Verdicts, in the order asked."""

    items: list[Verdict]


class At(Interval):
    """What is found at so many false alarms."""

    fpr: float


class Curve(BaseModel):
    """One score's ROC curve."""

    name: str
    words: str
    decides: bool
    auc: Interval
    points: list[list[float]]
    at: list[At]


class DistortedAuc(BaseModel):
    """The deciding score on distorted copies."""

    name: str
    auc: Interval


class Lookup(BaseModel):
    """The share of pictures whose hash is in the table."""

    members: Interval
    nonmembers: Interval


class Roc(BaseModel):
    """How well members are told from others."""

    score: str
    members: int
    nonmembers: int
    curves: list[Curve]
    distorted: list[DistortedAuc]
    lookup: dict[str, Lookup]
    null_auc: Interval


def membership_routes(state: State) -> APIRouter:
    """POST /membership, GET /membership/roc."""
    routes = router("membership")

    @routes.post("/membership", responses=gives(404, 409, *BODY))
    async def judge(given: Judged) -> Verdicts:
        """Say of pictures whether they were trained on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(state.desk, _verdicts, state, given.sha256)

    @routes.get("/membership/roc", responses=gives(409))
    async def roc() -> Roc:
        """The ROC curves of the run, and what they must be compared with."""
        found = state.jobs.result("membership")
        if not isinstance(found, Audited):
            raise not_ready("membership")
        return _roc(dict(found.values))

    return routes


def heldout_of(state: State) -> Heldout | None:
    """What verdicts are compared with: of our own audit, else of one that the command line kept."""
    found = state.jobs.result("membership")
    return found.heldout if isinstance(found, Audited) else state.served.heldout


def _verdicts(state: State, keys: list[str]) -> Verdicts:
    known = [state.library.find(key) for key in keys]
    images = stacked([one.image for one in known])
    content, pixels = [one.content for one in known], [one.pixels for one in known]
    found = memberships(state.served.run, images, content, pixel_sha256=pixels, heldout=heldout_of(state))
    return Verdicts(items=[_verdict(state, one, v) for one, v in zip(known, found, strict=True)])


def _verdict(state: State, known: Known, found: Membership) -> Verdict:
    samples, match = state.served.run.samples, found.match
    return Verdict(
        **state.library.words(known),
        sha256=known.key,
        origin=known.origin,
        verdict=found.verdict,
        agrees=found.agrees,
        match=None
        if match is None
        else Match(
            index=match.index,
            sample_id=match.sample_id,
            sha256=match.sha256,
            class_=int(samples.labels[match.index]),
            label=match.label,
            equal=match.equal,
            shown=state.library.is_shown(match.index),
            **state.library.words_of(match.index),
        ),
        score=found.score,
        value=None if found.value is None else round(found.value, state.digits),
        p_value=found.p_value,
        heldout=found.heldout,
        missed=found.missed,
        why=found.why,
    )


def _roc(values: dict[str, Any]) -> Roc:
    decides = values["decides"]
    curves = [
        Curve(
            name=name,
            words=SCORES.get(name, name),
            decides=name == decides,
            auc=Interval(**one["auc"]),
            points=one["roc"],
            at=[At(fpr=float(rate), **_interval(found)) for rate, found in one["tpr_at_fpr"].items()],
        )
        for name, one in values["scores"].items()
    ]
    return Roc(
        score=decides,
        members=values["members"],
        nonmembers=values["nonmembers"],
        curves=sorted(curves, key=lambda curve: not curve.decides),
        distorted=[
            DistortedAuc(name=kind, auc=Interval(**of[decides]["auc"])) for kind, of in values["distorted"].items()
        ],
        lookup={
            kind: Lookup(members=Interval(**of["members"]), nonmembers=Interval(**of["nonmembers"]))
            for kind, of in values["lookup"].items()
        },
        null_auc=Interval(**values["null"]["auc"][decides]),
    )


def _interval(found: dict[str, Any]) -> dict[str, Any]:
    """The true-positive rate out of an operating point."""
    inner = found.get("tpr", found)
    return {name: inner.get(name) for name in ("value", "low", "high", "n")} | {"why": inner.get("why")}
