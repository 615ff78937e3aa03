"""Equal pictures under two labels: every view speaks of the sample that was chosen, not of the other one."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from provnet_app.served import Served

from .browser import open_view
from .made import NAMES, Live

FIRST, SECOND = "train/001", "train/081"  # the same pixels, labels one apart


def hash_of(served: Served, sample_id: str) -> str:
    return served.run.samples.hex(served.run.samples.id_places[sample_id])


def test_a_known_sample_keeps_its_own_id_and_label(live: Live, served: Served) -> None:
    key = hash_of(served, FIRST)
    assert key == hash_of(served, SECOND)
    for sample_id, label in ((FIRST, NAMES[0]), (SECOND, NAMES[1])):
        found = live.post("/explain/known", json={"sha256": key, "sample_id": sample_id}).json()["query"]
        assert (found["sample_id"], found["label"]) == (sample_id, label)
    refused = live.post("/explain/known", json={"sha256": key, "sample_id": "train/002"})
    assert refused.status_code == 404 and refused.json()["error"]["field"] == "sample_id"


def test_one_sample_is_listed_by_its_whole_id(live: Live) -> None:
    assert live.get("/samples", params={"text": "train/00"}).json()["total"] == 10
    assert live.get("/samples", params={"id": "train/00"}).json()["total"] == 0
    found = live.get("/samples", params={"id": SECOND}).json()["items"]
    assert [one["sample_id"] for one in found] == [SECOND]


def test_explain_it_is_about_the_sample_of_the_panel(page: Page, live: Live) -> None:
    open_view(page, live, f"#/data?id={SECOND}")
    panel = page.get_by_role("complementary", name="The sample")
    expect(panel.locator(".panel-label")).to_have_text(NAMES[1])  # chosen at once: no other sample is listed
    expect(page.locator(".total")).to_have_text("1 sample")
    panel.get_by_role("link", name="Explain it").click()
    card = page.get_by_role("region", name="What was asked about")
    expect(card).to_contain_text(SECOND)
    expect(card).to_contain_text(NAMES[1])
    page.reload()  # the address says which one, too
    expect(card).to_contain_text(SECOND)
    card.get_by_role("link", name="in the data").click()
    expect(panel.locator(".panel-label")).to_have_text(NAMES[1])
    page.get_by_role("button", name=f"Only {SECOND}: take this filter away").click()
    expect(page.locator(".total")).to_have_text("82 samples")


def test_the_map_names_the_sample_of_the_point(page: Page, live: Live, served: Served) -> None:
    places = live.get("/map").json()
    at = places["index"].index(served.run.samples.id_places[SECOND])
    aside = {"x": [0.5 if i == at else i % 2 for i in range(places["n"])], "y": [0.5] * places["n"]}
    page.route("**/api/v1/map", lambda route: route.fulfill(json={**places, **aside, "misattributed": []}))
    open_view(page, live, "#/map")
    page.wait_for_selector("canvas[data-ms]")
    page.locator("canvas").focus()
    page.keyboard.press("Enter")  # the middle, where it stands alone
    card = page.get_by_role("region", name="The point")
    expect(card).to_contain_text("train/")
    expect(card).to_contain_text(SECOND)
    expect(card).to_contain_text(NAMES[1])
