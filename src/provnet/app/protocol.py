"""HTTP/1.1 by h11, which refuses what smuggles; a client that does not finish its headers is let go.

So is one that goes on with a body after the answer, which a refusal does not wait for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from provnet.app.limits import HEADER_SECONDS


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
