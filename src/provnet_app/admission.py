"""How many requests are worked on at a time, and how much of each is read: counted before a body is looked at.

A request above the limit is told at once to come back. A body is read here, counted as it comes in, handed on whole; a
client that goes away while its answer is made takes the work with it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from provnet_app.limits import BODY_SECONDS, IN_FLIGHT, RETRY, UPLOAD
from provnet_app.security import ApiError, reply

LITTLE = 262_144  # bytes of a refused body that are read and thrown away, so that the refusal arrives
LITTLE_SECONDS = 0.25


@dataclass(eq=False)
class Gate:
    """How many requests are inside, and whether the server is stopping."""

    most: int = IN_FLIGHT
    inside: int = 0
    stopping: bool = False


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
