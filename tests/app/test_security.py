"""Who may speak: Host, Origin, token; no path, no other site, the same headers on everything."""

from __future__ import annotations

import csv
import http.client
import io
import json
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from provnet_app.map_api import _csv as selection_csv
from provnet_app.security import HEADERS
from provnet_app.served import Served
from tests.cases import cases

from .made import API, NAMES, Live, digit, digits, serving, trained


def raw(live: Live, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    """A request as it is typed: status and body."""
    text = "\r\n".join(lines) + "\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=60) as link:
        link.sendall(text.encode("latin-1") + body)
        answer = http.client.HTTPResponse(link)
        answer.begin()
        return answer.status, answer.read()


HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1:{port}.",
    "127.0.0.1.:{port}",
    "localhost.:{port}",
    "localhost",
    "localhost:{port}@evil.example",
    "user@127.0.0.1:{port}",
    "2130706433:{port}",
    "0x7f.0.0.1:{port}",
    "127.1:{port}",
    "0.0.0.0:{port}",
    "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "127.0.0.1:{port}, evil.example",
    "127.0.0.1:{port}/x",
    "",
]


@cases("host", HOSTS)
def test_other_spellings_of_the_host_are_refused(live: Live, host: str) -> None:
    host = host.format(port=live.port)
    for path in ("/", f"{API}/run"):
        status, body = raw(live, f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {live.token}")
        assert status in (400, 403), body
        assert b"a <b>run" not in body


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}"])
def test_its_own_names_are_answered(live: Live, host: str) -> None:
    line = f"Host: {host.format(port=live.port)}"
    assert (
        raw(live, f"GET {API}/run HTTP/1.1", line, f"Authorization: Bearer {live.token}", "Connection: close")[0] == 200
    )


def test_no_host_and_two_hosts_are_refused(live: Live) -> None:
    own = f"Host: 127.0.0.1:{live.port}"
    token = f"Authorization: Bearer {live.token}"
    assert raw(live, f"GET {API}/run HTTP/1.1", token)[0] == 400
    assert raw(live, f"GET {API}/run HTTP/1.0", token)[0] == 403
    assert raw(live, f"GET {API}/run HTTP/1.1", own, "Host: evil.example", token)[0] in (400, 403)


@cases(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    ],
    ids=str,
)
def test_another_site_gets_nothing_even_with_the_token(live: Live, headers: dict[str, str]) -> None:
    given = {name: value.format(port=live.port) for name, value in headers.items()}
    key = digits("train", 80).samples.hex(0)
    with live.client() as client:
        for path in ("/run", f"/pictures/{key}"):
            assert client.get(path, headers=given).status_code == 403
        for kind in ("image/png", "text/plain", "application/x-www-form-urlencoded"):
            found = client.post("/explain", content=digit(), headers={**given, "Content-Type": kind})
            assert found.status_code == 403
            assert not any(name.startswith("access-control") for name in found.headers)


def test_preflight_gives_no_permission(live: Live) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    found = httpx.options(f"{live.base}{API}/explain", headers=headers)
    assert found.status_code == 403 and not any(name.startswith("access-control") for name in found.headers)


def test_every_route_needs_the_token(fresh: Live) -> None:
    schema = fresh.get("/openapi.json").json()
    key = "0" * 64
    for path, operations in schema["paths"].items():
        for method in operations:
            address = fresh.base + path.format(sha256=key, name="scores", selection="0" * 16)
            found = httpx.request(method, address)
            assert found.status_code == 401, path
    assert httpx.get(f"{fresh.base}{API}/openapi.json").status_code == 401
    assert httpx.get(f"{fresh.base}{API}/nothing").status_code == 401


def test_the_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(fresh: Live) -> None:
    with httpx.Client(base_url=fresh.base) as client:
        found = client.post(f"{API}/session", headers={"Authorization": f"Bearer {fresh.token}"})
        assert found.status_code == 204
        cookie = found.headers["set-cookie"]
        assert cookie.startswith(f"provnet-{fresh.port}=") and "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert fresh.token not in cookie
        assert client.get(f"{API}/run").status_code == 200
        without_origin = client.post(f"{API}/jobs/scores")
        assert without_origin.status_code == 403, "a form of another page has no Origin of ours"
        own = {"Origin": fresh.base}
        assert client.post(f"{API}/jobs/map", headers=own).status_code == 202
        other = {"Sec-Fetch-Site": "same-origin"}
        assert client.post(f"{API}/decisions/undo", headers=other).status_code == 409


def test_a_websocket_is_refused_without_a_word_to_the_owner(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    assert raw(live, f"GET {API}/run HTTP/1.1", f"Host: 127.0.0.1:{live.port}", *upgrade)[0] == 401
    assert caplog.records == []


def test_wrong_tokens_are_refused_and_slowed_down_and_the_right_one_works(fresh: Live) -> None:
    statuses = [
        httpx.get(f"{fresh.base}{API}/run", headers={"Authorization": f"Bearer {wrong}"}).status_code
        for wrong in ["y", "x", fresh.token[:-1], fresh.token + "x", *["no"] * 10]
    ]
    assert statuses[:10] == [401] * 10 and statuses[10:] == [429] * 4
    assert httpx.post(f"{fresh.base}{API}/session", headers={"Authorization": "Bearer no"}).status_code == 429
    assert fresh.get("/run").status_code == 200
    assert httpx.get(f"{fresh.base}{API}/run", headers={"Authorization": f"Basic {fresh.token}"}).status_code == 429


def test_the_same_headers_stand_on_everything(live: Live) -> None:
    found = [httpx.get(f"{live.base}{path}") for path in ("/", "/static/nothing.js", "/nothing", f"{API}/run")]
    found += [
        live.get("/run"),
        live.get("/nothing"),
        live.send("/explain", b"no picture"),
        live.get("/samples?limit=0"),
    ]
    for one in found:
        assert {name: one.headers.get(name) for name in HEADERS} == HEADERS
        assert "server" not in one.headers
        if one.request.url.path.startswith(API):
            assert one.headers["cache-control"] == "no-store"
    assert "unsafe-inline" not in HEADERS["content-security-policy"]


TRAVERSAL = ["../" * depth + name for depth in (1, 8) for name in ("etc/passwd", "run/config.json", "decisions.json")]
TRAVERSAL += [text.replace("/", "%2f") for text in TRAVERSAL] + [text.replace("../", "..\\") for text in TRAVERSAL]
TRAVERSAL += ["/etc/passwd", "//etc/passwd", "file:///etc/passwd", "C:\\Windows\\win.ini", "....//....//etc/passwd"]
TRAVERSAL += ["%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc", "..%c0%afetc", "..;/etc/passwd", "index.html%00.js", "."]
TRAVERSAL += ["~/.ssh/id_rsa", "\\\\host\\share", "index.html::$DATA", "INDEX.HTML", "a" * 5000, "http://127.0.0.1/"]


def parameters(schema: dict[str, object]) -> list[tuple[str, str, str, str]]:
    """(method, path, where, name) of every string parameter."""
    found = []
    for path, operations in schema["paths"].items():  # type: ignore[attr-defined]
        for method, operation in operations.items():
            for one in operation.get("parameters", []):
                kinds = json.dumps(one["schema"])
                if '"string"' in kinds or one["schema"].get("enum") or "array" in kinds:
                    found.append((method, path, one["in"], one["name"]))
    return found


def test_traversal_in_every_string_parameter_and_on_the_wire(live: Live) -> None:
    schema = live.get("/openapi.json").json()
    strings = parameters(schema)
    assert {("query", "text"), ("path", "sha256"), ("path", "selection"), ("query", "without")} <= {
        s[2:] for s in strings
    }
    with live.client() as client:
        for method, path, where, name in strings:
            for text in TRAVERSAL:
                if where == "path":
                    continue
                found = client.request(method, live.base + path, params={name: text})
                assert found.status_code in (415, 422) or (
                    found.status_code == 200 and name in ("id", "text", "tag")
                ), path
                assert b"root:" not in found.content
    paths = {path[: path.index("{")] for _, path, where, _ in strings if where == "path"}
    assert paths == {f"{API}/{name}/" for name in ("pictures", "samples", "selections", "jobs")}
    for text in TRAVERSAL:
        if " " in text:
            continue
        for prefix in ("/", "/static/", *paths):
            if (prefix, text) in (("/", "."), ("/", "//etc/passwd")):
                continue
            head = [
                f"GET {prefix}{text} HTTP/1.1",
                f"Host: 127.0.0.1:{live.port}",
                f"Authorization: Bearer {live.token}",
            ]
            status, body = raw(live, *head, "Connection: close")
            assert status in (400, 404, 405, 422), (prefix, text, body[:100])
            assert b"root:" not in body


def test_names_are_text_everywhere_and_formulas_are_defused(live: Live) -> None:
    found = live.get("/samples?limit=500").json()
    assert {item["label"] for item in found["items"]} == set(NAMES)
    index = [item["index"] for item in found["items"] if item["label"].startswith("=")]
    selection = live.post("/selections", json={"index": index}).json()["selection"]
    lines = live.get(f"/selections/{selection}.csv").text.splitlines()[1:]
    assert all(",'=cmd" in line or ",\"'=cmd" in line for line in lines)


def test_ids_in_the_csv_of_a_selection_are_defused() -> None:
    samples = digits("train", 80).samples
    ids = ("=cmd|'/C calc'!A0", "@SUM(1)", "+1/-a.png", "\t=1", *samples.sample_ids[4:])
    state: Any = SimpleNamespace(served=SimpleNamespace(run=SimpleNamespace(samples=replace(samples, sample_ids=ids))))
    cells = [row[0] for row in csv.reader(io.StringIO(selection_csv(state, np.arange(5)).decode(), newline=""))]
    assert cells[1:] == [*(f"'{name}" for name in ids[:4]), ids[4]]


@pytest.fixture(scope="module")
def hidden() -> Served:
    """A run with keys, three of whose samples are withheld; one of them is in the test split, too."""
    run, data = trained("class-independent", "exemplar"), digits("train", 80)
    withheld = np.zeros(len(data), dtype=np.bool_)
    withheld[[4, 17, 30]] = True
    run = replace(run, samples=replace(run.samples, withheld=withheld))
    test = digits("test", 60)
    images, raw, pixels = test.images.clone(), test.samples.sha256.copy(), test.samples.pixel_sha256.copy()
    images[2], raw[2], pixels[2] = data.images[4], data.samples.sha256[4], data.samples.pixel_sha256[4]
    mixed = replace(test, images=images, samples=replace(test.samples, sha256=raw, pixel_sha256=pixels))
    samples = replace(data.samples, withheld=withheld)
    return Served(
        run=run, name="hidden", training=replace(data, samples=samples), index=np.arange(len(data)), test=mixed
    )


def test_a_withheld_sample_appears_nowhere(hidden: Served) -> None:
    samples = hidden.run.samples
    rows = np.flatnonzero(samples.withheld)
    secret = [samples.hex(int(i)) for i in rows] + [f'"{samples.sample_ids[int(i)]}"' for i in rows]
    raw_hashes = [samples.sha256[int(i)].tobytes() for i in rows]
    with serving(hidden) as live:
        for job in ("scores", "membership", "map"):
            live.wait(job)
        answers = [live.get(path) for path in ("/run", "/samples?limit=500", "/test?limit=500", "/groups", "/map")]
        answers += [live.get("/map/hashes"), live.get("/samples?sort=mislabel&limit=500"), live.get("/membership/roc")]
        own = [live.send("/explain?k=50", digit_of(hidden, int(i))) for i in rows]
        keys = [one.json()["query"]["sha256"] for one in own]
        answers += own
        answers += [live.post("/membership", json={"sha256": keys}), live.post("/map/place", json={"sha256": keys[0]})]
        for one in answers:
            assert one.status_code == 200
            assert not any(text in one.text for text in secret)
            assert not any(digest in one.content for digest in raw_hashes)
        assert live.get("/run").json()["withheld"] == 3 and live.get("/test").json()["total"] == 59
        assert all(v["agrees"] == "nothing" for v in live.post("/membership", json={"sha256": keys}).json()["items"])
        for text in secret[:3]:
            assert live.get(f"/pictures/{text}").status_code == 404
            assert live.get(f"/samples/{text}").status_code == 404
            assert live.post("/explain/known", json={"sha256": text}).status_code == 404
            name = {"sample_id": secret[3].strip('"'), "sha256": secret[0]}
            assert live.post("/decisions", json={"items": [name], "decision": "drop"}).status_code == 404
        assert live.post("/explain/known", json={"test": 2}).status_code == 404
        assert live.post("/selections", json={"index": [int(rows[0])]}).status_code == 404


def digit_of(served: Served, row: int) -> bytes:
    from .made import png

    assert served.training is not None
    return png(served.training.images[row].numpy())
