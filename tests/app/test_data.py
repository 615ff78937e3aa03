"""Samples, decisions, groups, the test split and pictures over HTTP."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.data.apply import apply_decisions
from provnet.samples.decisions import read_decisions
from provnet.training.config import train_config
from provnet_app.data_api import _summary
from provnet_app.served import Keeping, Served
from tests.cases import cases

from ..fitting import fit
from .made import NAMES, Live, digit, digits, serving, trained


def test_all_samples_come_page_by_page_each_once(live: Live) -> None:
    data = digits("train", 80)
    found: list[str] = []
    for offset in range(0, 100, 30):
        page = live.get(f"/samples?limit=30&offset={offset}").json()
        assert page["total"] == len(data) and page["offset"] == offset
        found += [item["sample_id"] for item in page["items"]]
    assert found == list(data.samples.sample_ids)


@pytest.mark.parametrize("score", ["mislabel", "anomaly", "typicality"])
def test_scores_sort_and_bound(live: Live, score: str) -> None:
    values = [item[score] for item in live.get(f"/samples?sort={score}&order=desc&limit=500").json()["items"]]
    assert values == sorted(values, reverse=True) and len(values) == len(digits("train", 80))
    middle = values[len(values) // 2]
    some = live.get(f"/samples?sort={score}&minimum={middle}&limit=500").json()["items"]
    assert [item[score] for item in some] == [value for value in reversed(values) if value >= middle]


def test_filters_narrow(live: Live) -> None:
    labels = digits("train", 80).samples.labels
    assert live.get("/samples?class=3").json()["total"] == int((labels == 3).sum())
    assert live.get("/samples?class=99").json()["total"] == 0
    assert live.get("/samples?text=TRAIN/00").json()["total"] == 10
    assert live.get("/samples?flag=added").json()["total"] == 0
    picked = live.post("/selections", json={"index": [5, 2, 5]}).json()
    assert picked["samples"] == 2
    found = live.get(f"/samples?selection={picked['selection']}").json()
    assert [item["index"] for item in found["items"]] == [2, 5]
    csv = live.get(f"/selections/{picked['selection']}.csv")
    assert csv.headers["content-type"].startswith("text/csv") and len(csv.text.splitlines()) == 3


def test_duplicates_are_grouped_and_conflicts_named(live: Live) -> None:
    data = digits("train", 80)
    groups = live.get("/groups").json()
    members = [{item["index"] for item in group["samples"]} for group in groups["items"]]
    assert any({0, 80} <= group for group in members) and any({1, 81} <= group for group in members)
    conflicts = live.get("/groups?conflict=true").json()
    assert conflicts["total"] >= 1 and all(group["conflict"] for group in conflicts["items"])
    item = live.get(f"/samples/{data.samples.hex(0)}").json()["items"]
    assert [one["index"] for one in item] == [0, 80] and item[0]["exact"] and item[0]["group_size"] >= 2
    by_group = live.get(f"/samples?group={item[0]['group']}").json()
    assert {0, 80} <= {one["index"] for one in by_group["items"]}
    summary = live.get("/summary").json()
    assert summary["duplicate_groups"] == groups["total"]
    assert [sum(counts) for counts in summary["histograms"].values()] == [82] * 4


def test_what_cannot_be_told_is_said(served: Served, live: Live) -> None:
    summary = live.get("/summary").json()
    assert summary["expected_wrong"] is None and summary["cannot_tell"].startswith("the signals have a power of")
    assert (summary["flagged"]["low"], summary["flagged"]["high"]) == (None, None)
    assert summary["certainly_wrong"] == 1 and 41 < summary["most_wrong"] <= 82
    strong = replace(live.state.jobs.results["scores"], cannot_tell="")
    decisions = SimpleNamespace(mask=lambda kind: np.zeros(82, np.bool_))
    told = _summary(
        SimpleNamespace(jobs=SimpleNamespace(result=lambda name: strong), served=served, decisions=decisions)
    )
    assert told.cannot_tell is None and told.expected_wrong is not None and told.flagged.low is not None


def test_pictures_under_two_labels_come_first(live: Live) -> None:
    first = live.get("/samples?sort=mislabel&order=desc&limit=2").json()["items"]
    assert all(item["conflict"] for item in first)
    pair = [item for item in live.get("/samples?flag=conflict&limit=500").json()["items"] if item["exact"]]
    assert pair and all(item["advised"] == "drop" and item["suggested"] is None for item in pair)


def test_where_it_cannot_tell_no_label_is_suggested(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = live.state.jobs.results["scores"]
    sure = replace(scores, mislabel=np.ones_like(scores.mislabel))
    for cannot_tell, advised in ((scores.cannot_tell, "keep"), ("", "relabel")):
        monkeypatch.setitem(live.state.jobs.results, "scores", replace(sure, cannot_tell=cannot_tell))
        items = [item for item in live.get("/samples?limit=500").json()["items"] if not item["conflict"]]
        assert items and {item["advised"] for item in items} == {advised}
        assert all("mislabel" in item["flags"] for item in items)
        assert all((item["suggested"] is None) == (advised == "keep") for item in items)


def test_scores_that_are_not_there_are_said_to_be_missing(fresh: Live) -> None:
    assert fresh.get("/samples").json()["items"][0]["mislabel"] is None
    for path in (
        "/samples?sort=mislabel",
        "/samples?flag=conflict",
        "/groups",
        "/map",
        "/map/hashes",
        "/membership/roc",
    ):
        found = fresh.get(path)
        assert found.status_code == 409 and found.json()["error"]["code"] == "not_ready"
    assert fresh.get("/summary").json()["scores"] is False


def name(row: int) -> dict[str, str]:
    samples = digits("train", 80).samples
    return {"sample_id": samples.sample_ids[row], "sha256": samples.hex(row)}


def test_decisions_are_made_undone_kept_and_applied(served: Served, tmp_path: Path) -> None:
    place = replace(served, keep=tmp_path / "kept")
    with serving(place) as live:
        live.post("/decisions", json={"items": [name(3)], "decision": "drop"})
        live.post("/decisions", json={"items": [name(4), name(5)], "decision": "relabel", "new_label": NAMES[6]})
        live.post("/decisions", json={"items": [name(3), name(6)], "decision": "keep"})
        assert live.get("/decisions").json()["counts"] == {"keep": 2, "relabel": 2, "drop": 0}
        assert live.post("/decisions/undo").json()["counts"] == {"keep": 0, "relabel": 2, "drop": 1}
        assert live.post("/decisions/redo").json()["counts"] == {"keep": 2, "relabel": 2, "drop": 0}
        found = live.post("/decisions/undo").json()
        assert (found["undo"], found["redo"], found["saved"]) == (2, 1, True)
        assert live.get("/samples?decision=drop").json()["items"][0]["index"] == 3
        assert live.get("/samples?decision=none").json()["total"] == 79
    with serving(place) as live:
        kept = live.get("/decisions").json()
        assert [(one["index"], one["decision"], one["new_label"]) for one in kept["items"]] == [
            (3, "drop", None),
            (4, "relabel", NAMES[6]),
            (5, "relabel", NAMES[6]),
        ]
        assert live.post("/decisions/undo").status_code == 409
        reply = live.get("/decisions.csv")
        assert reply.headers["content-disposition"] == 'attachment; filename="decisions.csv"'
        (tmp_path / "decisions.csv").write_bytes(reply.content)
        live.post("/decisions", json={"items": [name(3)], "decision": "clear"})
        assert live.get("/decisions").json()["total"] == 2
    data = digits("train", 80)
    applied = apply_decisions(data, read_decisions(tmp_path / "decisions.csv"))
    assert len(applied) == len(data) - 1 and int(applied.samples.labels[3]) == 6


@cases(
    "given",
    [
        {"items": [name(0)], "decision": "relabel"},
        {"items": [name(0)], "decision": "relabel", "new_label": "no class"},
        {"items": [name(0)], "decision": "drop", "new_label": NAMES[0]},
        {"items": [], "decision": "drop"},
        {"items": [name(0)], "decision": "delete"},
        {"items": [{**name(0), "path": "/etc"}], "decision": "drop"},
    ],
    ids=str,
)
def test_decisions_that_make_no_sense_are_refused(live: Live, given: dict[str, object]) -> None:
    assert live.post("/decisions", json=given).status_code == 422


def test_a_decision_about_other_content_is_refused(live: Live) -> None:
    other = {**name(0), "sha256": name(1)["sha256"]}
    assert live.post("/decisions", json={"items": [other], "decision": "drop"}).status_code == 404


def test_pictures_come_by_hash(live: Live) -> None:
    data = digits("train", 80)
    plain = Image.open(io.BytesIO(live.get(f"/pictures/{data.samples.hex(9)}").content))
    assert np.array_equal(np.asarray(plain), data.images[9, 0].numpy())
    large = Image.open(io.BytesIO(live.get(f"/pictures/{data.samples.hex(9)}?size=64").content))
    assert np.array_equal(np.asarray(large)[::8, ::8], data.images[9, 0].numpy())
    assert live.get(f"/pictures/{'0' * 64}").status_code == 404


def test_a_sheet_holds_its_thumbnails_row_by_row_and_blanks_for_strangers(live: Live) -> None:
    data = digits("train", 80)
    hashes = [data.samples.hex(i) for i in range(24)] + ["0" * 64]
    found = live.post("/sheet", json={"sha256": hashes, "side": 16})
    across, side = int(found.headers["x-sheet-across"]), int(found.headers["x-sheet-side"])
    sheet = np.asarray(Image.open(io.BytesIO(found.content)).convert("L")).astype(int)
    assert (across, side) == (20, 16) and sheet.shape == (32, 320)
    tile = sheet[16:32, 3 * 16 : 4 * 16]
    expected = np.repeat(np.repeat(data.images[23, 0].numpy(), 2, 0), 2, 1).astype(int)
    assert np.abs(tile - expected).mean() < 20
    assert sheet[16:32, 4 * 16 : 5 * 16].max() < 20


def test_what_was_shown_is_noted_but_not_what_was_sent(fresh: Live) -> None:
    samples = digits("train", 80).samples
    upload = fresh.send("/queries", digit()).json()["sha256"]
    for key in (samples.hex(3), upload, "0" * 64):
        fresh.get(f"/pictures/{key}")
    fresh.post("/sheet", json={"sha256": [samples.hex(4), upload]})
    log = fresh.state.shown
    assert log.path is not None
    assert [line.partition(",")[2] for line in log.path.read_text().splitlines()] == [
        "sha256",
        samples.hex(3),
        samples.hex(4),
    ]
    log.largest = 10
    fresh.get(f"/pictures/{samples.hex(5)}")
    assert len(log.path.read_text().splitlines()) == 2, "a full file makes room"


def test_the_test_split_is_listed(live: Live) -> None:
    found = live.get("/test?class=2&limit=3").json()
    assert found["total"] == 6 and [one["class"] for one in found["items"]] == [2, 2, 2]
    first = found["items"][0]
    explained = live.post("/explain/known", json={"sha256": first["sha256"]}).json()
    assert explained["query"]["sample_id"] == first["sample_id"] and explained["query"]["label"] == NAMES[2]


def test_results_are_kept_and_those_of_another_run_are_not_used(live: Live, served: Served) -> None:
    with serving(served) as again:
        assert [job["state"] for job in again.get("/jobs").json()["jobs"]] == ["ready"] * 5 + ["none"]
        assert again.get("/map").json() == live.get("/map").json()
    changed = replace(served.run.samples, withheld=np.arange(82) == 5)
    run = replace(served.run, samples=changed)
    from provnet_app.jobs import Jobs

    other = replace(served, run=run)
    assert [one.state for one in Jobs(other, Keeping(other)).progress.values()] == ["none"] * 6
    assert served.keep is not None
    kept = served.keep / "scores.safetensors"
    before = kept.read_bytes()
    try:
        kept.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert Jobs(served, Keeping(served)).progress["scores"].state == "none"
    finally:
        kept.write_bytes(before)


def test_a_kept_map_points_at_no_sample_of_other_test_data(live: Live, served: Served, tmp_path: Path) -> None:
    right = {one["sha256"] for one in live.get("/map").json()["misattributed"]}
    assert served.test is not None and served.keep is not None and right
    shutil.copytree(served.keep, tmp_path / "app")
    turned = served.test.select(np.arange(len(served.test))[::-1].copy())
    with serving(replace(served, test=turned, keep=tmp_path / "app")) as other:
        other.wait("map")
        found = other.get("/map").json()["misattributed"]
    assert {one["sha256"] for one in found} == right
    assert all(one["sha256"] == turned.samples.hex(one["position"]) for one in found)


def test_answers_add_up_and_another_run_is_compared_sample_by_sample(served: Served) -> None:
    other = Served(trained("class-independent"), "other", test=digits("test", 60).select(np.arange(40)))
    with serving(replace(served, keep=None, beside=other)) as found:
        assert found.get("/confusion").status_code == 409
        found.wait("answers")
        table = found.get("/confusion").json()
        assert sum(one["samples"] for one in table["cells"]) == table["n"] == 60
        right = sum(one["samples"] for one in table["cells"] if one["class"] == one["predicted"])
        assert right == table["right"] == found.get("/answers", params={"right": True}).json()["total"]
        cell = table["cells"][0]
        listed = found.get("/answers", params={"class": cell["class"], "predicted": cell["predicted"]}).json()
        assert listed["total"] == cell["samples"]
        one = listed["items"][0]
        told = found.post("/explain/known", json={"test": one["position"], "k": 1}).json()
        assert (told["predicted"]["class"], told["exemplars"][0]["index"]) == (cell["predicted"], one["first"]["index"])
        both = found.get("/compare").json()
        counts = both["answers"]
        assert counts["n"] == counts["both"] + counts["this"] + counts["beside"] + counts["neither"] == 40
        wanted = found.get("/answers", params={"right": True, "beside_right": False}).json()["total"]
        assert both["name"] == "other" and wanted == counts["this"]
        assert {"name": "network", "this": "class-conditional", "beside": "class-independent"} in both["settings"]


def test_a_sample_is_most_like_itself_and_a_selection_keeps_its_order(live: Live) -> None:
    own = live.get("/samples", params={"limit": 30}).json()["items"][29]
    found = live.post("/similar", json={"sha256": own["sha256"], "sample_id": own["sample_id"]}).json()
    listed = live.get("/samples", params={"selection": found["selection"], "sort": "selection"}).json()["items"]
    assert listed[0]["sha256"] == own["sha256"] and found["samples"] == 82
    assert [one["index"] for one in listed] != sorted(one["index"] for one in listed)
    assert live.get("/samples", params={"sort": "selection"}).status_code == 422


def test_tags_outlast_the_server_and_rows_of_others_stay(served: Served, tmp_path: Path) -> None:
    mine = replace(served, keep=tmp_path / "app")
    row = ["gone/1", "0" * 64, ["old"]]
    with serving(mine) as found:
        item = {name: found.get("/samples").json()["items"][7][name] for name in ("sample_id", "sha256")}
        found.state.keeping.write_json("tags", {"tags": [row]})
        assert found.post("/tags", json={"items": [item], "tag": "odd"}).json()["items"] == [
            {"tag": "odd", "samples": 1}
        ]
        assert found.post("/tags", json={"items": [item], "tag": "x" * 61}).status_code == 422
        assert row in found.state.keeping.load("tags")["tags"]
    with serving(mine) as found:
        assert found.get("/samples", params={"tag": "odd"}).json()["items"][0]["tags"] == ["odd"]


def test_a_photograph_is_shown_whole_and_small_ones_point_by_point(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("train/a/0", "train/a/1", "train/b/0", "train/b/1", "test/a/2", "test/b/2"):
        place = tmp_path / f"{name}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (120, 160, 3)).astype(np.uint8)).save(place)
    data, test = (provnet.open_data(tmp_path, split=split, size=8) for split in ("train", "test"))
    run = fit(data, network="class-conditional", backbone="small", config=train_config(epochs=1))
    with serving(Served(run, "photos", training=data, index=np.arange(4), test=test)) as found:
        assert found.get("/run").json()["input"]["large"]
        for hash_, split in ((data.samples.hex(1), "train"), (test.samples.hex(0), "test")):
            whole = Image.open(io.BytesIO(found.get(f"/pictures/{hash_}").content))
            seen = found.get(f"/pictures/{hash_}", params={"view": "network"})
            assert whole.size == (160, 120) and whole.format == "JPEG", split
            assert Image.open(io.BytesIO(seen.content)).size == (8, 8) and seen.headers["content-type"] == "image/png"
        small = Image.open(io.BytesIO(found.get(f"/pictures/{data.samples.hex(1)}", params={"size": 64}).content))
        assert small.size == (64, 48)
