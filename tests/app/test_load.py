"""Too much at once, and the end: refusals that can be read, a gate that opens again, nothing lost on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from provnet_app.served import Served
from provnet_app.server import open_socket

from .made import API, Live, digit, serving, settled, until


def test_above_the_limit_requests_are_told_to_come_back(served: Served) -> None:
    with serving(served, most=3) as live:
        engine, release = live.state.engine, threading.Event()
        original = engine._explained

        def held(batch: Any) -> Any:
            release.wait(60)
            return original(batch)

        engine._explained = held  # type: ignore[method-assign]
        with ThreadPoolExecutor(40) as pool:
            first = [pool.submit(live.send, "/explain", digit(i)) for i in range(3)]
            until(lambda: live.state.gate.inside == 3)
            others = list(pool.map(lambda i: live.send("/explain", digit(i)), range(30)))
            assert [one.status_code for one in others] == [503] * 30
            assert {one.headers["retry-after"] for one in others} == {"1"}
            assert others[0].json()["error"]["code"] == "busy"
            large = live.post("/explain", content=bytes(3_000_000), headers={"Content-Type": "image/png"})
            assert large.status_code == 503, "refused before its body was read, and the refusal arrives"
            assert httpx.get(live.base + "/").status_code == 200, "the page itself is not counted"
            release.set()
            assert [one.result().status_code for one in first] == [200] * 3
        settled(live)
        assert live.send("/explain", digit()).status_code == 200


def test_strangers_take_no_place_of_the_owner(served: Served) -> None:
    head = f"POST {API}/session HTTP/1.1\r\nHost: 127.0.0.1:{{}}\r\nContent-Length: 9000000\r\n\r\n"
    with serving(served, most=3) as live, ExitStack() as stack:
        for _ in range(3):  # as many as are worked on at a time
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=60))
            wire.sendall(head.format(live.port).encode() + b"{")
            assert wire.recv(65_536).startswith(b"HTTP/1.1 401"), "refused before its body is there"
        assert live.post("/session").status_code == 204 and live.get("/jobs").status_code == 200


def test_two_servers_that_start_at_once_take_two_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_socket(0) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr("provnet_app.server.USUAL", port)
    with open_socket(None) as first, open_socket(None) as second:  # none of them is served yet
        assert first.getsockname()[1] == port != second.getsockname()[1]


def test_what_waits_together_is_answered_together(served: Served) -> None:
    with serving(served) as live:
        engine, release = live.state.engine, threading.Event()
        live.send("/explain", digit())
        original, sizes = engine._explained, []

        def held(batch: Any) -> Any:
            sizes.append(len(batch))
            release.wait(60)
            return original(batch)

        engine._explained = held  # type: ignore[method-assign]
        with ThreadPoolExecutor(21) as pool:
            found = [pool.submit(live.send, "/explain", digit(i)) for i in range(21)]
            until(lambda: sum(sizes) + engine._waiting.qsize() == 21)
            release.set()
            assert [one.result().status_code for one in found] == [200] * 21
        assert len(sizes) == 2 and sum(sizes) == 21, "whatever came while the first were worked on"


@pytest.fixture
def process(served: Served, tmp_path: Path) -> Any:
    """`provnet app` as a process of its own; its data cannot be opened again, so it explains uploads alone."""
    command = [sys.executable, "-m", "provnet", "app", str(served.folder), "--no-browser", "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as found:
        yield found
        if found.poll() is None:
            found.kill()


def test_the_command_prints_its_address_and_sigterm_loses_nothing(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stderr is not None
    line = next(line for line in process.stdout if "#t=" in line)
    address, token = line.split()[-1].split("/#t=")
    port = int(address.rpartition(":")[2])
    assert address == f"http://127.0.0.1:{port}" and len(token) >= 43
    head = f"POST {API}/explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
    picture = digit()
    request = f"{head}Content-Type: image/png\r\nContent-Length: {len(picture)}\r\n\r\n".encode() + picture

    async def flying() -> list[int]:
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        for _, writer in links:
            writer.write(request)
            await writer.drain()
        process.send_signal(signal.SIGTERM)

        async def status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
            found = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(found.partition("content-length: ")[2].split("\r\n")[0])
            await reader.readexactly(length)
            writer.close()
            return int(found.split(" ")[1])

        return list(await asyncio.gather(*(status(*link) for link in links)))

    assert asyncio.run(asyncio.wait_for(flying(), 60)) == [200] * 30
    assert process.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)
    assert token not in process.stderr.read()


def test_a_taken_port_and_a_missing_extra_are_explained(
    live: Live, served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from provnet.cli import main

    run = str(served.folder)
    assert main(["app", run, "--no-browser", "--port", str(live.port)]) == 2
    assert "give another --port" in capsys.readouterr().err
    assert main(["app", run, "--exposure", "all"]) == 2
    assert "allowed: full, ids, thumb" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["app", run]) == 2
    assert "pip install '.[app]'" in capsys.readouterr().err


def test_what_is_not_trained_here_shows_no_pictures(served: Served, tmp_path: Path) -> None:
    import shutil

    from provnet.cli.app_command import gather

    assert served.folder is not None
    assert gather(served.folder, None, None, None, "cpu").exposure == "full"
    shared = shutil.copytree(served.folder, tmp_path / "shared")
    (shared / "log.jsonl").unlink()
    assert gather(shared, None, None, None, "cpu").exposure == "ids"
    found = gather(shared, "thumb", None, None, "cpu")
    assert found.exposure == "thumb" and found.training is None and found.facts and found.keep == shared / "app"
