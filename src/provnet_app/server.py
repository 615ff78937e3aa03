"""The server: routes put together, layers around them, a socket on this machine alone, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

import provnet
from provnet.base.errors import UsageError
from provnet_app.again import again_routes
from provnet_app.answers_api import answer_routes
from provnet_app.credit_api import credit_routes
from provnet_app.data_api import data_routes
from provnet_app.decisions import decision_routes
from provnet_app.explain_api import explain_routes, pixel_schema
from provnet_app.generate import generate_routes
from provnet_app.jobs import job_routes
from provnet_app.library import picture_routes
from provnet_app.limits import BODY_SECONDS, DRAIN, HEADER_SECONDS, RETRY, STOP, UPLOAD
from provnet_app.map_api import map_routes
from provnet_app.membership_api import membership_routes
from provnet_app.routes import gives, router
from provnet_app.run_api import run_routes
from provnet_app.security import API, HANDLERS, ApiError, Guard, reply
from provnet_app.state import Gate, State

LITTLE = 262_144  # bytes of a refused body that are read and thrown away, so that the refusal arrives
LITTLE_SECONDS = 0.25


class Admission:
    """The layer that counts; only what lies below /api is counted."""

    def __init__(self, app: ASGIApp, gate: Gate, *, seconds: float = BODY_SECONDS, limit: int = UPLOAD) -> None:
        self.app = app
        self.gate = gate
        self.seconds = seconds
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self.app(scope, receive, send)
            return
        if self.gate.inside >= self.gate.most:
            busy = ApiError(503, "busy", "too many requests at a time; come back", headers={"Retry-After": str(RETRY)})
            await _refuse(busy, scope, receive, send)
            return
        self.gate.inside += 1
        try:
            await self._admitted(scope, receive, self._closing(send))
        finally:
            self.gate.inside -= 1

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await asyncio.wait_for(self._read(scope, receive), self.seconds)
        except TimeoutError:
            message = f"the body did not come in within {self.seconds:g} seconds"
            slow = ApiError(408, "slow_body", message, headers={"Connection": "close"})
            await reply(slow)(scope, receive, send)
            return
        except ApiError as error:
            await _refuse(error, scope, receive, send)
            return
        if body is None:  # the client went away
            return
        await _until_gone(self.app, scope, body, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        parts, size = [], 0
        message = f"the body may have {self.limit:,} bytes"
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self.limit:
                raise ApiError(413, "too_large", message, headers={"Connection": "close"})
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            part = event.get("body", b"")
            size += len(part)
            if size > self.limit:
                raise ApiError(413, "too_large", message, headers={"Connection": "close"})
            parts.append(part)
            if not event.get("more_body"):
                return b"".join(parts)

    def _closing(self, send: Send) -> Send:
        """While the server stops, every answer ends its connection: nothing is sent on one that is about to close."""

        async def closing(message: Message) -> None:
            if self.gate.stopping and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        return closing


async def _until_gone(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the app on a body that is here, and stop it where the client goes away."""
    given = answered = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def noticing(message: Message) -> None:
        nonlocal answered
        answered = answered or (message["type"] == "http.response.body" and not message.get("more_body"))
        await send(message)

    work = asyncio.ensure_future(_run(app, scope, replay, noticing))
    gone = asyncio.ensure_future(_next(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not answered:
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    finally:
        for task in (work, gone):
            task.cancel()


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _next(receive: Receive) -> Message:
    return await receive()


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without using the body; a little of it is thrown away first, or the answer would be lost in a reset."""
    whole = False
    with suppress(TimeoutError):
        whole = await asyncio.wait_for(_thrown_away(receive), LITTLE_SECONDS)
    if not whole:
        error.headers["Connection"] = "close"
    await reply(error)(scope, receive, send)


async def _thrown_away(receive: Receive) -> bool:
    size = 0
    while size <= LITTLE:
        event = await receive()
        if event["type"] == "http.disconnect":
            return False
        size += len(event.get("body", b""))
        if not event.get("more_body"):
            return True
    return False


def session_routes(state: State) -> APIRouter:
    """POST /session."""
    routes = router("session")

    @routes.post("/session", status_code=204, response_class=Response, responses=gives())
    async def session() -> Response:
        """Exchange the token for a cookie that scripts cannot read."""
        return Response(status_code=204, headers={"Set-Cookie": state.keys.set_cookie()})

    return routes


class OneLength(h11.Connection):
    """A request that tells its length in two ways is refused; h11 itself would take the second."""

    def next_event(self) -> Any:
        """The next event, or the error that is answered with 400."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding together", error_status_hint=400)
        return event


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with a limit on how long the headers of each request may take."""

    _clock: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        most = self.config.h11_max_incomplete_event_size
        self.conn = OneLength(h11.SERVER) if most is None else OneLength(h11.SERVER, most)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first headers are waited for."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Stop the clock where a request's headers are whole; start it where those of a later one have begun."""
        super().data_received(data)
        if self._lingers():
            self._start()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        if self._lingers() and not self.transport.is_closing():
            self.transport.close()

    def _lingers(self) -> bool:
        """Whether headers are awaited, or the rest of a body whose request is answered."""
        return self.conn.their_state is h11.IDLE or (self.cycle is not None and self.cycle.response_complete)


NAMES = 1_000  # classes that are listed by name


def add_schema(app: FastAPI, state: State) -> None:
    """Serve the document at /api/v1/openapi.json."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_made(app, state))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _made(app: FastAPI, state: State) -> dict[str, Any]:
    found = get_openapi(
        title="provnet app", version=provnet.__version__, description=ABOUT, routes=app.routes, tags=app.openapi_tags
    )
    parts = found["components"]
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["security"] = [{"token": []}]
    names = state.served.run.samples.class_names
    schemas = parts["schemas"]
    if len(names) <= NAMES:
        schemas["Relabel"]["properties"]["new_label"] = {"type": "string", "enum": list(names)}
    schemas["ByPixels"]["properties"]["pixels"] = pixel_schema(state.served.run.config.network)
    return found


ABOUT = "What stands behind the answers of a run: the interface of the local page, on this machine alone."


TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webp": "image/webp",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
INDEX = "index.html"


@dataclass(frozen=True)
class Asset:
    """A file of the page."""

    content: bytes
    kind: str
    tag: str


def read_assets() -> dict[str, Asset]:
    """Everything below provnet/app/static, by its name from there.

    >>> "index.html" in read_assets()
    True
    """
    folder = Path(__file__).parent / "static"
    found: dict[str, Asset] = {}
    for path in sorted(folder.rglob("*")):
        kind = TYPES.get(path.suffix.removeprefix("."))
        if kind is not None and path.is_file():
            content = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            found[name] = Asset(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def static_routes(assets: Mapping[str, Asset]) -> list[Route]:
    """`/` is the page, `/static/NAME` its files."""

    async def page(request: Request) -> Response:
        return _answer(request, assets.get(INDEX))

    async def file(request: Request) -> Response:
        return _answer(request, assets.get(request.path_params["name"]))

    return [Route("/", page), Route("/static/{name:path}", file)]


def _answer(request: Request, asset: Asset | None) -> Response:
    if asset is None:
        return reply(ApiError(404, "not_found", "there is nothing at this address"))
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers={**headers, "Content-Type": asset.kind})


HOST = "127.0.0.1"
USUAL = 8808
ROUTES = (
    session_routes,
    run_routes,
    explain_routes,
    data_routes,
    again_routes,
    answer_routes,
    map_routes,
    membership_routes,
    credit_routes,
)


def make_app(state: State) -> ASGIApp:
    """The whole application, guarded; the order of the layers is: who may speak, how many, which route."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(state.close)

    app = FastAPI(
        title="provnet app",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    parts: list[APIRouter | None] = [make(state) for make in ROUTES]
    parts += [picture_routes(state.library, state.shown), job_routes(state.jobs)]
    parts += [decision_routes(state.decisions, state.tags), generate_routes(state)]
    for routes in filter(None, parts):
        app.include_router(routes)
    app.router.routes.extend(static_routes(read_assets()))
    add_schema(app, state)
    return Guard(Admission(app, state.gate), state.keys)


def open_socket(port: int | None) -> socket.socket:
    """A listening socket on the loopback interface; without a port the usual one, or any where that is taken.

    It listens at once: two sockets may be bound to one port for as long as neither of them does.

    >>> with open_socket(0) as found:
    ...     found.getsockname()[0]
    '127.0.0.1'
    """
    for candidate in (USUAL, 0) if port is None else (port,):
        found = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # named, or asyncio leaves Nagle on
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, candidate))
            found.listen()
        except OSError as error:
            found.close()
            if port is not None:
                raise UsageError(f"port {port} cannot be used: {error.strerror}; give another --port") from None
            continue
        return found
    raise UsageError("no port is free on 127.0.0.1")


class Server(uvicorn.Server):
    """uvicorn with an end that loses nothing: requests that are on their way when the signal comes are answered."""

    def __init__(self, app: ASGIApp, state: State, on_start: Callable[[], None] | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",  # its warnings are about what strangers send: nothing that the owner can act on
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=512,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=STOP,
        )
        super().__init__(config)
        self.state = state
        self.on_start = on_start
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.on_start is not None and self.started:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: answer with `Connection: close` for a moment, then stop. Second: stop at once."""
        if self.state.gate.stopping or self.loop is None:
            self.force_exit = self.should_exit = True
            return
        self.state.gate.stopping = True
        self.state.jobs.stop()
        self.loop.call_soon_threadsafe(self.loop.call_later, DRAIN, self._end)

    def _end(self) -> None:
        self.should_exit = True


def serve(state: State, listening: socket.socket, on_start: Callable[[], None] | None = None) -> None:
    """Serve until a signal comes."""
    app = make_app(state)
    gc.collect()
    gc.freeze()  # what is here now stays: looking through it again would stop every request for a third of a second
    asyncio.run(Server(app, state, on_start).serve(sockets=[listening]))
