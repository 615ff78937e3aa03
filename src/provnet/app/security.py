"""Who may speak to the server: this machine's own page or a program with the token; nobody else, and no other site.

The order: Host, Origin and Sec-Fetch-Site, token. All are checked before a route is looked up or a body read. The token
goes to the page in the address's fragment, which is never sent, and is exchanged for a cookie that scripts cannot read.
That request carries the token in a header like every other one, so no body of a stranger is read below /api.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from provnet.app.errors import ApiError, reply
from provnet.app.limits import ATTEMPTS, HEADER_BYTES
from provnet.app.limits import HEADERS as MOST_HEADERS

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
