"""Explain: a picture that is sent, or a sample that is known; distorted, or with samples left out."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.data.modalities.decode import BYTES
from provnet.models.network import NetworkConfig
from provnet.report.pictures import scale_to_box, to_image
from provnet.runs.inputs import range_problem
from provnet.runs.run import Run
from provnet.samples.identity import named
from provnet_app.engine import Answer
from provnet_app.library import Known, Upload, encoded, is_small
from provnet_app.limits import TEXT, THUMB, WITHOUT, K
from provnet_app.routes import (
    BODY,
    DIGITS,
    NUMBER,
    PICTURES,
    WHOLE,
    Hash,
    Label,
    Name,
    Named,
    Strict,
    Weights,
    Words,
    gives,
    naming,
    raw_body,
    rounded,
    router,
    takes,
)
from provnet_app.security import ApiError
from provnet_app.state import State

LARGEST = float(np.finfo(np.float32).max)


def from_pixels(values: list[Any], network: NetworkConfig) -> np.ndarray:
    """Nested lists as one raw sample; a value that float32 cannot hold is refused, never explained.

    >>> from_pixels([[0, 255.0], [7, 1]], NetworkConfig("single", "small", (1, 2, 2), classes=2)).shape
    (1, 2, 2)
    >>> from_pixels([3.5e38], NetworkConfig("single", "mlp", (1,), classes=2, scale=1.0))
    Traceback (most recent call last):
    provnet_app.security.ApiError: a value is not finite in float32; no sample can be named
    """
    shape = tuple(network.input_shape)
    numbers = list(_flat(values))
    found = _shape(values)
    if found not in (shape, shape[1:] if shape[:1] == (1,) and len(shape) == 3 else shape):
        raise ApiError(422, "invalid", f"pixels must have the shape {shape}, nested lists; got {found}", "pixels")
    if any(not math.isfinite(value) or abs(value) > LARGEST for value in numbers):
        raise ApiError(422, "not_finite", "a value is not finite in float32; no sample can be named", "pixels")
    array = np.array(numbers, dtype=np.float64).reshape(shape)
    if network.scale == BYTES:
        if array.min() < 0 or array.max() > BYTES or not (array == array.round()).all():
            raise ApiError(422, "invalid", "pixels of this run are whole numbers from 0 to 255", "pixels")
        return array.astype(np.uint8)
    return array.astype(np.float32)


def _flat(values: Any) -> Iterator[float]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
        return
    if isinstance(values, bool) or not isinstance(values, int | float):
        raise ApiError(422, "invalid", "pixels must be numbers in nested lists", "pixels")
    try:
        yield float(values)
    except OverflowError:
        raise ApiError(
            422, "not_finite", "a value is not finite in float32; no sample can be named", "pixels"
        ) from None


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(values, list):
        return ()
    inner = {_shape(value) for value in values}
    if len(inner) != 1 or None in inner:
        return None
    (shape,) = inner
    return None if shape is None else (len(values), *shape)


def pixel_schema(network: NetworkConfig) -> dict[str, Any]:
    """The JSON schema of such values.

    >>> pixel_schema(NetworkConfig("single", "mlp", (3,), classes=2, scale=1.0))["maxItems"]
    3
    """
    whole = network.scale == BYTES
    schema: dict[str, Any] = (
        {"type": "integer", "minimum": 0, "maximum": 255}
        if whole
        else {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    )
    for length in reversed(network.input_shape):
        schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
    return schema


STREAM = 61


class Distort(Strict):
    """How the query is distorted before it is explained.

    Attributes:
        noise: standard deviation on pixels of 0..1.
        shift_x, shift_y: right and down, as shares of width and height.
        rotation: degrees, counter-clockwise.
        blur: standard deviation in pixels.
        occlusion: side of a black square as share of the shorter side; `occlusion_x`, `occlusion_y` its centre.
        seed: of the noise.
    """

    noise: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.0
    shift_x: Annotated[float, Field(ge=-0.5, le=0.5), NUMBER] = 0.0
    shift_y: Annotated[float, Field(ge=-0.5, le=0.5), NUMBER] = 0.0
    rotation: Annotated[float, Field(ge=-180, le=180), NUMBER] = 0.0
    blur: Annotated[float, Field(ge=0, le=10), NUMBER] = 0.0
    occlusion: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.0
    occlusion_x: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.5
    occlusion_y: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.5
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE] = 0

    @property
    def changes(self) -> bool:
        """Whether it does anything at all."""
        return any((self.noise, self.shift_x, self.shift_y, self.rotation, self.blur, self.occlusion))


def distorted(image: Any, how: Distort) -> Any:
    """A distorted copy of a raw picture (C, H, W), bytes; other samples as they are.

    >>> picture = np.zeros((1, 8, 8), np.uint8)
    >>> picture[0, 2, 3] = 200
    >>> moved = distorted(picture, Distort(shift_x=0.25))
    >>> np.argwhere(moved[0]).tolist()
    [[2, 5]]
    """
    if not how.changes:
        return image
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.dtype != np.uint8:
        words = "distortions are for pictures of bytes; this run takes other samples"
        raise ApiError(409, "not_ready", words, "distort")
    values = torch.from_numpy(image.copy()).float()[None] / 255
    values = _moved(values, how)
    values = _blurred(values, how.blur)
    values = _covered(values, how)
    if how.noise:
        values = values + how.noise * torch.randn(values.shape, generator=keyed_generator(how.seed, STREAM))
    return np.asarray(values.clamp(0, 1).mul(255).round().to(torch.uint8)[0].numpy())


def _moved(values: Tensor, how: Distort) -> Tensor:
    if not (how.shift_x or how.shift_y or how.rotation):
        return values
    height, width = values.shape[2:]
    angle = math.radians(how.rotation)
    cosine, sine = math.cos(angle), math.sin(angle)
    by_x, by_y = round(how.shift_x * width), round(how.shift_y * height)  # whole pixels: a shift does not blur
    y = torch.arange(height, dtype=torch.float32)[:, None] - (height - 1) / 2 - by_y
    x = torch.arange(width, dtype=torch.float32)[None, :] - (width - 1) / 2 - by_x
    from_x, from_y = cosine * x - sine * y, sine * x + cosine * y
    grid = torch.stack([from_x / (max(width - 1, 1) / 2), from_y / (max(height - 1, 1) / 2)], -1)[None]
    return F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def _blurred(values: Tensor, sigma: float) -> Tensor:
    if not sigma:
        return values
    reach = max(1, math.ceil(3 * sigma))
    steps = torch.arange(-reach, reach + 1, dtype=torch.float32)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = weights / weights.sum()
    channels = values.shape[1]
    for shape, room in (((1, 1, -1, 1), (0, 0, reach, reach)), ((1, 1, 1, -1), (reach, reach, 0, 0))):
        mask = (
            weights.view(shape).expand(channels, 1, -1, -1)
            if shape[2] == -1
            else weights.view(shape).expand(channels, 1, 1, -1)
        )
        values = F.conv2d(F.pad(values, room, mode="replicate"), mask, groups=channels)
    return values


def _covered(values: Tensor, how: Distort) -> Tensor:
    height, width = values.shape[2:]
    side = round(how.occlusion * min(height, width))
    if not side:
        return values
    top = round(how.occlusion_y * height - side / 2)
    left = round(how.occlusion_x * width - side / 2)
    out = values.clone()
    out[:, :, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0
    return out


Without = Annotated[list[Hash], Field(default_factory=list, max_length=WITHOUT)]
Cell = Annotated[float, Field(ge=-LARGEST, le=LARGEST), NUMBER] | Annotated[str, Field(max_length=TEXT)] | None
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


class Item(Strict):
    """A text, or a row of a table: a value for each column, null where it is missing."""

    item: Annotated[str, Field(max_length=TEXT)] | Annotated[dict[Name, Cell], Field(max_length=10_000)]


class QueryRecord(Words):
    """What was explained."""

    sha256: str
    origin: Literal["upload", "training", "test", "pixels"]
    sample_id: str | None
    label: str | None
    class_: Annotated[int | None, Field(alias="class")]
    height: int | None
    width: int | None
    resized_from: list[int] | None

    model_config = ConfigDict(populate_by_name=True)


class ExemplarRecord(Named, Words):
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
    """The explanation of one query; `right`: how often held-out answers with such evidence are right, where known."""

    query: QueryRecord
    picture: str | None
    distorted: bool
    predicted: Label
    confidence: float
    classes: list[Share]
    supported: bool
    support: float
    threshold: float
    right: float | None
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
        found = await explained(state, _known(upload), given.k, given.weights, given.without, given)
        return _json(found)

    @routes.post("/explain/known", response_model=Explained, responses=gives(404, 409, *BODY))
    async def explain_known(asked: ByHash | ByTest | ByPixels) -> Response:
        """Explain something that is known by its hash or position, or given as raw values."""
        known = find(state, asked)
        found = await explained(state, known, asked.k, asked.weights, asked.without, asked.distort)
        return _json(found)

    @routes.post("/queries", responses=gives(*BODY), openapi_extra=takes(PICTURES))
    async def queries(request: Request) -> QueryRecord:
        """Keep a picture in memory, to be asked about by its key."""
        return query_record(state, _known(await _uploaded(state, request)))

    @routes.post("/queries/item", responses=gives(409, *BODY))
    async def item(given: Item) -> QueryRecord:
        """Keep a text or a row of a table in memory, to be asked about by its key."""
        return query_record(state, _known(state.uploads.read_item(given.item, state.library.modality)))

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
    return Known(upload.key, "upload", upload.image, upload.content, resized_from=upload.resized_from, item=upload.item)


def find(state: State, asked: ByHash | ByTest | ByPixels) -> Known:
    """What a request names."""
    if isinstance(asked, ByHash):
        return state.library.find(asked.sha256, asked.sample_id)
    if isinstance(asked, ByTest):
        return state.library.test(asked.test)
    return Known("0" * 64, "pixels", from_pixels(asked.pixels, state.served.run.config.network))


async def explained(state: State, known: Known, k: int, weights: str, without: list[str], how: Distort) -> Explained:
    """The whole answer to one query."""
    image = distorted(known.image, how)
    left_out = {place for key in without for place in state.library.places.get(key, [])}
    answer = await state.engine.explain(image, k + len(left_out), weights, tuple(left_out))
    return _record(state, known, image, answer, k, (len(set(without)), left_out), how.changes)


def _record(
    state: State,
    known: Known,
    image: Any,
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
        right=rounded(answer.support, digits) if is_rate(run) else None,
        exemplars=[
            exemplar_record(state, rank, int(i), float(w))
            for rank, (i, w) in enumerate(zip(index, weight, strict=True), 1)
        ],
        rest=rounded(max(0.0, 1 - float(weight.sum())), digits),
        without=LeftOut(asked=asked, weight=rounded(min(answer.left_out, 1.0), digits)),
        withheld=int(run.samples.withheld.sum()),
        warning=range_problem(run.config.network, image[None]) if isinstance(image, np.ndarray) else None,
    )


def is_rate(run: Run) -> bool:
    """Whether support says how often such answers are right, as it does where features are frozen."""
    return run.network.support.evidence is not None


def exemplar_record(state: State, rank: int, place: int, weight: float) -> ExemplarRecord:
    """A training sample as an exemplar."""
    samples = state.served.run.samples
    same = named(samples, place, weight)
    return ExemplarRecord(
        **naming(samples, place),
        **state.library.words_of(place),
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
    if isinstance(known.image, np.ndarray) and known.image.ndim == 3:
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
        **state.library.words(known),
    )


def label_of(state: State, number: int) -> Label:
    """A class with its name."""
    return Label(class_=number, label=state.served.run.samples.class_names[number])


def _picture(state: State, known: Known, image: Any) -> str | None:
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
