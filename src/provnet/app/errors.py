"""Every refusal in one form: {"error": {"code", "message", "field", "id"}}; no traceback leaves the server."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from provnet.data.files import shown
from provnet.errors import DataError, IntegrityError, MemoryLimitError, NonFiniteError, ProvnetError, UsageError

LOG = logging.getLogger("provnet.app")


class ApiError(Exception):
    """A refusal: status, a code for programs, a sentence for people, and the field that is to blame."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field
        self.headers = dict(headers or {})


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str
    message: str
    field: str | None = None
    id: str


class ErrorReply(BaseModel):
    """The form of every refusal."""

    error: ErrorBody


def error_json(error: ApiError) -> bytes:
    """The body of a refusal; its id stands in the log, too.

    >>> b'"code": "not_found"' in error_json(ApiError(404, "not_found", "no such thing"))
    True
    """
    body = {"code": error.code, "message": error.message, "field": error.field, "id": secrets.token_hex(6)}
    return json.dumps({"error": body}).encode("ascii")


def reply(error: ApiError) -> Response:
    """A refusal as a response."""
    return Response(error_json(error), error.status, error.headers, media_type="application/json")


def unknown(what: str, field: str | None = None) -> ApiError:
    """Nothing has this hash or id."""
    return ApiError(404, "unknown_hash", f"no {what} here has this hash or id; it may have been forgotten", field)


def not_ready(job: str) -> ApiError:
    """Something costly was not computed yet."""
    return ApiError(409, "not_ready", f"{job} are not computed yet: POST /api/v1/jobs/{job}")


def from_provnet(error: ProvnetError) -> ApiError:
    """The status of what provnet itself refuses."""
    if isinstance(error, NonFiniteError):
        return ApiError(422, "not_finite", str(error))
    if isinstance(error, UsageError | DataError):
        return ApiError(422, "invalid", str(error))
    if isinstance(error, IntegrityError):
        return ApiError(409, "changed", str(error))
    if isinstance(error, MemoryLimitError):
        return ApiError(413, "too_large", str(error))
    return _internal(error)


def _internal(error: BaseException) -> ApiError:
    LOG.error("internal error", exc_info=error)
    return ApiError(500, "internal", "the server failed at this request; its log says why")


async def on_api_error(_: Request, error: Exception) -> Response:
    """Handler of ApiError."""
    assert isinstance(error, ApiError)
    return reply(error)


async def on_provnet_error(_: Request, error: Exception) -> Response:
    """Handler of ProvnetError."""
    assert isinstance(error, ProvnetError)
    return reply(from_provnet(error))


async def on_invalid(_: Request, error: Exception) -> Response:
    """Handler of requests that do not fit the schema; what was given is not repeated."""
    assert isinstance(error, RequestValidationError)
    first: Any = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return reply(ApiError(422, "invalid", f"{shown(place)[:100]}: {first['msg']}", shown(place)[:100]))


async def on_http_error(_: Request, error: Exception) -> Response:
    """Handler of what the router refuses: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed", 415: "wrong_type", 422: "invalid"}
    words = {404: "there is nothing at this address", 405: "this address does not take this method"}
    message = words.get(error.status_code, "this request cannot be answered")
    code = codes.get(error.status_code, "invalid")
    return reply(ApiError(error.status_code, code, message, headers=dict(error.headers or {})))


async def on_anything(_: Request, error: Exception) -> Response:
    """Handler of everything else: a bug of ours."""
    return reply(_internal(error))


HANDLERS: dict[Any, Any] = {
    ApiError: on_api_error,
    ProvnetError: on_provnet_error,
    RequestValidationError: on_invalid,
    HTTPException: on_http_error,
    Exception: on_anything,
}

WORDS = {
    401: "no token, or a wrong one",
    403: "another site, or a picture that this run does not show",
    404: "unknown hash, id or address",
    408: "the body came in too slowly",
    409: "not computed yet, or nothing to do",
    413: "too large",
    415: "wrong content type",
    422: "the request does not fit the schema",
    429: "too many wrong tokens",
    503: "busy or stopping; come back after Retry-After seconds",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of an operation for its OpenAPI entry; those that any operation may give are added.

    >>> sorted(documented(404))
    [401, 403, 404, 422, 429, 503]
    """
    return {
        status: {"model": ErrorReply, "description": WORDS[status]}
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }
