"""The server: routes put together, layers around them, a socket on this machine alone, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from provnet.app.admission import Admission
from provnet.app.credit_api import credit_routes
from provnet.app.data_api import data_routes
from provnet.app.decisions_api import decision_routes
from provnet.app.errors import HANDLERS
from provnet.app.explain_api import explain_routes
from provnet.app.generate import generate_routes
from provnet.app.jobs_api import job_routes, session_routes
from provnet.app.limits import DRAIN, STOP
from provnet.app.map_api import map_routes
from provnet.app.membership_api import membership_routes
from provnet.app.picture_api import picture_routes
from provnet.app.protocol import PatientProtocol
from provnet.app.run_api import run_routes
from provnet.app.schema import add_schema
from provnet.app.security import API, Guard
from provnet.app.state import State
from provnet.app.static_files import read_assets, static_routes
from provnet.errors import UsageError

HOST = "127.0.0.1"
USUAL = 8808
ROUTES = (
    session_routes,
    run_routes,
    explain_routes,
    picture_routes,
    job_routes,
    data_routes,
    decision_routes,
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
    for make in ROUTES:
        app.include_router(make(state))
    more = generate_routes(state)
    if more is not None:
        app.include_router(more)
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
