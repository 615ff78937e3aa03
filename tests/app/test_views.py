"""Map, membership, credit and run over HTTP."""

from __future__ import annotations

import numpy as np
import pytest

from provnet_app.served import Served

from .made import NAMES, Live, digit, digits, png


def test_the_map_has_every_sample_and_its_hash(live: Live) -> None:
    found = live.get("/map").json()
    samples = digits("train", 80).samples
    assert found["n"] == len(found["x"]) == len(found["y"]) == len(found["cluster"]) == 82
    places = np.array([found["x"], found["y"]])
    assert places.min() >= 0 and places.max() == 1.0
    raw = live.get("/map/hashes").content
    assert raw == samples.sha256[found["index"]].tobytes()
    assert found["class"] == samples.labels[found["index"]].tolist()
    assert len(found["mislabel"]) == 82
    assert sum(group["samples"] for group in found["clusters"]) == 82
    for wrong in found["misattributed"]:
        assert wrong["label"] in NAMES and wrong["sha256"] == digits("test", 60).samples.hex(wrong["position"])


def test_a_query_lies_among_the_samples_that_are_named_for_it(live: Live) -> None:
    key = live.send("/queries", digit(8)).json()["sha256"]
    found = live.post("/map/place", json={"sha256": key}).json()
    known = live.post("/map/place", json={"test": 8}).json()
    assert found == known
    points = live.get("/map").json()
    spots = {i: (x, y) for i, x, y in zip(points["index"], points["x"], points["y"], strict=True)}
    near = np.array([spots[one["index"]] for one in found["near"]])
    assert (near.min(0) - 1e-3 <= [found["x"], found["y"]]).all()
    assert (near.max(0) + 1e-3 >= [found["x"], found["y"]]).all()
    moved = live.post("/map/place", json={"test": 8, "distort": {"occlusion": 1}}).json()
    assert moved["near"] != found["near"]


def test_members_are_recognised_by_bytes_and_pixels(live: Live) -> None:
    data = digits("train", 80)
    upload = live.send("/queries", png(data.images[20].numpy())).json()["sha256"]
    stranger = live.send("/queries", digit(11)).json()["sha256"]
    found = live.post("/membership", json={"sha256": [data.samples.hex(20), upload, stranger]}).json()["items"]
    assert [one["agrees"] for one in found[:2]] == ["bytes", "pixels"]
    assert [one["verdict"] for one in found[:2]] == ["member", "member"]
    assert found[1]["match"]["index"] == 20 and found[1]["match"]["label"] == NAMES[int(data.samples.labels[20])]
    assert found[2]["verdict"] != "member" and found[2]["heldout"] == 60


def test_the_roc_has_curves_with_intervals(live: Live) -> None:
    found = live.get("/membership/roc").json()
    assert found["members"] == 82 and found["nonmembers"] == 60
    assert found["curves"][0]["decides"] and found["curves"][0]["name"] == found["score"]
    for curve in found["curves"]:
        assert curve["points"][0] == [0, 0] and curve["points"][-1] == [1, 1]
        assert curve["auc"]["low"] <= curve["auc"]["value"] <= curve["auc"]["high"]
        assert [one["fpr"] for one in curve["at"]] == [0.01, 0.001]
    assert found["lookup"]["bytes"]["members"]["value"] == 1.0 and found["distorted"]


def test_credit_needs_contributors_and_then_sums_to_one(fresh: Live) -> None:
    asked = {"test": {"first": 0, "count": 30}}
    assert fresh.post("/credit", json=asked).status_code == 409
    ids = digits("train", 80).samples.sample_ids
    rows = [f"{name},{'Ann <b>' if i % 2 else 'Bob'}" for i, name in enumerate(ids[:60])] + ["nowhere/1,Carl"]
    sent = fresh.send("/credit/sources", "\n".join(["sample_id,contributor", *rows]).encode(), "text/csv")
    assert sent.json() == {
        "known": True,
        "about": "sources.csv",
        "unlisted": 22,
        "strangers": 1,
        "total": 2,
        "items": [{"name": "Ann <b>", "samples": 30}, {"name": "Bob", "samples": 30}],
    }
    found = fresh.post("/credit", json=asked).json()
    assert {one["name"] for one in found["contributors"]} == {"Ann <b>", "Bob", "(not listed)"}
    assert sum(one["share"]["value"] for one in found["contributors"]) == pytest.approx(1)
    assert [one["name"] for one in found["top"]] == [one["name"] for one in found["contributors"]]
    assert found["queries"] == 30 and found["lorenz"][0] == [0, 0]
    key = fresh.send("/queries", digit(2)).json()["sha256"]
    assert fresh.post("/credit", json={"sha256": [key], "k": 1}).json()["queries"] == 1
    assert fresh.post("/credit", json={"test": {"first": 10_000, "count": 1}}).status_code == 404
    with fresh.client() as client:
        assert client.delete("/credit/sources").json()["known"] is False
    for bad in (b"", b"sample_id\nx\n", b"sample_id,contributor\nnowhere,Ann\n", b"\xff\xfe\x00"):
        assert fresh.send("/credit/sources", bad, "text/csv").status_code == 422


def test_the_run_is_described(live: Live, served: Served) -> None:
    found = live.get("/run").json()
    assert found["name"] == "a <b>run</b>" and found["exposure"] == "full" and found["samples"] == 82
    assert found["input"] == {
        "shape": [1, 8, 8],
        "kind": "image",
        "typed": False,
        "columns": [],
        "picture": True,
        "height": 8,
        "width": 8,
        "channels": 1,
        "drawable": True,
        "large": False,
    }
    assert found["views"] == ["explain", "data", "answers", "map", "membership", "credit", "run"]
    assert found["beside"] is None and found["task"] == "classify"
    assert live.get("/run/card").json()["markdown"].startswith("---\n")
    curves = live.get("/run/curves").json()
    assert curves["epochs"] == [1, 2] and curves["series"] == [{"name": "loss", "values": [2.5, 1.5]}]
    assert len(curves["history"]["median"]) == 2
    assert live.get("/run/evaluation").json() == {"measures": []}
    assert live.get("/run/checks").json()["outcomes"] == []
    files = live.get("/run/files").json()
    assert files["verified"] and files["data"] == {"available": 82, "left_out": 0, "facts": []}
    assert served.folder is not None
    place = served.folder / "README.md"
    before = place.read_bytes()
    try:
        place.write_bytes(before + b"x")
        changed = live.get("/run/files").json()
        assert not changed["verified"] and str(served.folder) not in str(changed)
    finally:
        place.write_bytes(before)


def test_static_files_have_types_and_tags(live: Live) -> None:
    import httpx

    page = httpx.get(live.base + "/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert httpx.get(live.base + "/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    assert httpx.get(live.base + "/static/index.html").content == page.content
    assert httpx.post(live.base + "/").status_code == 405
