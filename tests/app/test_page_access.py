"""Every view, light and dark: controls have names, text has the contrast of WCAG AA, nothing is wider than a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .browser import no_sideways, open_view
from .made import Live

VIEWS = ("explain", "data", "answers", "map", "membership", "credit", "run")
SETTLED = {
    "explain": ".exemplar",
    "data": "main .view-data img, main .view-data canvas, main .view-data button",
    "answers": ".confusion td a",
    "map": "main .view-map canvas",
    "membership": ".roc .plot",
    "credit": "main .view-credit button, main .view-credit input",
    "run": ".files li",
}
NAMELESS = """() => [...document.querySelectorAll("a, button, input, select, textarea, [role=meter], [role=img]")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.title || one.labels?.length))
  .map((one) => one.outerHTML.slice(0, 120))"""
FAINT = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((x) => x / 255)
    .map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.95) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    const seen = node.checkVisibility({opacityProperty: true});
    const hidden = !seen || node.closest("svg, :disabled, .visually-hidden, option, .skip");
    if (!own || hidden) continue;
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${node.className}: ${node.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(faint)];
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_names_contrast_and_width(page: Page, live: Live, view: str) -> None:
    open_view(page, live, f"#/{view}")
    expect(page.locator(SETTLED[view]).first).to_be_visible()
    expect(page.locator("#nav [aria-current=page]")).to_have_attribute("data-view", view)
    expect(page.locator("main h1")).to_have_count(1)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate(FAINT) == []
    assert page.evaluate(NAMELESS) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert no_sideways(page)


def test_the_check_of_contrast_can_fail(page: Page, live: Live) -> None:
    open_view(page, live, "#/run")
    expect(page.locator(".files li").first).to_be_visible()
    page.evaluate("document.documentElement.style.setProperty('--muted', '#b0b0b0')")
    assert len(page.evaluate(FAINT)) > 3


def test_the_view_that_is_open_is_seen_in_a_narrow_menu(page: Page, live: Live) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_view(page, live, "#/run")
    inside = """() => {
      const link = document.querySelector("#nav [aria-current]").getBoundingClientRect();
      const menu = document.querySelector(".top nav");
      const box = menu.getBoundingClientRect();
      return menu.scrollWidth > menu.clientWidth && link.left >= box.left - 1 && link.right <= box.right + 1;
    }"""
    assert page.evaluate(inside)


def test_the_keyboard_reaches_the_content(page: Page, live: Live) -> None:
    open_view(page, live)
    expect(page.locator(".exemplar").first).to_be_visible()
    page.locator("body").press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "face":
            break
    page.keyboard.press("Enter")  # an exemplar is left out without a mouse
    expect(page.locator(".changes")).to_be_visible()
    assert page.evaluate("document.activeElement.className") == "face"
