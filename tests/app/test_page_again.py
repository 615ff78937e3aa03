"""A server that does not answer for a while: every part of the page comes back by itself or by a button, unreloaded."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .browser import open_view
from .made import Live


@pytest.fixture(autouse=True)
def provoked(allowed: list[str]) -> None:
    allowed.append("Failed to load resource")


def down(page: Page, *parts: str) -> None:
    """Requests to these parts of the interface get no answer."""
    for part in parts:
        page.route(f"**/api/v1/{part}", lambda route: route.abort())


def again(page: Page, place: str) -> None:
    """The server is back, and the button of a part is pressed."""
    page.unroute_all()
    page.locator(place).get_by_role("button", name="Try again").click()


def test_pictures_that_failed_once_come(live: Live, page: Page) -> None:
    down(page, "pictures/**")
    open_view(page, live, "#/explain?test=7")
    page.wait_for_selector(".exemplar")
    page.unroute_all()
    loaded = (
        "() => [...document.querySelectorAll('.exemplar img')].every((one) => one.complete && one.naturalWidth > 0)"
    )
    page.wait_for_function(loaded, timeout=20_000)


def test_samples_and_their_thumbnails_come_by_themselves(live: Live, page: Page) -> None:
    down(page, "sheet")
    open_view(page, live, "#/data?sort=index")
    page.wait_for_selector(".vg-tile:not(.waiting)")
    expect(page.locator("#toast .bad p")).to_contain_text("Pictures could not be loaded")
    page.unroute_all()
    expect(page.locator(".vg-tile[data-at='0'] .vg-picture")).to_have_attribute("style", re.compile("blob:"))


def test_the_list_of_samples_is_asked_for_again(live: Live, page: Page) -> None:
    down(page, "samples?*", "summary", "decisions")
    open_view(page, live, "#/data?sort=index")
    expect(page.locator(".data-main .error")).to_contain_text("The server does not answer")
    again(page, ".data-main")
    expect(page.locator(".total")).to_have_text("82 samples")
    again(page, ".jobs-here")
    expect(page.locator(".quick").get_by_role("button", name="Suspects")).to_be_visible()
    expect(page.locator(".decided")).to_be_empty()
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator(".decided")).to_have_text("nothing decided yet")


@pytest.mark.parametrize(
    ("view", "part", "place", "there"),
    [
        ("#/map", "jobs", ".jobs-here", ".map-canvas"),
        ("#/map", "map/hashes", ".jobs-here", ".map-canvas"),
        ("#/run", "run/card", ".view-run", ".view-run .markdown"),
        ("#/explain?test=7", "explain/known", ".explain-grid", ".exemplar"),
        ("#/membership", "jobs", ".view-membership", ".view-membership svg"),
    ],
)
def test_a_part_that_did_not_come_is_tried_again(
    live: Live, page: Page, view: str, part: str, place: str, there: str
) -> None:
    down(page, part)
    open_view(page, live, view)
    expect(page.locator(place).get_by_role("alert")).to_contain_text("The server does not answer")
    again(page, place)
    expect(page.locator(there).first).to_be_visible()
    expect(page.locator(place).get_by_role("alert")).to_have_count(0)


def test_the_strip_offers_to_ask_again(live: Live, page: Page) -> None:
    down(page, "test?*")
    open_view(page, live, "#/explain?test=7")
    more = page.get_by_role("button", name="More", exact=True)
    expect(more).to_be_visible()
    page.unroute_all()
    more.click()
    expect(page.locator(".strip button[data-position]").first).to_be_visible()


def test_a_sample_that_could_not_be_asked_about_is_asked_about_when_it_is_chosen_again(live: Live, page: Page) -> None:
    down(page, "explain/known")
    open_view(page, live, "#/data?sort=index")
    page.locator(".vg-tile[data-at='1']:not(.waiting)").click()
    expect(page.locator(".panel-named")).to_contain_text("The server does not answer")
    page.unroute_all()
    page.locator(".vg-tile[data-at='1']").click()
    expect(page.get_by_role("heading", name="The network recognises")).to_be_visible()


def test_a_job_goes_on_being_followed_after_the_server_did_not_answer(fresh: Live, page: Page) -> None:
    open_view(page, fresh, "#/data")
    start = page.get_by_role("button", name="Compute now")
    expect(start).to_be_visible()
    page.route("**/api/v1/jobs", lambda route: route.abort())
    start.click()
    page.wait_for_timeout(1500)
    page.unroute_all()
    expect(page.locator(".quick").get_by_role("button", name="Suspects")).to_be_visible(timeout=20_000)
