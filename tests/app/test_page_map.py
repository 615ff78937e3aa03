"""The view Map in a real browser: a lasso filters the grid and is saved; hover, keys, colours, the place of a query."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from .browser import no_sideways, open_view
from .made import NAMES, Live, digit


def opened(tab: Page, live: Live, query: str = "") -> tuple[float, float, float, float]:
    """The map, drawn; where its canvas is."""
    tab.goto("about:blank")  # else a map that was open is still there when the new one is waited for
    open_view(tab, live, f"#/map{query}")
    tab.wait_for_selector("canvas[data-ms]")
    box = tab.locator("canvas").bounding_box()
    assert box is not None
    return box["x"], box["y"], box["width"], box["height"]


def around(tab: Page, left: float, top: float, right: float, bottom: float) -> None:
    """Draw a line around a part of the window."""
    tab.mouse.move(left, top)
    tab.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 4)):
        tab.mouse.move(x, y, steps=6)
    tab.mouse.up()


def picture(tab: Page) -> str:
    """What is on the canvas now."""
    return str(tab.evaluate("document.querySelector('canvas').toDataURL()"))


def test_a_lasso_filters_the_grid_and_is_saved(page: Page, live: Live) -> None:
    x, y, width, height = opened(page, live)
    page.get_by_role("button", name="Lasso").click()
    around(page, x + 6, y + 6, x + width / 2, y + height - 6)  # the left half
    said = page.locator(".selected-count")
    expect(said).to_be_visible()
    inside = int(said.inner_text().split()[0])
    places = live.get("/map").json()
    low, high = min(places["x"]), max(places["x"])
    assert inside == sum(one < (low + high) / 2 for one in places["x"])
    assert 0 < inside < places["n"]
    with page.expect_download() as coming:
        page.get_by_role("link", name="Save CSV").click()
    rows = list(csv.DictReader(Path(coming.value.path()).read_text("utf-8").splitlines()))
    with page.expect_download() as coming:
        page.get_by_role("button", name="Save JSON").click()
    kept = json.loads(Path(coming.value.path()).read_text("utf-8"))
    assert len(rows) == inside == kept["samples"]
    assert [one["sha256"] for one in kept["items"]] == [row["sha256"] for row in rows]
    page.get_by_role("link", name="Show in data").click()
    expect(page.locator(".total")).to_have_text(f"{inside} samples")
    assert "selection=" in page.url
    page.go_back()
    expect(page.locator(".selected-count")).to_contain_text(str(inside))  # still there
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".selected-count")).to_have_count(0)


def test_hover_shows_the_picture_and_click_keeps_it(page: Page, live: Live) -> None:
    x, y, width, height = opened(page, live)
    page.locator("canvas").focus()
    page.keyboard.press("Enter")  # the sample closest to the middle
    card = page.get_by_label("The point", exact=True)
    expect(card.get_by_role("link", name="Show in data")).to_be_visible()
    assert card.locator(".panel-label").inner_text() in NAMES
    for step in range(60):  # some point lies on the diagonal
        page.mouse.move(x + width * step / 60, y + height * step / 60)
        page.wait_for_timeout(20)
        if page.locator(".map-tip img").is_visible():
            break
    expect(page.locator(".map-tip img")).to_have_js_property("complete", True)
    assert page.locator(".map-tip .name").text_content() in NAMES
    assert page.locator("main script").count() == 0


def test_wheel_keys_and_buttons_move_and_colours_change(page: Page, live: Live) -> None:
    x, y, width, height = opened(page, live)
    before = picture(page)
    page.mouse.move(x + width / 2, y + height / 2)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(300)
    nearer = picture(page)
    assert nearer != before
    page.get_by_role("button", name="Show everything").click()
    page.locator("canvas").focus()
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(200)
    moved = picture(page)
    assert moved not in (before, nearer)
    page.get_by_label("Colour by").select_option("anomaly")
    page.wait_for_timeout(200)
    assert picture(page) != moved and "colour=anomaly" in page.url
    expect(page.get_by_text("of no class", exact=True).last).to_be_visible()
    page.get_by_label("Colour by").select_option("cluster")
    page.get_by_label("Legend").get_by_role("button").first.click()  # selecting without a pointer
    group = live.get("/map").json()["clusters"][0]
    expect(page.locator(".selected-count")).to_have_text(re.compile(rf"^{group['samples']} sample"))


def test_a_query_is_put_on_the_map(page: Page, live: Live, allowed: list[str]) -> None:
    key = live.send("/queries", digit()).json()["sha256"]
    opened(page, live, f"?query={key}")
    card = page.get_by_label("The point", exact=True)
    expect(card).to_contain_text("the query")
    expect(card.locator("ol.named li")).not_to_have_count(0)
    allowed.append("404")  # a query that the server has forgotten
    opened(page, live, f"?query={'0' * 64}")
    expect(page.locator("#toast")).to_contain_text("no longer known")


def test_the_map_fits_a_phone_and_is_made_on_demand(fresh: Live, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_view(page, fresh, "#/map")
    page.get_by_role("button", name="Compute now").click()
    expect(page.locator("canvas")).to_be_visible(timeout=30_000)
    expect(page.get_by_label("Colour by").get_by_role("option", name="of no class")).to_be_disabled()
    assert no_sideways(page)
