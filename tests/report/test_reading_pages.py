"""Pages for everybody: headings in order, boxes that scroll reached by keys, motion that stops, faults said."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from provnet.tools.debug.page import debug_html
from provnet.tools.demo import demo_html
from provnet.tools.generate.page import LOSSES, SHARES, GenerationReport, animation, course_png, generation_html
from provnet.tools.map.page import map_html, map_png
from provnet.tools.membership.page import audit_html
from tests.cases import cases

from ..app.browser import browser
from .cards import card, demo_report
from .reading import Page as Read
from .test_audit import REPORT
from .test_debugging import report as debugged
from .test_map_page import report as mapped

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]
Open = Callable[..., "Page"]


def moving() -> GenerationReport:
    steps = [np.full((28, 28), 20 * i, np.uint8) for i in range(10)]
    return GenerationReport("Made", "", (card(),), "runs/a", "a VAE", moving=animation(steps))


PAGES: dict[str, Callable[[], str]] = {
    "audit": lambda: audit_html(REPORT),
    "debug": lambda: debug_html(debugged()),
    "demo": lambda: demo_html(demo_report()),
    "map": lambda: map_html(mapped()).html,
    "generation": lambda: generation_html(moving()),
}


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Open:
    def put(html: str, **more: str) -> Page:
        (tmp_path / "page.html").write_text(html, "utf-8")
        tab = browser.new_page(viewport={"width": 900, "height": 800}, **more)  # type: ignore[arg-type]
        tab.goto((tmp_path / "page.html").as_uri())
        return tab

    return put


@cases("name", PAGES)
def test_headings_do_not_jump_and_boxes_that_scroll_have_names(name: str) -> None:
    page = Read(PAGES[name]())
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(now <= before + 1 for before, now in itertools.pairwise(levels)), levels
    for box in page.all("div", "scroll"):
        assert (box["tabindex"], box["role"]) == ("0", "region")
        assert box["aria-label"].strip()


def test_the_debugging_page_begins_with_what_can_be_done() -> None:
    page = debug_html(debugged())
    found = re.findall(r'<section id="(\w+)">', page)
    assert found == ["suspects", "duplicates", "anomalies", "next", "classes", "signals", "meaning"]
    assert set(re.findall(r'href="#(\w+)"', page)) <= set(found)


def test_curves_can_be_hidden(opened: Open) -> None:
    tab = opened(audit_html(REPORT))
    drawn = tab.locator("#curves .chart path:visible")
    assert drawn.count() == 14  # six scores and guessing, twice
    tab.get_by_role("checkbox", name="class branch, entropy").uncheck()
    assert drawn.count() == 12
    assert tab.locator("#curves .chart .p4:visible").count() == 0


def test_motion_can_be_stopped_and_is_not_forced(opened: Open) -> None:
    tab = opened(generation_html(moving()))
    assert tab.locator(".moving").is_visible()
    assert tab.locator(".still").evaluate("(node) => node.naturalWidth / node.naturalHeight") > 7  # eight frames
    tab.locator("summary").click()
    assert not tab.locator(".moving").is_visible()
    still = opened(generation_html(moving()), reduced_motion="reduce")
    assert not still.locator(".moving").is_visible()
    assert still.locator(".still").is_visible()


def test_a_map_whose_data_are_not_whole_says_so(opened: Open) -> None:
    whole = map_html(mapped()).html
    assert not opened(whole).locator("#state").is_visible()
    for broken in (whole.replace('"places":', '"place":'), whole.replace('"xy":"', '"xy":"!')):
        assert "The map could not be drawn" in opened(broken).locator("#state").inner_text()
    cut = opened(whole[: whole.index('<script type="application/json"')])
    assert "the file is incomplete" in cut.locator("#state").inner_text()


def test_names_on_the_map_do_not_lie_on_each_other_or_leave_it(opened: Open) -> None:
    tab = opened(map_html(mapped()).html)
    wanted = [{"text": str(i), "x": 5 + (i * 37) % 600, "y": 3 + (i * 53) % 400, "wide": 120} for i in range(60)]
    outside = [{"text": "out", "x": -5, "y": 50, "wide": 10}]
    asked = "(all) => marks.roomFor(all, { width: 620, height: 410, line: 18, most: Infinity, right: 52 })"
    found = tab.evaluate(asked, wanted + outside)
    assert 20 < len(found) < 60
    assert found[0]["text"] == "0"  # the most important stays
    assert all(60 <= one["x"] <= 620 - 52 - 60 and 9 <= one["y"] <= 401 for one in found)
    for i, one in enumerate(found):
        assert all(abs(one["x"] - b["x"]) >= 120 or abs(one["y"] - b["y"]) >= 18 for b in found[:i])


def test_many_classes_are_coloured_by_where_they_lie_and_lit_by_their_names(opened: Open) -> None:
    many = replace(mapped(120), class_names=[f"class {i}" for i in range(60)], labels=np.arange(123) % 60, groups=())
    tab = opened(map_html(many).html, color_scheme="dark")
    signs = tab.locator(".key i").evaluate_all("(all) => all.map((one) => one.style.background)")
    assert len(signs) == 60 and len(set(signs)) > 40
    assert "near each other have like colours" in tab.locator("#repeats").inner_text()
    seen = "() => document.getElementById('map').toDataURL()"
    before = tab.evaluate(seen)
    tab.locator(".key").nth(7).hover()
    tab.wait_for_timeout(200)
    assert tab.evaluate(seen) != before


def test_names_on_the_picture_stay_inside_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    names = [f"a rather long name of a class {i:03d}" for i in range(30)]
    xy = np.repeat(np.stack([np.arange(30) % 2 * 10.0, np.arange(30) // 2 * 0.9], 1), 4, axis=0)  # along both edges
    given = replace(mapped(120, False), class_names=names, labels=np.repeat(np.arange(31), 4)[:123], xy=xy)
    map_png(replace(given, near=np.zeros((120, 5), int)))
    drawing = drawn[0]
    drawing.canvas.draw()
    shown = [words for words in drawing.axes[0].texts if words.get_visible()]
    boxes = [words.get_window_extent() for words in shown]
    assert len(boxes) > 10
    assert all(box.x0 >= 0 and box.x1 <= drawing.bbox.x1 for box in boxes)
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])
    assert shown[0].get_text() == "a rather lo…class 000"


def test_one_epoch_is_one_point_under_one_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    course = [{"epoch": epoch, **{name: 0.5 for name, *_ in (*LOSSES, *SHARES)}} for epoch in (1, 2, 3)]
    course_png(course[:1])
    course_png(course)
    for one, whole in zip(drawn, ([1], [1, 2, 3]), strict=True):
        for axes in one.axes:
            low, high = axes.get_xlim()
            assert [tick for tick in axes.get_xticks() if low <= tick <= high] == whole
            assert all(line.get_marker() == ("o" if whole == [1] else "None") for line in axes.get_lines())
