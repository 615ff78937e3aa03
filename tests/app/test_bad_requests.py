"""Requests that are wrong: the same JSON form for every refusal, nothing invented, nothing left hanging.

Rows 37 to 39 and 78 to 90 of the list of bad inputs; missing and wrong tokens, hosts and origins are in test_security,
a full queue in test_load.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import zlib
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from provnet_app import server
from tests.cases import cases

from .made import API, Live, digit, digits, png, settled
from .test_security import raw


def error(found: httpx.Response) -> dict[str, Any]:
    """The body of a refusal, which has one form."""
    body: dict[str, Any] = found.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "field", "id"}
    assert "Traceback" not in found.text
    return body["error"]  # type: ignore[no-any-return]


PIXELS = [[0] * 8 for _ in range(8)]


def send(live: Live, text: str) -> httpx.Response:
    return live.post("/explain/known", content=text.encode(), headers={"Content-Type": "application/json"})


@cases("value", ["3.5e38", "1e114", "-3.5e38", "1" + "0" * 400, "1e999", "NaN", "Infinity", "-Infinity"])
def test_a_pixel_that_float32_cannot_hold_is_refused(live: Live, value: str) -> None:
    text = json.dumps({"pixels": PIXELS}).replace("0", value, 1)
    found = send(live, text)
    assert found.status_code == 422 and error(found)["code"] in ("not_finite", "invalid")
    assert "exemplars" not in found.text


@cases("pixels", ["[]", "[[]]", "[[[]]]", "7", '"x"', "[1,2]", "[[0,1],[2]]", "[[true]]", json.dumps([PIXELS] * 3)])
def test_pixels_of_another_shape_are_refused(live: Live, pixels: str) -> None:
    found = send(live, f'{{"pixels": {pixels}}}')
    assert found.status_code == 422
    error(found)


@cases(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "[" * 10_000,
        '{"a":' * 1000 + "1" + "}" * 1000,
        '{"test": 1, "test": 2}',
        '{"test": 1, "path": "/etc/passwd"}',
        '{"test": 1, "sha256": "' + "0" * 64 + '"}',
        '{"test": -1}',
        '{"test": 1.5}',
        '{"test": "1"}',
        '{"test": true}',
        '{"test": 9223372036854775808}',
        '{"test": 1, "k": 0}',
        '{"test": 1, "k": 51}',
        '{"test": 1, "weights": "none"}',
        '{"test": 1, "distort": {"noise": 2}}',
        '{"test": 1, "distort": {"noise": NaN}}',
        '{"sha256": "\\ud800"}',
        '{"sha256": "\\u0000"}',
        '{"sha256": ""}',
        '{"sha256": "' + "x" * 100_000 + '"}',
        '{"test": 1, "without": [' + ",".join(['"' + "0" * 64 + '"'] * 33) + "]}",
    ],
    ids=lambda text: text[:40],
)
def test_json_that_does_not_fit_is_refused(live: Live, text: str) -> None:
    found = send(live, text)
    assert found.status_code == 422
    error(found)


@pytest.mark.parametrize("text", ["", "x" * 4097, "\ud800", "a\0b"], ids=["empty", "long", "surrogate", "NUL"])
def test_texts_that_are_none_are_refused(live: Live, text: str) -> None:
    body = json.dumps({"items": [{"sample_id": text, "sha256": "0" * 64}], "decision": "drop"})
    found = live.post("/decisions", content=body.encode(), headers={"Content-Type": "application/json"})
    assert found.status_code == 422
    error(found)


def test_a_parameter_is_given_once(live: Live) -> None:
    assert live.get("/samples?limit=1&limit=2").status_code == 422
    keys = [digits("train", 80).samples.hex(i) for i in (0, 1)]
    found = live.send(f"/explain?without={keys[0]}&without={keys[1]}", digit())
    assert found.json()["without"]["asked"] == 2


def test_numbers_of_every_size_survive(live: Live) -> None:
    found = live.get(f"/samples?offset={2**53 - 1}").json()
    assert found["offset"] == 2**53 - 1 and found["items"] == []
    assert live.post("/explain/known", json={"test": 2**53 - 1}).status_code == 404
    assert live.post("/explain/known", json={"test": 3.0}).status_code == 200


@cases("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "image/gif", ""])
def test_other_content_types_are_refused(live: Live, kind: str) -> None:
    for path in ("/explain", "/queries", "/explain/known", "/credit/sources"):
        found = live.send(path, digit(), kind)
        assert found.status_code == 415
        error(found)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def saved(kind: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (9, 9)).save(buffer, kind, **more)
    return buffer.getvalue()


BAD: dict[str, bytes] = {
    "empty": b"",
    "random": bytes(range(256)),
    "cut": digit()[:-20],
    "huge": bomb(40_000, 40_000),
    "large": bomb(10_000, 9_500),
    "no rows": bomb(10, 0),
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "pdf": b"%PDF-1.4",
    "gif": saved("GIF"),
    "html": b"<!doctype html><script>alert(1)</script>",
    "pickle": b"\x80\x04\x95",
    "zip": b"PK\x03\x04",
}


@cases("name", list(BAD))
def test_what_is_no_picture_is_refused(live: Live, name: str) -> None:
    found = live.send("/explain", BAD[name])
    assert found.status_code in (415, 422)
    assert error(found)["code"] in ("wrong_type", "bad_picture")


def test_an_empty_file_is_called_empty(live: Live) -> None:
    assert "empty" in error(live.send("/queries", b""))["message"]


def test_a_picture_keeps_no_data_of_its_camera(live: Live) -> None:
    exif = Image.Exif()
    exif[0x010F] = "GPS-CANARY"
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (9, 9, 9)).save(buffer, "JPEG", exif=exif)
    key = live.send("/queries", buffer.getvalue(), "image/jpeg").json()["sha256"]
    assert b"GPS-CANARY" in buffer.getvalue() and b"GPS-CANARY" not in live.get(f"/pictures/{key}").content


def test_a_body_over_the_limit_is_refused_however_it_comes(live: Live) -> None:
    def parts() -> Any:
        for _ in range(11):
            yield bytes(1_000_000)

    with live.client() as client:
        for body in (parts(), bytes(10_000_001)):
            try:
                found = client.post("/explain", content=body, headers={"Content-Type": "image/png"})
            except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):  # it is not read to its end
                continue
            assert found.status_code == 413 and error(found)["code"] == "too_large"
        assert client.get("/run").status_code == 200
    head = [f"POST {API}/explain HTTP/1.1", f"Host: 127.0.0.1:{live.port}", f"Authorization: Bearer {live.token}"]
    status, body = raw(live, *head, "Content-Type: image/png", "Content-Length: 99999999999")
    assert status == 413 and b"too_large" in body


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 3", "Content-Length: 4"),
        ("Content-Length: -1",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding: xchunked",),
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("transfer-encoding: chunked", "CONTENT-LENGTH: 3"),
        ("Content-Length: 3\x0b",),
        ("X: " + "y" * 100_000,),
        tuple(f"X-{i}: y" for i in range(10_000)),
    ],
    ids=lambda lines: lines[0][:30],
)
def test_shapes_that_smuggle_and_floods_of_headers_are_refused(live: Live, lines: tuple[str, ...]) -> None:
    head = [f"POST {API}/explain HTTP/1.1", f"Host: 127.0.0.1:{live.port}", f"Authorization: Bearer {live.token}"]
    try:
        status, _ = raw(live, *head, "Content-Type: image/png", *lines, body=b"abc")
    except (ConnectionError, TimeoutError):  # closed while the flood was still coming in
        status = 400
    assert status in (400, 413, 431, 501)


def test_a_length_told_in_two_ways_is_no_valid_request_even_where_both_agree(live: Live) -> None:
    head = [f"POST {API}/explain HTTP/1.1", f"Host: 127.0.0.1:{live.port}", f"Authorization: Bearer {live.token}"]
    chunked = b"3\r\nabc\r\n0\r\n\r\n"
    both = ("Content-Type: image/png", f"Content-Length: {len(chunked)}", "Transfer-Encoding: chunked")
    assert raw(live, *head, *both, body=chunked)[0] == 400
    assert raw(live, *head, *both[:1], both[2], body=chunked)[0] not in (400, 500)  # one way alone is read


def test_ten_thousand_parameters_are_refused(live: Live) -> None:
    found = live.get("/samples?" + "&".join(f"a{i}=1" for i in range(1_500)))
    assert found.status_code == 422
    status, _ = raw(live, "GET /" + "a" * 70_000 + " HTTP/1.1", f"Host: 127.0.0.1:{live.port}")
    assert status in (400, 414)


def test_unknown_routes_and_methods_have_the_same_form(live: Live) -> None:
    assert error(live.get("/nothing"))["code"] == "not_found"
    with live.client() as client:
        found = client.put("/run")
        assert (
            found.status_code == 405
            and error(found)["code"] == "method_not_allowed"
            and found.headers["allow"] == "GET"
        )
        assert client.get(f"{live.base}{API}/run/").status_code == 404
        assert client.get(f"{live.base}/nothing").status_code == 404


def test_a_slow_body_is_given_up(fresh: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from .made import serving

    original = server.Admission.__init__

    def quick(self: Any, app: Any, gate: Any, **_: Any) -> None:
        original(self, app, gate, seconds=0.3)

    monkeypatch.setattr(server.Admission, "__init__", quick)
    with serving(replace(fresh.state.served, keep=None)) as live:
        head = [f"POST {API}/explain HTTP/1.1", f"Host: 127.0.0.1:{live.port}", f"Authorization: Bearer {live.token}"]
        status, body = raw(live, *head, "Content-Type: image/png", "Content-Length: 100", body=b"a")
        assert status == 408 and b"slow_body" in body
        settled(live)


def test_a_client_that_leaves_takes_its_work_with_it(fresh: Live) -> None:
    """Half a body, then gone; and gone while the answer waits in the queue: both leave nothing behind."""
    head = f"POST {API}/explain HTTP/1.1\r\nHost: 127.0.0.1:{fresh.port}\r\nAuthorization: Bearer {fresh.token}\r\n"
    picture = digit()
    for body in (picture[:50], picture):
        with socket.create_connection(("127.0.0.1", fresh.port)) as link:
            text = f"{head}Content-Type: image/png\r\nContent-Length: {len(picture)}\r\n\r\n"
            link.sendall(text.encode() + body)
    settled(fresh)
    assert fresh.send("/explain", picture).status_code == 200


def test_one_bad_query_does_not_fail_its_neighbours(fresh: Live) -> None:
    """A query whose scores are not finite is refused alone."""
    from concurrent.futures import ThreadPoolExecutor

    engine = fresh.state.engine
    original = engine._explained

    def touchy(batch: Any) -> Any:
        from provnet.base.errors import NonFiniteError

        if any(int(ticket.image[0, 0, 0]) == 255 for ticket in batch):
            raise NonFiniteError("the scores are not finite")
        return original(batch)

    engine._explained = touchy  # type: ignore[method-assign]
    bad = np.full((8, 8), 255, np.uint8)
    pictures = [png(bad) if i % 4 == 0 else png(digits("test", 60).images[i].numpy()) for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda one: fresh.send("/explain", one).status_code, pictures))
    assert statuses == [422 if i % 4 == 0 else 200 for i in range(16)]
