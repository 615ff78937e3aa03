"""Routes that look at a body before it is parsed, and the types of fields: strict in the check as in the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from provnet.base.errors import ProvnetError
from provnet.runs.safe import read_json
from provnet.samples.identity import SampleTable
from provnet_app.limits import DEPTH, JSON
from provnet_app.security import ApiError, documented

PICTURES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/tiff")
CSV = ("text/csv",)
LISTS = ("without",)  # parameters that are lists
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CheckedRoute(APIRoute):
    """A route whose JSON is checked as provnet checks JSON from strangers: depth, doubled keys, NaN, long texts."""

    def get_route_handler(self) -> Handler:
        """The handler with the checks before it."""
        original: Handler = super().get_route_handler()
        takes_json = self.body_field is not None

        async def checked(request: Request) -> Response:
            check_once(request)
            if takes_json:
                await check_json(request)
            return await original(request)

        return checked


async def check_json(request: Request) -> None:
    """Refuse a body that is no JSON, or one that only looks harmless."""
    check_type(request, ("application/json",))
    body = await request.body()
    if len(body) > JSON:
        raise ApiError(413, "too_large", f"JSON may have {JSON:,} bytes")
    try:
        read_json(body, "the body", limit=JSON, depth=DEPTH)
    except ProvnetError as error:
        raise ApiError(422, "invalid", str(error), "body") from None


def check_once(request: Request) -> None:
    """Refuse a parameter that is given twice: readers would disagree about which one counts."""
    names = [name for name, _ in request.query_params.multi_items() if name not in LISTS]
    if len(set(names)) < len(names):
        raise ApiError(422, "invalid", "a parameter is given more than once", "query")


def check_type(request: Request, allowed: tuple[str, ...]) -> None:
    """Refuse other content types: a form or plain text may come from any site."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        raise ApiError(415, "wrong_type", f"Content-Type must be {' or '.join(allowed)}")


async def raw_body(request: Request, allowed: tuple[str, ...]) -> bytes:
    """The bytes of a body that is no JSON."""
    check_type(request, allowed)
    return await request.body()


def router(tag: str) -> APIRouter:
    """A router of checked routes below /api/v1."""
    return APIRouter(prefix="/api/v1", route_class=CheckedRoute, tags=[tag])


def takes(kinds: tuple[str, ...]) -> dict[str, Any]:
    """The OpenAPI entry of a raw body."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


def gives(*statuses: int, kind: str = "", words: str = "") -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of refusals, and of an answer that is no JSON, of one kind or several with blanks between."""
    found = documented(*statuses)
    if kind:
        schema = {"type": "string"} if kind.startswith("text/") else {"type": "string", "format": "binary"}
        found[200] = {"description": words, "content": {one: {"schema": schema} for one in kind.split()}}
    return found


BODY = (408, 413, 415)  # what a request with a body may be refused with


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 27.0 is a whole one; text and true are none."""
    if isinstance(value, bool | str):
        raise ValueError("a whole number is needed")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    return value


def _digits(value: Any) -> Any:
    """An address holds text alone; of what Python takes for a number (7_0, +7, " 7", 7.0) only digits are taken."""
    if isinstance(value, str) and not re.fullmatch("[0-9]{1,16}", value):
        raise ValueError("a whole number is needed, in digits alone")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("a number is needed")
    return value


def _clean(value: str) -> str:
    if "\0" in value or any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise ValueError("NUL and lone surrogates are not taken")
    return value


Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Weights = Literal["plain", "joint"]  # the index branch's own shares, or P(class) times the share within the class
WHOLE = BeforeValidator(_whole)
NUMBER = BeforeValidator(_number)
DIGITS = BeforeValidator(_digits)  # for whole numbers in an address
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00]+$"), AfterValidator(_clean)]


class Strict(BaseModel):
    """What comes in: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Interval(BaseModel):
    """A figure with its 95 % interval; `why` where there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int | None
    why: str | None = None


class Label(BaseModel):
    """A class."""

    class_: Annotated[int, Field(alias="class")]
    label: str

    model_config = ConfigDict(populate_by_name=True)


class Named(Label):
    """A training sample by its position, id and hash, with its class."""

    index: int
    sample_id: str
    sha256: str


class Words(BaseModel):
    """A sample that is no picture, as text; of a row of a table also its columns with their values."""

    text: str | None = None
    cells: list[list[str]] | None = None


def naming(samples: SampleTable, place: int) -> dict[str, Any]:
    """The fields of `Named` for the sample at a position."""
    number = int(samples.labels[place])
    return {
        "index": place,
        "sample_id": samples.sample_ids[place],
        "sha256": samples.hex(place),
        "class_": number,
        "label": samples.class_names[number],
    }


def rounded(value: float, digits: int) -> float:
    """A finite number with so many decimals.

    >>> rounded(0.98765, 2)
    0.99
    """
    if not math.isfinite(value):
        raise ValueError("a figure is not finite")
    return round(float(value), digits)


def csv_reply(content: bytes, name: str) -> Response:
    """A CSV file to be saved."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Type": "text/csv; charset=utf-8"}
    return Response(content, headers=headers)
