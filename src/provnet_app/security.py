"""Who may speak to the server: this machine's own page or a program with the token; nobody else, and no other site.

The order: Host, Origin and Sec-Fetch-Site, token. All are checked before a route is looked up or a body read. The token
goes to the page in the address's fragment, which is never sent, and is exchanged for a cookie that scripts cannot read.
That request carries the token in a header like every other one, so no body of a stranger is read below /api.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, get_args

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from provnet.base.errors import DataError, IntegrityError, MemoryLimitError, NonFiniteError, ProvnetError, UsageError
from provnet.base.files import shown
from provnet_app.limits import ATTEMPTS, HEADER_BYTES
from provnet_app.limits import HEADERS as MOST_HEADERS

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
LOG = logging.getLogger("provnet_app")


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


API = "/api/v1"
SAFE = ("GET", "HEAD")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
NO_STORE = "no-store"


@dataclass(eq=False)
class Keys:
    """The secrets of one start: the token that a person is given, and what the cookie holds instead of it."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    wrong: deque[float] = field(default_factory=deque)

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies are shared by all ports of a host, so the port is in it."""
        return f"provnet-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """Names of this server in a Host header; nothing else is one, however it resolves.

        >>> "127.0.0.1:8808" in Keys(8808).hosts, "127.0.0.1" in Keys(8808).hosts
        (True, False)
        """
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    def set_cookie(self) -> str:
        """The header that gives the page its session."""
        return f"{self.cookie}={self.session}; Path=/; HttpOnly; SameSite=Strict"

    def is_token(self, given: str) -> bool:
        """Whether this is the token, told in a time that does not depend on how much of it is right."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def refuse_token(self) -> ApiError:
        """The answer to a wrong token; too many of them in a minute are told to stop. The right one always works."""
        now = time.monotonic()
        while self.wrong and now - self.wrong[0] > 60:
            self.wrong.popleft()
        self.wrong.append(now)
        if len(self.wrong) > ATTEMPTS:
            while len(self.wrong) > ATTEMPTS + 1:
                self.wrong.popleft()
            return ApiError(
                429, "too_many_attempts", "too many wrong tokens; wait a minute", headers={"Retry-After": "60"}
            )
        return ApiError(401, "wrong_token", "the token is wrong: use the link that `provnet app` printed")


class Guard:
    """The outermost layer: refuses strangers, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        is_api = scope["path"].startswith("/api/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                given = {name.lower() for name, _ in message["headers"]}
                if is_api and b"cache-control" not in given:
                    headers.append((b"cache-control", NO_STORE.encode()))
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        refusal = self.refusal(scope)
        if refusal is not None:
            await reply(refusal)(scope, receive, with_headers)
            return
        await self.app(scope, receive, with_headers)

    def refusal(self, scope: Scope) -> ApiError | None:
        """Why this request is not answered, or None."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES:
            return ApiError(431, "too_large", f"at most {MOST_HEADERS} headers with {HEADER_BYTES:,} bytes are read")
        if len(scope["raw_path"]) + len(scope["query_string"]) > HEADER_BYTES:
            return ApiError(414, "too_large", f"an address may have {HEADER_BYTES:,} bytes")
        hosts = _values(headers, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.keys.hosts:
            return ApiError(403, "foreign_host", "this server answers to 127.0.0.1 and localhost with its port alone")
        origins = _values(headers, b"origin")
        if any(origin.lower() not in {f"http://{host}" for host in self.keys.hosts} for origin in origins):
            return ApiError(403, "foreign_origin", "another site may not use this server")
        sites = [site.lower() for site in _values(headers, b"sec-fetch-site")]
        if any(site not in ("same-origin", "none") for site in sites):
            return ApiError(403, "foreign_origin", "another site may not use this server")
        if not scope["path"].startswith("/api/"):
            return None
        return self._token_refusal(scope, headers, own=bool(origins) or "same-origin" in sites)

    def _token_refusal(self, scope: Scope, headers: list[tuple[bytes, bytes]], *, own: bool) -> ApiError | None:
        bearers = _values(headers, b"authorization")
        if bearers:
            kind, _, given = bearers[0].partition(" ")
            if len(bearers) == 1 and kind.lower() == "bearer" and self.keys.is_token(given.strip()):
                return None
            return self.keys.refuse_token()
        if not self._has_session(headers):
            message = "a token is needed: open the link that `provnet app` printed, or send Authorization: Bearer"
            return ApiError(401, "no_token", message, headers={"WWW-Authenticate": "Bearer"})
        if scope["method"] not in SAFE and not own:
            return ApiError(403, "foreign_origin", "a change with the cookie needs the Origin that browsers send")
        return None

    def _has_session(self, headers: list[tuple[bytes, bytes]]) -> bool:
        for text in _values(headers, b"cookie"):
            try:
                found = SimpleCookie(text).get(self.keys.cookie)
            except CookieError:
                continue
            if found is not None and hmac.compare_digest(found.value.encode(), self.keys.session.encode()):
                return True
        return False


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Every value of a header, which may come more than once."""
    return [value.decode("latin-1") for key, value in headers if key == name]
