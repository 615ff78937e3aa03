"""Every refusal in one form: {"error": {"code", "message", "field", "id"}}; no traceback leaves the server."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from provnet.data.files import shown
from provnet.errors import DataError, IntegrityError, MemoryLimitError, NonFiniteError, ProvnetError, UsageError

# what was given is repeated where it is one of a few words or a number, never where it may be a token or a name
REPEATED = (
    "literal_error",
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "int_parsing",
    "float_parsing",
)
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


async def on_invalid(request: Request, error: Exception) -> Response:
    """Handler of requests that do not fit the schema. Choices and numbers are repeated, texts are not."""
    assert isinstance(error, RequestValidationError)
    first = _nearest(error.errors(), _forms(request))
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    words = f"{shown(place)[:100]}: {first['msg']}{_given(first)}"
    return reply(ApiError(422, "invalid", words, shown(place)[:100]))


def _given(error: Mapping[str, Any]) -> str:
    """What was given, on one line and not much of it.

    >>> _given({"type": "literal_error", "input": "nOne"}), _given({"type": "missing", "input": "secret"})
    (", got 'nOne'", '')
    """
    value = error["input"]
    if error["type"] not in REPEATED or not isinstance(value, str | int | float):
        return ""
    return f", got {value[:40]!r}" if isinstance(value, str) else f", got {str(value)[:40]}"


def _forms(request: Request) -> set[str]:
    """The names of the forms that a body may have, where it may have several."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return set() if field is None else {getattr(form, "__name__", "") for form in get_args(field.field_info.annotation)}


def _nearest(errors: Sequence[Any], forms: set[str]) -> dict[str, Any]:
    """The first error; of a body with several forms the first of the form that it fits best, without the form's name.

    >>> wrong = [("ByHash", "sha256"), ("ByHash", "k"), ("ByTest", "k")]
    >>> _nearest([{"type": "missing", "loc": ("body", *place)} for place in wrong], {"ByHash", "ByTest"})["loc"]
    ('body', 'k')
    """
    by_form: dict[str, list[dict[str, Any]]] = {}
    for one in errors:
        form, *rest = one["loc"][1:] or ("",)
        if form in forms:
            by_form.setdefault(form, []).append({**one, "loc": (one["loc"][0], *rest)})
    return min(by_form.values(), key=len)[0] if by_form else errors[0]


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
