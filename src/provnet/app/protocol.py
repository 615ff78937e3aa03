"""HTTP/1.1 by h11, which refuses what smuggles; a client that does not finish its headers is let go."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from provnet.app.limits import HEADER_SECONDS


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with a limit on how long the first headers may take."""

    _first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._first = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._first is not None:
            self._first.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        waiting: Any = self.cycle  # None until the first headers are whole, whatever its type says
        if waiting is None and not self.transport.is_closing():
            self.transport.close()
