"""HTTP/1.1 by h11, which refuses what smuggles; a client that does not finish its headers is let go."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from provnet.app.limits import HEADER_SECONDS


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with a limit on how long the headers of each request may take."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first headers are waited for."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Stop the clock where a request's headers are whole; start it where those of a later one have begun."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
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
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
