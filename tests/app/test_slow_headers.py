"""A client that does not finish what it began, headers or a refused body, is let go; one that merely waits is not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from provnet_app import server as protocol
from provnet_app.served import Served

from .made import API, Live, serving


@pytest.fixture(scope="module")
def hasty(served: Served) -> Iterator[Live]:
    """A server that waits for headers half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "HEADER_SECONDS", 0.5)
        with serving(served) as live:
            yield live


def opened(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=60)


def ask(live: Live, wire: socket.socket) -> bytes:
    """A whole request, and the first line of its answer, read to the end of its body."""
    lines = (f"GET {API}/jobs HTTP/1.1", f"Host: 127.0.0.1:{live.port}", f"Authorization: Bearer {live.token}", "", "")
    wire.sendall("\r\n".join(lines).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += wire.recv(65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += wire.recv(65_536)
    return head.split(b"\r\n")[0]


def test_headers_that_do_not_come(hasty: Live) -> None:
    with opened(hasty) as wire:
        assert wire.recv(1) == b""  # nothing was sent at all
    with opened(hasty) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert wire.recv(1) == b""


def test_headers_of_a_later_request_that_do_not_come(hasty: Live) -> None:
    with opened(hasty) as wire:
        assert ask(hasty, wire) == b"HTTP/1.1 200 OK"
        wire.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert wire.recv(1) == b""


def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(hasty: Live) -> None:
    with opened(hasty) as wire:
        head = f"POST {API}/explain HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nContent-Length: 9000000\r\n\r\n"
        wire.sendall(head.encode() + b"x")
        assert wire.recv(65_536).startswith(b"HTTP/1.1 401")
        wire.sendall(b"x")
        while wire.recv(65_536):  # the rest of the refusal, then the end
            pass


def test_one_that_waits_between_requests_stays(hasty: Live) -> None:
    with opened(hasty) as wire:
        assert ask(hasty, wire) == b"HTTP/1.1 200 OK"
        time.sleep(1)  # longer than headers may take
        assert ask(hasty, wire) == b"HTTP/1.1 200 OK"
