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


def opened(page: Page, live: Live, query: str = "?sort=index") -> list[str]:
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


FIRST_FAILS = """(() => {
  const whole = window.fetch;
  let posts = 0;
  window.fetch = async (...given) => {
    if (given[1]?.method === "POST" && String(given[0]).endsWith("/decisions") && posts++ === 0) {
      await new Promise((done) => { window.fail = done; });
      throw new TypeError("Failed to fetch");
    }
    return whole(...given);
  };
})()"""


def test_the_window_for_a_label_is_about_the_sample_that_it_was_opened_for(fresh: Live, page: Page) -> None:
    page.add_init_script(FIRST_FAILS)
    names = opened(page, fresh)
    page.keyboard.press("k")  # about the first, and fails while the window is open: the list goes back to it
    until(lambda: page.evaluate("Boolean(window.fail)"))
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "1")
    page.keyboard.press("r")
    expect(page.locator("dialog")).to_be_visible()
    page.evaluate("window.fail()")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(lambda: bool(kinds(fresh)))
    assert kinds(fresh) == {names[1]: "relabel"}


def test_the_window_for_labels_is_about_its_samples_when_the_list_shrinks(fresh: Live, page: Page) -> None:
    names = opened(page, fresh, "?decision=none")
    for key in ("Shift+ArrowRight", "Shift+ArrowRight", "d", "r"):
        page.keyboard.press(key)
    expect(page.locator("dialog h2")).to_have_text("New label for 3 samples")
    expect(page.locator(".total")).to_have_text("79 samples")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(lambda: "relabel" in kinds(fresh).values())
    assert kinds(fresh) == dict.fromkeys(names[:3], "relabel")


LEAVES = "window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"  # true where nobody is asked


@pytest.mark.parametrize(
    ("keys", "asked", "wanted"),
    [
        ("kduU", False, "keep drop"),
        ("kdu", False, "keep"),
        ("ku", True, None),  # the first may have been heard by now, and nobody knows what to send instead
        ("kU", True, None),
    ],
)
def test_leaving_is_asked_about_only_where_it_would_lose_something(
    fresh: Live, page: Page, keys: str, asked: bool, wanted: str | None
) -> None:
    names = opened(page, fresh)
    for key in keys:
        page.keyboard.press("Shift+u" if key == "U" else key)
    assert page.evaluate(LEAVES) is not asked
    if wanted is not None:
        page.reload()
        until(lambda: kinds(fresh) == dict(zip(names, wanted.split(), strict=False)))


def test_a_step_about_samples_that_are_not_known_yet_is_taken_back_by_itself(live: Live, page: Page) -> None:
    open_view(page, live, "#/run")
    begun = """async (last) => {
      const { sent } = await import("/static/js/parts/outbox.js");
      const [one, unknown, undo] = [["keep", []], ["drop", null], ["undo", null]];
      const steps = [one, unknown, undo].map(([decision, items]) => ({ decision, items }));
      for (const step of steps.slice(0, last)) sent(step, () => new Promise(() => {}));
      return window.dispatchEvent(new Event("beforeunload", { cancelable: true }));
    }"""
    assert page.evaluate(begun, 3) is True
    page.reload()
    page.wait_for_selector("h1, h2")
    assert page.evaluate(begun, 2) is False
