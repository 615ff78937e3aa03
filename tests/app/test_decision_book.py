"""Decisions that are kept: none is lost, and none is about a sample that it was not made about."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from provnet.samples.identity import SampleTable
from provnet_app.decisions import Choice, DecisionBook
from provnet_app.served import Keeping, Served

from .browser import open_view
from .made import Live, serving


@pytest.fixture
def own(served: Served, tmp_path: Path) -> Served:
    """The run with a place of its own for what is kept."""
    return replace(served, keep=tmp_path / "app")


def book_of(served: Served) -> DecisionBook:
    return DecisionBook(served.run.samples, Keeping(served))


def kept(served: Served) -> Path:
    assert served.keep is not None
    return served.keep / "decisions.json"


def rows(served: Served) -> list[Any]:
    found: list[Any] = json.loads(kept(served).read_text("utf-8"))["decisions"]
    return found


def test_a_kept_decision_is_about_the_sample_that_had_its_name(served: Served, tmp_path: Path) -> None:
    now = replace(served, keep=tmp_path / "app")
    book = DecisionBook(now.run.samples, Keeping(now))
    book.decide([3], Choice("drop"))
    assert DecisionBook(now.run.samples, Keeping(now)).choices == {3: Choice("drop")}
    ids = list(now.run.samples.sample_ids)
    ids[3], ids[4] = ids[4], ids[3]
    turned = replace(now.run.samples, sample_ids=tuple(ids))  # trained anew, under names that changed places
    again = replace(now, run=replace(now.run, samples=turned))
    assert DecisionBook(turned, Keeping(again)).choices == {}


def test_decisions_outlast_samples_that_are_withheld_or_relabelled(served: Served, tmp_path: Path) -> None:
    def book(samples: SampleTable, *, forgets: bool = False) -> DecisionBook:
        state = replace(served, keep=tmp_path / "app", run=replace(served.run, samples=samples))
        return DecisionBook(samples, Keeping(state), forgets=forgets)

    before = served.run.samples
    new = before.class_names[int(before.labels[7] + 1) % len(before.class_names)]
    first = book(before)
    first.decide([3], Choice("drop"))
    first.decide([5], Choice("keep"))
    first.decide([7], Choice("relabel", new))
    labels = before.labels.copy()
    labels[7] = before.class_names.index(new)
    later = book(replace(before, withheld=np.arange(len(before)) == 3, labels=labels))
    assert later.choices == {5: Choice("keep")}  # one is withheld, one is done
    later.decide([6], Choice("keep"))
    assert book(before).choices == {3: Choice("drop"), 5: Choice("keep"), 6: Choice("keep")}
    gone = book(before.select(np.arange(len(before)) != 3), forgets=True)
    gone.decide([0], Choice("keep"))
    assert before.hex(3) not in (tmp_path / "app" / "decisions.json").read_text("utf-8")  # erased: no trace of it


def name(served: Served, row: int) -> dict[str, str]:
    samples = served.run.samples
    return {"sample_id": samples.sample_ids[row], "sha256": samples.hex(row)}


def decided(live: Live) -> dict[int, str]:
    return {one["index"]: one["decision"] for one in live.get("/decisions").json()["items"]}


def test_two_apps_of_one_run_keep_the_decisions_of_both(own: Served) -> None:
    with serving(own) as first, serving(own) as second:
        before = second.get("/decisions").json()["revision"]
        for live, row in ((first, 3), (second, 4), (first, 5)):
            found = live.post("/decisions", json={"items": [name(own, row)], "decision": "drop"}).json()
            assert found["saved"]
        for live in (first, second):
            assert live.get("/samples?decision=drop").json()["total"] == 3
            assert decided(live) == {3: "drop", 4: "drop", 5: "drop"}
        assert second.get("/decisions").json()["revision"] != before, "its page sees that there is something new"
        second.post("/decisions", json={"items": [name(own, 5)], "decision": "keep"})
        first.post("/decisions/undo")  # of the step whose sample the other has decided about since
        first.post("/decisions/undo")
        assert decided(first) == decided(second) == {4: "drop", 5: "keep"}
    assert {row[0] for row in rows(own)} == {own.run.samples.sample_ids[i] for i in (4, 5)}


def test_what_another_app_decides_while_a_step_is_written_is_not_lost(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = book_of(own), book_of(own)
    other = threading.Thread(target=second.decide, args=([4], Choice("keep")))
    write = first.keeping.write_json

    def late(*given: Any) -> bool:
        other.start()
        other.join(0.5)  # it waits for the first; without the lock it is done by then, and written over
        return write(*given)

    monkeypatch.setattr(first.keeping, "write_json", late)
    first.decide([3], Choice("drop"))
    other.join()
    assert sorted(book_of(own).choices) == [3, 4]


def test_a_damaged_file_is_set_aside_and_told(own: Served, caplog: pytest.LogCaptureFixture) -> None:
    book_of(own).decide(range(40), Choice("drop"))
    content = bytearray(kept(own).read_bytes())
    content[content.index(b'"')] ^= 1  # one bit
    kept(own).write_bytes(content)
    with serving(own) as live:
        (aside,) = kept(own).parent.glob("decisions.json.damaged-*")
        assert aside.read_bytes() == content and str(aside) in caplog.text
        assert aside.name in live.get("/run/state").json()["decisions"]
        assert live.post("/decisions", json={"items": [name(own, 0)], "decision": "keep"}).json()["saved"]
        kept(own).write_bytes(b"{")  # while the app runs: what it knows is written again
        assert decided(live) == {0: "keep"} and len(rows(own)) == 1
        assert len(list(kept(own).parent.glob("decisions.json.damaged-*"))) == 2
        assert "Decisions in use: 1; decide again what is missing" in live.get("/run/state").json()["decisions"]
    assert book_of(own).trouble, "as long as they are there"


def test_a_file_that_cannot_be_read_is_left_as_it_is(own: Served) -> None:
    book_of(own).decide([3], Choice("drop"))
    kept(own).rename(kept(own).with_name("real"))
    kept(own).mkdir()  # not to be read by anybody, while root reads what is forbidden
    book = book_of(own)
    book.decide([4], Choice("keep"))
    assert not book.saved and "cannot be read" in book.trouble and kept(own).is_dir()
    kept(own).rmdir()
    kept(own).with_name("real").rename(kept(own))
    book.decide([5], Choice("keep"))
    assert book.saved and not book.trouble and sorted(book_of(own).choices) == [3, 4, 5]


def test_rows_of_an_unknown_form_stay_in_the_file(own: Served) -> None:
    samples = own.run.samples
    unknown: list[Any] = [
        [samples.sample_ids[3], "ask", "", samples.hex(3)],
        [samples.sample_ids[4], "drop", "", samples.hex(4), "somebody"],
        {"sample": samples.sample_ids[5]},
    ]
    nameless = [samples.sample_ids[6], "drop", ""]  # of another run: which sample had this name is not known
    kept(own).parent.mkdir()
    kept(own).write_text(json.dumps({"run": "another", "decisions": [*unknown, nameless]}))
    for row in (7, 8):
        book = book_of(own)
        book.decide([row], Choice("keep"))
    assert sorted(book.choices) == [7, 8]
    found = [row[:3] if nameless[0] in row else row for row in rows(own)]
    assert [found.count(row) for row in (*unknown, nameless)] == [1, 1, 1, 1]


def test_the_page_says_that_decisions_were_set_aside(own: Served, page: Page, servers: ExitStack) -> None:
    kept(own).parent.mkdir()
    kept(own).write_bytes(b"{")
    open_view(page, servers.enter_context(serving(own)), "#/data")
    expect(page.locator("#changed")).to_contain_text("decisions.json.damaged-")
