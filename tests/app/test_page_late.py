"""Answers that come late or never: what was asked for last is shown, and what went wrong is said."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .browser import open_view
from .made import Live, digits


def slowed(page: Page, part: str) -> None:
    """Answers to the first request whose address holds `part` come late."""
    page.add_init_script(
        """(() => {
      const whole = window.fetch;
      let first = true;
      window.fetch = async (...given) => {
        const slow = first && String(given[0]).includes("PART");
        if (slow) first = false;
        const reply = await whole(...given);
        if (slow) await new Promise((done) => setTimeout(done, 1500));
        return reply;
      };
    })()""".replace("PART", part)
    )


def test_the_test_sample_that_is_shown_is_marked_however_late_the_strip_is(live: Live, page: Page) -> None:
    slowed(page, "/test?")
    open_view(page, live, "#/explain?test=7")
    expect(page.locator(".exemplars .exemplar")).to_have_count(5)
    pressed = page.locator(".strip button[aria-pressed=true]")
    expect(pressed).to_have_attribute("data-position", "7")
    page.locator(".strip-box select").select_option("1")  # drawn anew, it is still the one
    expect(page.locator(".strip button[data-position]")).to_have_count(6)
    expect(pressed).to_have_attribute("data-position", "7")


def test_a_strip_of_another_class_is_not_filled_by_an_older_answer(live: Live, page: Page) -> None:
    slowed(page, "/test?")
    open_view(page, live, "#/explain?test=7")
    page.locator(".strip-box select").select_option("3")
    expect(page.locator(".strip button[data-position]")).to_have_count(6)
    page.wait_for_timeout(1800)  # the answer to the first question is there by now
    expect(page.locator(".strip button[data-position]")).to_have_count(6)


def test_an_older_verdict_does_not_replace_a_newer_one(live: Live, page: Page) -> None:
    slowed(page, "/membership")
    hash_ = digits("train", 80).samples.hex(9)
    open_view(page, live, f"#/membership?hash={digits('test', 60).samples.hex(9)}")  # this answer comes late
    page.get_by_text("By SHA-256").click()
    page.get_by_label("SHA-256 of a picture").fill(hash_)
    page.get_by_role("button", name="Check").click()
    member = page.locator(".judged[data-verdict=member]")
    expect(member).to_have_count(1)
    page.wait_for_timeout(1800)  # the older one is there by now
    expect(member).to_have_count(1)
    assert hash_ in page.url


def failing(page: Page, path: str, method: str) -> None:
    """Every request of this kind is answered with an error."""
    body = {"error": {"code": "internal", "message": "it went wrong", "field": None, "id": "0"}}
    page.route(
        f"**/api/v1{path}",
        lambda route: route.fulfill(status=500, json=body) if route.request.method == method else route.continue_(),
    )


def test_an_answer_that_failed_is_not_waited_for(live: Live, page: Page, allowed: list[str]) -> None:
    allowed.append("status of 500")
    failing(page, "/explain/known", "POST")
    open_view(page, live, "#/explain?test=7")
    expect(page.get_by_role("alert")).to_have_text("it went wrong")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


@pytest.mark.parametrize("path", ["/samples?*", "/membership"])
def test_samples_that_cannot_be_tried_are_said(live: Live, page: Page, allowed: list[str], path: str) -> None:
    allowed.append("status of 500")
    failing(page, path, "GET" if path == "/samples?*" else "POST")
    open_view(page, live, "#/membership")
    page.get_by_role("button", name="Try training samples").click()
    expect(page.get_by_role("alert")).to_have_text("it went wrong")


def test_a_job_that_does_not_start_and_sources_that_are_not_forgotten_are_said(
    fresh: Live, page: Page, allowed: list[str]
) -> None:
    allowed.append("status of 500")
    failing(page, "/jobs/membership", "POST")
    open_view(page, fresh, "#/membership")
    page.get_by_role("button", name="Compute now").click()
    expect(page.locator("#toast .bad p")).to_have_text("it went wrong")
    names = fresh.state.served.run.samples.sample_ids
    table = "\n".join(["sample_id,contributor", *(f"{name},Ann" for name in names)])
    fresh.send("/credit/sources", table.encode(), "text/csv")
    failing(page, "/credit/sources", "DELETE")
    open_view(page, fresh, "#/credit")
    expect(page.get_by_label("Who contributed")).to_contain_text("Ann")
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("#toast .bad p")).to_have_text("it went wrong")
    expect(page.get_by_label("Who contributed")).to_contain_text("Ann")


def test_a_view_that_cannot_be_fetched_says_so_and_is_tried_again(live: Live, page: Page, allowed: list[str]) -> None:
    allowed.append("Failed to load resource")
    open_view(page, live, "#/explain")
    page.wait_for_selector(".exemplar")
    for address in ("**/views/data.js", "**/api/v1/run/state"):
        page.route(address, lambda route: route.abort())
    page.get_by_role("link", name="Data", exact=True).click()
    said = page.get_by_role("alert")
    expect(said).to_contain_text("Is `provnet app` still running?")
    said.evaluate("(box) => { box.id = 'before'; }")
    page.get_by_role("button", name="Try again").click()  # the page stays while nothing answers
    expect(page.locator("#before")).to_have_count(0)
    expect(said).to_contain_text("Is `provnet app` still running?")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".total")).to_contain_text("sample")
