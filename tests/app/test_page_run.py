"""The view Run in a real browser: curves, figures, files; and what all of the page weighs."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from provnet_app.server import read_assets

from .browser import no_sideways, open_view
from .made import NAMES, Live


def test_run_in_short(page: Page, live: Live) -> None:
    run = live.get("/run").json()
    open_view(page, live, "#/run")
    expect(page.locator("h1")).to_have_text("a <b>run</b>")
    expect(page.locator(".tile").first).to_contain_text(str(run["samples"]))
    names = page.locator("section[aria-label=Classes] .name")
    expect(names).to_have_count(len(NAMES))
    assert names.all_text_contents() == list(NAMES)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert no_sideways(page)


def test_curves_with_a_table(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    plot = page.locator("section[aria-label=Training] .plot").first
    expect(plot).to_have_attribute("aria-label", "Loss by epoch: loss ends at 1.5")
    expect(plot.locator("path.line")).to_have_count(1)
    plot.hover()
    expect(page.locator(".readout").first).to_contain_text("epoch")
    page.get_by_text("As a table").click()
    rows = page.locator("section[aria-label=Training] tbody tr")
    expect(rows.first).to_be_visible()
    assert rows.all_inner_texts() == ["1\t2.5", "2\t1.5"]


def test_model_card_is_text(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    card = page.locator("section[aria-label='Model card']")
    expect(card.locator("h3")).to_contain_text("Provenance network")
    expect(card.locator("td", has_text=NAMES[0])).to_have_count(1)  # a name with markup is a cell's text
    assert page.locator("main script").count() == 0


def test_files_verified_and_not(fresh: Live, page: Page) -> None:
    folder = fresh.state.served.folder
    assert folder is not None
    open_view(page, fresh, "#/run")
    expect(page.locator("section[aria-label=Files] .chip")).to_have_text("All files are unchanged")
    kept = (folder / "README.md").read_bytes()
    try:
        (folder / "README.md").write_bytes(kept + b"changed")
        page.reload()
        expect(page.locator("section[aria-label=Files] .chip")).to_have_text("Files have changed")
        expect(page.locator(".files li", has=page.locator(".small.bad"))).to_contain_text("README.md")
    finally:
        (folder / "README.md").write_bytes(kept)


def test_evaluation_and_checks_say_when_there_are_none(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    expect(page.locator("section[aria-label=Evaluation] .empty")).to_contain_text("provnet evaluate")
    expect(page.locator("section[aria-label='Trust checks'] .empty")).to_contain_text("provnet check")


def test_evaluation_with_intervals_and_checks_with_their_bars(page: Page, live: Live) -> None:
    figure = {"value": 0.9, "low": 0.85, "high": 0.94, "n": 200, "why": None}
    none = {"value": None, "low": None, "high": None, "n": None, "why": "too few"}
    rows = [{"name": "class_accuracy", "group": "", **figure}, {"name": "supported", "group": "test", **none}]
    outcome = {
        "group": "weights",
        "name": "a",
        "words": "<b>words</b>",
        "percent": True,
        "bar": "at most 5 %",
        "note": "",
    }
    checks = [{**outcome, "passed": False, "figure": figure}, {**outcome, "passed": True, "figure": None}]
    page.route("**/api/v1/run/evaluation", lambda route: route.fulfill(json={"measures": rows}))
    answer = {"checks": {}, "outcomes": checks, "current": False, "how": "provnet check RUN"}
    page.route("**/api/v1/run/checks", lambda route: route.fulfill(json=answer))
    open_view(page, live, "#/run")
    measured = page.locator("section[aria-label=Evaluation]")
    expect(measured).to_contain_text("90.0 % (85.0 to 94.0, n 200)")
    expect(measured).to_contain_text("too few")
    shown = page.locator("section[aria-label='Trust checks']")
    expect(shown.locator(".chip")).to_have_text(["failed", "passed"])
    expect(shown).to_contain_text("<b>words</b>")
    expect(shown.locator(".note")).to_contain_text("changed since")


def test_page_weight() -> None:
    assert sum(len(asset.content) for asset in read_assets().values()) < 350_000


def test_test_pictures_that_were_trained_on_are_not_called_unseen(live: Live, page: Page) -> None:
    open_view(page, live, "#/run")
    card = """(more) => import("/static/js/parts/measured.js").then((it) => it.evaluationCard({ measures: [
      { name: "class_accuracy", group: "", value: 0.9, low: 0.8, high: 1, n: 9 }, ...more,
    ] }).map((part) => part.textContent))"""
    seen = {"name": "test_in_training", "group": "", "value": 7, "low": None, "high": None, "n": None}
    (text,) = page.evaluate(card, [seen])
    assert text.startswith("On test samples, 7 of them trained on")
    (text,) = page.evaluate(card, [])
    assert text.startswith("On samples it never saw")
