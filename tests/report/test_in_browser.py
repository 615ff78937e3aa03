"""Pages of reports in a real browser: what is exported, what a filter says, what a narrow window shows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provnet.samples.decisions import read_decisions
from provnet.tools.credit.page import CreditReport, credit_html
from provnet.tools.debug.page import DuplicateRow, SignalRow, debug_html
from provnet.tools.map.page import map_html
from provnet.tools.membership.page import audit_html

from ..app.browser import browser
from .test_audit import REPORT
from .test_debugging import report, tile
from .test_map_page import report as map_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]
Open = Callable[..., "Page"]
# words of tables and legends that stand on two lines
BROKEN = """() => [...document.querySelectorAll(".plain, .legend")].flatMap((box) => {
  const found = [], texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let one = texts.nextNode(); one; one = texts.nextNode())
    for (const word of one.data.matchAll(/[^\\s-][^\\s]*/g)) {
      range.setStart(one, word.index); range.setEnd(one, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((line) => line.top)).size > 1) found.push(word[0]);
    }
  return found;
})"""

LINES = """(name) => {
  const range = document.createRange();
  range.selectNodeContents(name);
  return range.getClientRects().length;
}"""
CUT = "(all) => all.map((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight)"


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Open:
    """Puts a page into a tab of a given width."""

    def put(html: str, width: int = 1280) -> Page:
        (tmp_path / "page.html").write_text(html, "utf-8")
        tab = browser.new_page(viewport={"width": width, "height": 900}, accept_downloads=True)
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    return put


def two_suspects() -> str:
    """A cat and a dog that look wrong."""
    (first,) = report().suspects
    second = replace(first, sample=tile("b/2.png", "dog"))
    return debug_html(report(suspects=(first, second), class_names=("cat", "dog")))


def test_decisions_on_cards_that_a_filter_hides_are_exported_too(opened: Open) -> None:
    tab = opened(two_suspects())
    tab.locator(".suspect").first.get_by_label("drop").check()
    tab.select_option("#given", "dog")
    assert tab.locator("#shown").text_content() == "1 of 2 shown"
    with tab.expect_download() as saved:
        tab.click("#export")
    with Path(saved.value.path()).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["sample_id"], row["decision"]) for row in rows] == [("a/1.png", "drop"), ("b/2.png", "relabel")]


ODD = (
    "big cat",
    "big  cat",
    " big cat ",
    "big\tcat",
    "big\\tcat",
    "a\rb",
    "a\nb",
    "a\r\nb",
    "=1",
    "'=1",
    '"x,y"',
    "\u2028&lt;",
)


def test_exported_decisions_name_samples_and_classes_to_the_letter(opened: Open, tmp_path: Path) -> None:
    (first,) = report().suspects
    given = tuple(replace(first, sample=tile(name, ODD[0]), suggested=name) for name in ODD)
    tab = opened(debug_html(report(suspects=given, class_names=ODD)))
    with tab.expect_download() as saved:
        tab.click("#export")
    saved.value.save_as(tmp_path / "decisions.csv")
    rows = read_decisions(tmp_path / "decisions.csv")
    assert [(row.sample_id, row.new_label, row.kind) for row in rows] == [(name, name, "relabel") for name in ODD]


def test_a_filter_that_nothing_fits_says_so(opened: Open) -> None:
    tab = opened(two_suspects())
    words = tab.get_by_text("No suspect fits these filters.")
    assert not words.is_visible()
    tab.fill("#named", "nowhere")
    assert words.is_visible()
    tab.fill("#named", "b/2")
    assert not words.is_visible()


SIGNAL = SignalRow("neighbours", "labels of the most similar other samples, each counted by trust", 1.5, -0.17)


@pytest.mark.parametrize(
    "source", [audit_html(REPORT), debug_html(report(signals=(SIGNAL,)))], ids=["audit", "debugging"]
)
def test_numbers_and_words_of_tables_stay_whole_on_a_phone(opened: Open, source: str) -> None:
    tab = opened(source, 380)
    assert tab.evaluate(BROKEN) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 380  # tables scroll in boxes of their own


PERSON = {
    "name": "Ada",
    "listed": True,
    "samples": 1234,
    "lift": 1.25,
    "share": {"value": 0.6, "low": 0.5, "high": 0.7, "n": 9},
    "rank": 1,
    "rank_low": 1,
    "rank_high": 1,
    "first": 1.0,
}
CREDIT = {
    "contributors": [PERSON],
    "queries": 9,
    "supported": 9,
    "unsupported": 0,
    "unnamed": 0,
    "withheld": 0,
    "lorenz": [],
    "gini": {"value": None},
    "counted": "answers",
    "weights": "exemplars",
}


def test_lift_and_samples_of_contributors_stand_there_on_a_phone_too(opened: Open) -> None:
    tab = opened(credit_html(CreditReport("run", "net", "test", "by.csv", CREDIT)), 380)
    for words in ("1.25", "1,234"):
        assert any(one.is_visible() for one in tab.locator(".ranking").get_by_text(words).all()), words
    tab.set_viewport_size({"width": 1280, "height": 900})
    for words in ("1.25", "1,234"):
        assert sum(one.is_visible() for one in tab.locator(".ranking").get_by_text(words).all()) == 1, words


@pytest.mark.parametrize("width", [1280, 400])
def test_a_name_that_is_copied_from_a_page_is_whole(opened: Open, width: int) -> None:
    names = [
        "bars/bild 22 ñ.png",
        "bars/ two  blanks 0001 .png",
        "a/犬の写真写真写真写真写真写真.png",
        "a/" + "long " * 30,
    ]
    (first,) = report().suspects
    tab = opened(debug_html(report(suspects=tuple(replace(first, sample=tile(name)) for name in names))), width)
    found = tab.locator(".suspect .id[title]:not(.exemplar *)")
    copied = "(e) => { getSelection().selectAllChildren(e); return getSelection().toString(); }"
    assert [one.evaluate(copied) for one in found.all()] == names
    fits = "(e) => e.lastElementChild.getBoundingClientRect().right <= e.getBoundingClientRect().right + 1"
    assert all(one.evaluate(fits) for one in found.all())


def test_class_names_stay_on_a_line_and_copies_are_told_apart_by_their_names(opened: Open) -> None:
    names = ("bird/img_0020.png", "bird/copy of img_0020.png")
    copies = DuplicateRow(0, "exact", False, 2, tuple(tile(name, "bird") for name in names))
    one = report("a/1.png", "automobile", duplicates=(copies,))
    for width in (1280, 700):
        tab = opened(debug_html(one), width)
        assert tab.locator(".class-row .who b").evaluate(LINES) == 1
        for place in (".dup .id", ".dup .id .a"):
            assert not any(tab.locator(place).evaluate_all(CUT)), (width, place)
        assert [text.strip() for text in tab.locator(".dup .id").all_text_contents()] == list(names)


def test_a_map_fills_a_window_that_grows(opened: Open) -> None:
    tab = opened(map_html(map_report()).html, 420)
    extent = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
      const canvas = document.querySelector("canvas"), { width, height } = canvas;
      const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      let low = width, high = 0;
      for (let i = 0; i < width * height; i++)
        if ([0, 1, 2].some((k) => data[4 * i + k] !== data[k])) {
          low = Math.min(low, i % width); high = Math.max(high, i % width);
        }
      done((high - low) / Math.min(width, height));
    })))"""
    small = tab.evaluate(extent)
    tab.set_viewport_size({"width": 1600, "height": 1100})
    tab.wait_for_timeout(200)
    assert abs(tab.evaluate(extent) - small) < 0.1 * small
