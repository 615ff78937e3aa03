"""A light client for benchmarks/serve.py: plain sockets, one request at a time on each, every answer counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class Tally:
    """What happened: statuses, seconds of every answered request, answers that never came."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    lost: int = 0
    wall: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Rates and times; milliseconds."""
        good = np.array(self.seconds) * 1000
        found: dict[str, object] = {
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "lost": self.lost,
            "seconds": round(self.wall, 2),
            "explanations_per_second": round(len(good) / self.wall, 1) if self.wall else None,
        }
        for name, values in (("", good), ("refused_", np.array(self.refused) * 1000)):
            if len(values):
                ends = np.percentile(values, [50, 99])
                found |= {f"{name}p50_ms": round(float(ends[0]), 1), f"{name}p99_ms": round(float(ends[1]), 1)}
        return found


def request(port: int, token: str, png: bytes, k: int = 5) -> bytes:
    """One POST /explain as it goes over the wire."""
    head = (
        f"POST /api/v1/explain?k={k} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: image/png\r\nContent-Length: {len(png)}\r\n\r\n"
    )
    return head.encode() + png


async def answer(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    """Status, whether the connection ends, and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
    return status, "connection: close" in head, await reader.readexactly(length)


async def load(
    port: int, token: str, pictures: Sequence[bytes], clients: int, seconds: float, pause: float = 0.0
) -> Tally:
    """So many clients, each with its next request as soon as it has an answer; a refused one waits `pause`."""
    tally = Tally()
    requests = [request(port, token, png) for png in pictures]
    begin = time.perf_counter()
    end = begin + seconds

    async def client(number: int) -> None:
        turn = number
        while time.perf_counter() < end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                tally.lost += 1
                await asyncio.sleep(0.05)
                continue
            try:
                while time.perf_counter() < end:
                    sent = time.perf_counter()
                    writer.write(requests[turn % len(requests)])
                    turn += clients
                    status, closes, _ = await answer(reader)
                    took = time.perf_counter() - sent
                    tally.statuses[status] += 1
                    (tally.seconds if status == 200 else tally.refused).append(took)
                    if status != 200:
                        await asyncio.sleep(pause)
                    if closes:
                        break
            except (OSError, asyncio.IncompleteReadError):
                tally.lost += 1
            finally:
                writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    tally.wall = time.perf_counter() - begin
    return tally


@dataclass(eq=False)
class Flight:
    """Requests that were sent before the server was told to stop, and how many of them were answered."""

    sent: int = 0
    answered: int = 0
    lost: int = 0


async def stop_in_flight(
    port: int, token: str, pictures: Sequence[bytes], clients: int, stop: asyncio.Event, told: asyncio.Event
) -> Flight:
    """Keep the server busy until it is told to stop; what was on its way then must be answered."""
    flight = Flight()
    requests = [request(port, token, png) for png in pictures]

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            turn = number
            while not stop.is_set():
                writer.write(requests[turn % len(requests)])
                await writer.drain()
                turn += 1
                flying = not told.is_set()
                try:
                    status, closes, _ = await answer(reader)
                except (OSError, asyncio.IncompleteReadError):
                    flight.sent += flying
                    flight.lost += flying
                    return
                if told.is_set() and flying:
                    flight.sent += 1
                    flight.answered += status == 200
                    flight.lost += status not in (200, 503)
                if closes or told.is_set():
                    return
        finally:
            writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return flight
