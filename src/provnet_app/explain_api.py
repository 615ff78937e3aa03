"""Explain: a picture that is sent, or one that is known; distorted, or with samples left out."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from provnet.report.pictures import scale_to_box, to_image
from provnet.runs.inputs import range_problem
from provnet.samples.identity import named
from provnet_app.engine import Answer
from provnet_app.fields import DIGITS, WHOLE, Distort, Hash, Label, Name, Named, Strict, Weights, naming, rounded
from provnet_app.library import Known, Upload, encoded, is_small
from provnet_app.limits import THUMB, WITHOUT, K
from provnet_app.pixels import Distortion, distorted, from_pixels
from provnet_app.routes import BODY, PICTURES, gives, raw_body, router, takes
from provnet_app.security import ApiError
from provnet_app.state import State

Without = Annotated[list[Hash], Field(default_factory=list, max_length=WITHOUT)]
Count = Annotated[int, Field(ge=1, le=K), WHOLE]


class Given(Distort):
    """What may be asked for beside the picture."""

    k: Annotated[int, Field(ge=1, le=K), DIGITS] = 5
    weights: Weights = "plain"
    without: Without
    # an address holds text alone
    noise: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    shift_x: Annotated[float, Field(ge=-0.5, le=0.5, allow_inf_nan=False)] = 0.0
    shift_y: Annotated[float, Field(ge=-0.5, le=0.5, allow_inf_nan=False)] = 0.0
    rotation: Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)] = 0.0
    blur: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    occlusion: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    occlusion_x: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    occlusion_y: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), DIGITS] = 0


class Asked(Strict):
    """What may be asked for in JSON."""

    k: Count = 5
    weights: Weights = "plain"
    without: Without
    distort: Distort = Distort()


class ByHash(Asked):
    """An upload, a training sample or a test sample; `sample_id` tells training samples of equal content apart."""

    sha256: Hash
    sample_id: Name | None = None


class ByTest(Asked):
    """A sample of the run's test split, by its position."""

    test: Annotated[int, Field(ge=0, lt=2**53), WHOLE]


class ByPixels(Asked):
    """Raw values of the run's input shape, as they were trained on."""

    pixels: list[Any]


class QueryRecord(BaseModel):
    """What was explained."""

    sha256: str
    origin: Literal["upload", "training", "test", "pixels"]
    sample_id: str | None
    label: str | None
    class_: Annotated[int | None, Field(alias="class")]
    height: int | None
    width: int | None
    resized_from: list[int] | None

    model_config = {"populate_by_name": True}


class ExemplarRecord(Named):
    """A training sample that stands behind the answer."""

    rank: int
    weight: float
    shown: bool
    duplicates: list[str]
    duplicate_count: int


class Share(Label):
    """A class and its probability."""

    share: float


class LeftOut(BaseModel):
    """How many samples were left out, and the weight that they had."""

    asked: int
    weight: float


class Explained(BaseModel):
    """The explanation of one query."""

    query: QueryRecord
    picture: str | None
    distorted: bool
    predicted: Label
    confidence: float
    classes: list[Share]
    supported: bool
    support: float
    threshold: float
    exemplars: list[ExemplarRecord]
    rest: float
    without: LeftOut
    withheld: int
    warning: str | None


def explain_routes(state: State) -> APIRouter:
    """POST /explain, /explain/known and /queries."""
    routes = router("explain")

    @routes.post("/explain", response_model=Explained, responses=gives(*BODY), openapi_extra=takes(PICTURES))
    async def explain(request: Request, given: Annotated[Given, Query()]) -> Response:
        """Explain a picture that is sent as the body."""
        upload = await _uploaded(state, request)
        found = await explained(state, _known(upload), given.k, given.weights, given.without, given.made())
        return _json(found)

    @routes.post("/explain/known", response_model=Explained, responses=gives(404, 409, *BODY))
    async def explain_known(asked: ByHash | ByTest | ByPixels) -> Response:
        """Explain something that is known by its hash or position, or given as raw values."""
        known = find(state, asked)
        found = await explained(state, known, asked.k, asked.weights, asked.without, asked.distort.made())
        return _json(found)

    @routes.post("/queries", responses=gives(*BODY), openapi_extra=takes(PICTURES))
    async def queries(request: Request) -> QueryRecord:
        """Keep a picture in memory, to be asked about by its key."""
        return query_record(state, _known(await _uploaded(state, request)))

    return routes


def _json(found: Explained) -> Response:
    """Written out once: what was checked when it was made is not checked again, which takes half of the time."""
    return Response(found.model_dump_json(by_alias=True), media_type="application/json")


async def _uploaded(state: State, request: Request) -> Upload:
    blob = await raw_body(request, PICTURES)
    if is_small(blob):
        return state.uploads.read(blob)
    return await asyncio.get_running_loop().run_in_executor(state.decoder, state.uploads.read, blob)


def _known(upload: Upload) -> Known:
    return Known(upload.key, "upload", upload.image, upload.content, resized_from=upload.resized_from)


def find(state: State, asked: ByHash | ByTest | ByPixels) -> Known:
    """What a request names."""
    if isinstance(asked, ByHash):
        return state.library.find(asked.sha256, asked.sample_id)
    if isinstance(asked, ByTest):
        return state.library.test(asked.test)
    return Known("0" * 64, "pixels", from_pixels(asked.pixels, state.served.run.config.network))


async def explained(state: State, known: Known, k: int, weights: str, without: list[str], how: Distortion) -> Explained:
    """The whole answer to one query."""
    if how.changes and (known.image.ndim != 3 or known.image.dtype != np.uint8):
        raise ApiError(
            409, "not_ready", "distortions are for pictures of bytes; this run takes other samples", "distort"
        )
    image = distorted(known.image, how)
    left_out = {place for key in without for place in state.library.places.get(key, [])}
    answer = await state.engine.explain(image, k + len(left_out), weights, tuple(left_out))
    return _record(state, known, image, answer, k, (len(set(without)), left_out), how.changes)


def _record(
    state: State,
    known: Known,
    image: np.ndarray,
    answer: Answer,
    k: int,
    without: tuple[int, set[int]],
    is_distorted: bool,
) -> Explained:
    run, digits, asked = state.served.run, state.digits, without[0]
    kept = np.array([int(i) not in without[1] for i in answer.index], dtype=np.bool_)
    scale = 1 / max(1 - answer.left_out, 1e-12)
    index, weight = answer.index[kept][:k], np.minimum(answer.weight[kept][:k] * scale, 1.0)
    threshold = run.config.threshold
    return Explained(
        query=query_record(state, known),
        picture=_picture(state, known, image),
        distorted=is_distorted,
        predicted=label_of(state, answer.predicted),
        confidence=rounded(answer.confidence, digits),
        classes=[
            Share(class_=number, label=run.samples.class_names[number], share=rounded(share, digits))
            for number, share in answer.classes
        ],
        supported=answer.support >= threshold,
        support=rounded(answer.support, digits),
        threshold=rounded(threshold, digits),
        exemplars=[
            exemplar_record(state, rank, int(i), float(w))
            for rank, (i, w) in enumerate(zip(index, weight, strict=True), 1)
        ],
        rest=rounded(max(0.0, 1 - float(weight.sum())), digits),
        without=LeftOut(asked=asked, weight=rounded(min(answer.left_out, 1.0), digits)),
        withheld=int(run.samples.withheld.sum()),
        warning=range_problem(run.config.network, image[None]),
    )


def exemplar_record(state: State, rank: int, place: int, weight: float) -> ExemplarRecord:
    """A training sample as an exemplar."""
    samples = state.served.run.samples
    same = named(samples, place, weight)
    return ExemplarRecord(
        **naming(samples, place),
        rank=rank,
        weight=rounded(weight, state.digits),
        shown=state.library.is_shown(place),
        duplicates=list(same.duplicates),
        duplicate_count=same.duplicate_count,
    )


def query_record(state: State, known: Known) -> QueryRecord:
    """A query as the page shows it."""
    names = state.served.run.samples.class_names
    sides: tuple[int | None, int | None] = (None, None)
    if known.image.ndim == 3:
        sides = (int(known.image.shape[1]), int(known.image.shape[2]))
    return QueryRecord(
        sha256=known.key,
        origin=known.origin,  # type: ignore[arg-type]
        sample_id=known.sample_id,
        label=None if known.label is None else names[known.label],
        class_=known.label,
        height=sides[0],
        width=sides[1],
        resized_from=None if known.resized_from is None else list(known.resized_from),
    )


def label_of(state: State, number: int) -> Label:
    """A class with its name."""
    return Label(class_=number, label=state.served.run.samples.class_names[number])


def _picture(state: State, known: Known, image: np.ndarray) -> str | None:
    """What the network saw, as far as it may be seen."""
    try:
        limit = state.library.limit(known)
    except ApiError:
        return None
    pixels = state.library.pixels(image)
    if pixels is None:
        return None
    made = to_image(pixels)
    if limit is not None and max(made.size) > limit:
        made = scale_to_box(made, THUMB)
    return "data:image/png;base64," + base64.b64encode(encoded(made)).decode("ascii")
