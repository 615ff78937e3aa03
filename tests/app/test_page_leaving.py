"""Decisions by fast keys on a slow network: none is lost when the tab is reloaded, closed or moved on."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .browser import open_view
from .made import Live, until

SLOW = """(() => {
  const whole = window.fetch;
  window.fetch = async (...given) => {
    const slow = given[1]?.method === "POST" && String(given[0]).includes("/decisions");
    if (slow && window.down) throw new TypeError("Failed to fetch");
    const reply = await whole(...given);
    if (slow) await new Promise((done) => setTimeout(done, 1500));
    return reply;
  };
})()"""


def opened(page: Page, live: Live, query: str = "") -> list[str]:
    """The view Data, the first sample chosen, answers to decisions late; gives the ids of the first samples."""
    page.add_init_script(SLOW)
    open_view(page, live, f"#/data{query}")
    page.locator(".vg-tile[data-at='0']:not(.waiting)").click()
    return [one["sample_id"] for one in live.get("/samples", params={"limit": 6}).json()["items"]]


def kinds(live: Live) -> dict[str, str]:
    return {one["sample_id"]: one["decision"] for one in live.get("/decisions").json()["items"]}


@pytest.mark.parametrize("how", ["reload", "close", "other view"])
def test_fast_keys_are_kept_however_the_page_is_left(fresh: Live, page: Page, how: str) -> None:
    names = opened(page, fresh)
    for key in "kdkk":
        page.keyboard.press(key)
    if how == "reload":
        page.reload()
    elif how == "close":
        page.close()
    else:
        page.get_by_role("link", name="Run", exact=True).click()
    wanted = dict(zip(names, ("keep", "drop", "keep", "keep"), strict=False))
    until(lambda: kinds(fresh) == wanted)
    if how == "other view":
        expect(page.locator("#toast .bad")).to_have_count(0)


def test_a_step_taken_back_before_it_was_sent_is_not_sent(fresh: Live, page: Page) -> None:
    names = opened(page, fresh)
    for key in "kdu":
        page.keyboard.press(key)
    page.reload()
    page.wait_for_selector(".vg-tile:not(.waiting)")
    until(lambda: kinds(fresh) == {names[0]: "keep"})


def test_fast_keys_in_a_list_that_shrinks_are_about_one_sample_after_the_other(fresh: Live, page: Page) -> None:
    names = opened(page, fresh, "?decision=none")
    for _ in range(3):
        page.keyboard.press("k")
    expect(page.locator(".decided")).to_have_text("3 keep, 0 relabel, 0 drop")
    assert kinds(fresh) == dict.fromkeys(names[:3], "keep")
    expect(page.locator(".total")).to_have_text("79 samples")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "0")
    expect(page.get_by_label("The sample", exact=True)).to_contain_text(names[3])


def test_a_sample_chosen_while_a_decision_is_on_its_way_stays_chosen(fresh: Live, page: Page) -> None:
    names = opened(page, fresh)
    page.keyboard.press("k")
    page.locator(".vg-tile[data-at='4']").click()
    page.keyboard.press("d")
    expect(page.locator(".decided")).to_have_text("1 keep, 0 relabel, 1 drop")
    assert kinds(fresh) == {names[0]: "keep", names[4]: "drop"}
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "5")


def test_a_decision_that_failed_is_said_and_stood_at_again(fresh: Live, page: Page) -> None:
    opened(page, fresh)
    page.evaluate("window.down = true")
    for key in "kk":
        page.keyboard.press(key)
    expect(page.locator("#toast .bad p")).to_contain_text("The server does not answer")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "0")
    page.evaluate("window.down = false")
    page.keyboard.press("k")
    expect(page.locator(".decided")).to_have_text("1 keep, 0 relabel, 0 drop")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "1")
