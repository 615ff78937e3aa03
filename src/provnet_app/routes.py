"""Routes that look at a body before it is parsed: its type, its size, how deep it nests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from provnet.base.errors import ProvnetError
from provnet.runs.safe import read_json
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
