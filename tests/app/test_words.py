"""Samples that are no pictures: a text or a row is typed, explained, listed, and not shown where pictures are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

import provnet
from provnet.attached.provenance import attach
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_app.served import Served

from ..attached.test_text import Encoder, opened, texts
from .browser import open_view
from .made import Live, serving


class Frame(dict[str, list[object]]):
    """As much of a data frame as provnet asks for."""

    @property
    def columns(self) -> list[str]:
        return list(self)

    @property
    def shape(self) -> tuple[int, int]:
        return len(next(iter(self.values()))), len(self)

    def __getitem__(self, name: str) -> Column:  # type: ignore[override]
        return Column(super().__getitem__(name))


class Column:
    def __init__(self, values: list[object]) -> None:
        self.values = values
        self.dtype = "object"

    def to_list(self) -> list[object]:
        return self.values


def frame(n: int = 40) -> Frame:
    ages = [float(20 + 7 * i % 50) for i in range(n)]
    return Frame(age=ages, work=[("north", "south")[i % 2] for i in range(n)], old=[str(age > 45) for age in ages])


@pytest.fixture(scope="module")
def text() -> Iterator[Live]:
    """A server of a model of somebody's own that takes texts."""
    data, model = opened(), Encoder()
    prov = attach(model, data)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for x, y, rows in torch.utils.data.DataLoader(prov.dataset(), 16):
        loss = torch.nn.functional.cross_entropy(model(**x).logits, y) + prov.loss(rows)
        loss.backward()
        optimizer.step()
    with serving(Served(prov.finish(), "texts", training=data, index=np.arange(len(data)), test=data)) as found:
        yield found


@pytest.fixture(scope="module")
def table() -> Iterator[Live]:
    """A server of a run on rows of a table."""
    data = provnet.open_data(frame(), "old")
    run = fit(data, config=train_config("fast", epochs=2, batch_size=16))
    with serving(Served(run, "rows", training=data, index=np.arange(len(data)), test=data)) as found:
        yield found


def test_a_text_is_typed_and_its_sources_stand_beside_it(text: Live, page: Page) -> None:
    asked = texts()[7]
    open_view(page, text)
    page.get_by_label("Text to explain").fill(asked)
    page.get_by_role("button", name="Explain it").click()
    expect(page.get_by_role("heading", name="Your text")).to_be_visible()
    expect(page.locator(".query .sample-text")).to_have_text(asked)
    first = page.locator(".exemplar .sample-text").first
    word = next(one for one in asked.split() if len(one) > 3)
    own = text.post("/queries/item", json={"item": asked}).json()
    found = text.post("/explain/known", json={"sha256": own["sha256"]}).json()
    assert found["exemplars"][0]["text"] == asked  # it is a training sample: it finds itself
    expect(first).to_have_text(asked)
    expect(first.locator("mark", has_text=word).first).to_be_visible()
    verdict = text.post("/membership", json={"sha256": [own["sha256"]]}).json()["items"][0]
    assert (verdict["verdict"], verdict["match"]["index"], verdict["text"]) == ("member", 7, asked)


def test_texts_are_listed_and_decided_about(text: Live, page: Page) -> None:
    text.wait("scores")
    open_view(page, text, "#/data?sort=index")
    expect(page.locator(".vg-tile[data-at='3'] .vg-text")).to_have_text(texts()[3])
    page.locator(".vg-tile[data-at='3']").click()
    page.keyboard.press("d")
    expect(page.locator(".vg-tile[data-at='3'] .vg-badge")).to_contain_text("drop")
    few = replace(text.state.served, exposure="ids")
    with ExitStack() as stack:
        hidden = stack.enter_context(serving(few))
        assert all(one["text"] is None for one in hidden.get("/samples?limit=9").json()["items"])
        answer = hidden.post("/explain/known", json={"test": 3}).json()
        assert answer["query"]["text"] is None and all(one["text"] is None for one in answer["exemplars"])


def test_a_row_is_typed_column_by_column(table: Live, page: Page) -> None:
    open_view(page, table)
    expect(page.get_by_label("work")).to_have_value("north")  # of the first test sample
    page.get_by_label("age").fill("66")
    page.get_by_label("work").select_option("south")
    page.get_by_role("button", name="Explain it").click()
    expect(page.get_by_role("heading", name="Your row")).to_be_visible()
    sides = page.locator(".side-by-side")
    expect(sides.get_by_role("row", name="age 66")).to_be_visible()
    due = table.state.served.run.network
    inputs = table.state.library.modality.batch([{"age": 66.0, "work": "south"}])
    key = table.post("/queries/item", json={"item": {"age": "66", "work": "south"}}).json()
    assert key["cells"] == [["age", "66"], ["work", "south"]]
    predicted = table.post("/explain/known", json={"sha256": key["sha256"]}).json()["predicted"]["class"]
    with torch.inference_mode():
        assert predicted == int(due.eval()(inputs).logits.argmax())


def test_what_a_run_does_not_take_is_refused(table: Live, text: Live, live: Live) -> None:
    for server, item, words in (
        (table, "a text", "this run takes rows of a table"),
        (table, {"size": 3}, "there is no column 'size'"),
        (table, {"age": "many"}, "the column 'age' takes numbers"),
        (text, {"age": 3}, "this run takes texts"),
        (live, "a text", "this run takes pictures"),
    ):
        found = server.post("/queries/item", json={"item": item})
        status = 409 if words.startswith("this run takes") else 422
        assert found.status_code == status and words in found.text, (item, found.text)
    half = text.post("/queries/item", content=b'{"item": "half \\ud800"}', headers={"Content-Type": "application/json"})
    assert half.status_code == 422
