"""What people notice first: names cut so that they differ, messages that stay, one way to write shares, headings."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from provnet.report.page import _ends
from provnet.report.records import percent

from .browser import no_sideways, open_view
from .made import NAMES, Live
from .test_page_access import SETTLED, VIEWS

DOM = "import('/static/js/dom.js')"
JUMPS = """() => {
  const seen = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((one) => one.checkVisibility());
  const levels = seen.map((one) => [Number(one.tagName[1]), one.textContent]);
  return levels.filter(([level], i) => level > (i ? levels[i - 1][0] : 0) + 1).map(([, words]) => words);
}"""
UNREACHED = """() => [...document.querySelectorAll("main *")]
  .filter((one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX))
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .filter((one) => !(one.tabIndex >= 0 && one.getAttribute("aria-label")) && !one.querySelector("a, button, input"))
  .map((one) => one.className)"""


def test_shares_are_written_as_in_the_reports(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    shares = [
        0.0,
        1.0,
        0.5,
        0.974,
        0.9994,
        0.9995,
        0.99996,
        0.999999,
        1 - 1e-8,
        0.0004,
        0.00002,
        1e-7,
        1e-12,
        1 - 1e-12,
    ]
    asked = [[share, digits] for share in shares for digits in (0, 1, 2)]
    found = page.evaluate(f"(all) => {DOM}.then((dom) => all.map(([x, digits]) => dom.percent(x, digits)))", asked)
    assert found == [percent(share, int(digits)) for share, digits in asked]
    assert page.evaluate(f"{DOM}.then((dom) => dom.interval({{value: 1, low: 0.9994, high: 1, n: 5}}))") == (
        "100 % (99.9 to 100, n 5)"
    )


def test_names_are_cut_where_the_reports_cut_them(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    names = [
        "train/000",
        "photographs/collection-1/IMG_000123.png",
        "x" * 16,
        "x" * 17,
        "Z̷̢̛a̶̡l̵g̸o̷ " * 4,
        "שלום עולם " * 4,
        "",
    ]
    found = page.evaluate(f"(all) => {DOM}.then((dom) => all.map(dom.ends))", names)
    assert [tuple(one) for one in found] == [_ends(name) for name in names]
    families = "👩\u200d👩\u200d👧 " * 8
    assert page.evaluate(f"(name) => {DOM}.then((dom) => dom.ends(name))", families) == [families, ""]


def test_a_long_name_keeps_its_end_and_is_read_whole(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    name = "photographs/collection-1/IMG_000123.png"
    page.evaluate(
        f"""(name) => {DOM}.then((dom) => {{
          const style = {{ width: "150px", display: "block" }};
          document.querySelector("main").prepend(dom.el("button", {{ id: "narrow", style }}, dom.named(name)));
        }})""",
        name,
    )
    end = page.locator("#narrow .z")
    assert end.get_attribute("data-shown") == "00123.png"
    assert end.evaluate("(node) => node.scrollWidth <= node.clientWidth")  # all of the end is seen
    assert page.locator("#narrow .a").evaluate("(node) => node.scrollWidth > node.clientWidth")  # the start gives way
    assert page.locator("#narrow .name").text_content() == name
    expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()


def test_messages_stay_long_enough_and_can_be_closed(page: Page, live: Live) -> None:
    page.clock.install()
    open_view(page, live, "#/run")
    say = "([words, kind]) => import('/static/js/toast.js').then((it) => it.toast(words, kind))"
    place = page.locator("#toast[role=status]")
    page.evaluate(say, ["It is done.", ""])
    page.evaluate(say, ["It went wrong.", "bad"])
    page.clock.fast_forward(5_500)
    assert place.locator("p").all_text_contents() == ["It is done.", "It went wrong."]
    page.clock.fast_forward(120_000)
    assert place.locator("p").all_text_contents() == ["It went wrong."]  # until it is closed
    place.get_by_role("button", name="Close the message").click()
    expect(place.locator("p")).to_have_count(0)
    for words in ("one", "two", "three", "three", "four"):
        page.evaluate(say, [words, "bad"])
    assert place.locator("p").all_text_contents() == ["two", "three", "four"]
    page.keyboard.press("Escape")
    assert place.locator("p").all_text_contents() == ["two", "three"]
    for words in ("five", "six"):
        page.evaluate(say, [words, ""])
    assert place.locator("p").all_text_contents() == ["two", "three", "six"]  # what went wrong makes no room for news


@pytest.mark.parametrize("view", VIEWS)
def test_headings_do_not_jump_and_boxes_that_scroll_are_reached(page: Page, live: Live, view: str) -> None:
    page.set_viewport_size({"width": 900, "height": 800})
    open_view(page, live, f"#/{view}")
    expect(page.locator(SETTLED[view]).first).to_be_visible()
    assert no_sideways(page)
    assert page.evaluate(JUMPS) == []
    page.set_viewport_size({"width": 400, "height": 800})
    assert no_sideways(page)
    assert page.evaluate(UNREACHED) == []


def test_without_scripts_the_page_says_what_to_do(browser: Browser, live: Live) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(live.base)
    expect(tab.get_by_role("heading", name="This page needs JavaScript")).to_be_visible()
    expect(tab.locator(".loading")).to_be_hidden()
    context.close()


def test_suggested_labels_are_on_the_tiles(page: Page, live: Live) -> None:
    def flagged(route: Route) -> None:  # a network of two epochs suspects none by itself
        record = route.fetch().json()
        record["items"] = [one | {"flags": ["mislabel"], "suggested": NAMES[5]} for one in record["items"]]
        route.fulfill(body=json.dumps(record), content_type="application/json")

    page.route("**/api/v1/samples?*", flagged)
    first = live.get("/samples?sort=mislabel&order=desc&limit=1").json()["items"][0]
    open_view(page, live, "#/data?sort=mislabel&order=desc")
    tile = page.locator(".vg-tile[data-at='0']")
    expect(tile.locator(".vg-suggested")).to_have_text(NAMES[5])
    expect(tile.locator(".vg-label")).to_have_text(first["label"])
    assert tile.evaluate(
        "(node) => node.querySelector('.vg-suggested').getBoundingClientRect().bottom"
    ) <= tile.evaluate("(node) => node.getBoundingClientRect().bottom")


def test_many_classes_are_searched(page: Page, live: Live) -> None:
    def more(route: Route) -> None:
        record = route.fetch().json()
        record["classes"] = [{"class": i, "label": f"class {i:03d}", "samples": i} for i in range(120)]
        route.fulfill(body=json.dumps(record), content_type="application/json")

    page.route("**/api/v1/run", more)
    open_view(page, live, "#/run")
    box = page.get_by_label("Classes", exact=True)
    expect(box).to_contain_text("120, with 0 to 119 samples")
    page.get_by_label("Find a class").fill("class 11")
    expect(box.locator("li:visible")).to_have_count(10)
    expect(box).to_contain_text("10 of 120 shown")
    page.goto(f"{live.base}/#/map")
    legend = page.get_by_label("Legend", exact=True)
    expect(legend).to_contain_text("close together have similar colours")
    page.get_by_label("Find a class").fill("class 11")
    expect(legend.locator("button:visible")).to_have_count(10)


def test_pictures_that_do_not_come_are_said(page: Page, live: Live, allowed: list[str]) -> None:
    allowed.append("status of 500")
    body = json.dumps({"error": {"code": "internal", "message": "it went wrong", "field": None}})
    page.route("**/api/v1/sheet", lambda route: route.fulfill(status=500, body=body, content_type="application/json"))
    open_view(page, live, "#/data")
    expect(page.locator("#toast .bad p")).to_have_text("Pictures could not be loaded: it went wrong")


def test_a_single_epoch_has_a_point_and_one_whole_number(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    page.evaluate(
        """() => Promise.all([import('/static/js/parts/training.js'), import('/static/js/dom.js')]).then(([it, dom]) =>
          document.querySelector("main").prepend(dom.el("div", {id: "one"},
            it.trainingCard({epochs: [1], series: [{name: "loss", values: [2]}], history: null}))))"""
    )
    plot = page.locator("#one .plot")
    expect(plot.locator("circle.point")).to_have_count(1)
    texts = plot.locator("text[text-anchor=middle]:not(.axis)").all_text_contents()
    assert texts == ["1"]
