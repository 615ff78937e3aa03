"""The choice of weights in a real browser: there where it has an effect, by keyboard, and part of the address."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .browser import no_sideways, open_view
from .made import Live

NAME = "What the weights say"
WEIGHTS = ".exemplars .weight .num"


def written(live: Live, **asked: object) -> list[str]:
    """The weights as the page writes them."""
    found = live.post("/explain/known", json={"test": 1, **asked}).json()
    return [f"{one['weight'] * 100:.1f} %" for one in found["exemplars"]]


def test_joint_weights_are_chosen_with_the_keyboard_and_kept_in_the_address(independent: Live, page: Page) -> None:
    plain, joint = written(independent), written(independent, weights="joint")
    assert plain != joint
    open_view(page, independent, "#/explain?test=1")
    expect(page.locator(WEIGHTS)).to_have_text(plain)
    choice = page.get_by_label(NAME)
    expect(choice).to_have_value("plain")
    page.get_by_role("button", name="Difference").focus()
    page.keyboard.press("Tab")
    expect(choice).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(WEIGHTS)).to_have_text(joint)
    expect(page).to_have_url(re.compile("test=1&weights=joint$"))
    expect(choice).to_be_focused()  # it is drawn anew, and a person goes on from where they were
    expect(page.get_by_label("Training samples", exact=True)).to_contain_text("probability of the sample's class")
    page.keyboard.press("Tab")
    expect(page.get_by_label("How many samples")).to_be_focused()
    page.reload()
    expect(choice).to_have_value("joint")
    expect(page.locator(WEIGHTS)).to_have_text(joint)
    choice.select_option("plain")
    expect(page.locator(WEIGHTS)).to_have_text(plain)
    expect(page).to_have_url(re.compile("test=1$"))


def test_the_choice_holds_for_what_is_asked_next(independent: Live, page: Page) -> None:
    open_view(page, independent, "#/explain?test=3&weights=joint")
    page.locator(".strip button[data-position='1']").click()
    expect(page.locator(WEIGHTS)).to_have_text(written(independent, weights="joint"))
    page.get_by_label("How many samples").select_option("10")
    expect(page.locator(WEIGHTS)).to_have_text(written(independent, weights="joint", k=10))
    expect(page).to_have_url(re.compile("test=1&k=10&weights=joint$"))
    page.locator(".exemplars .exemplar .face").first.click()
    expect(page.locator(".left-out li")).to_have_count(1)
    first = independent.post("/explain/known", json={"test": 1, "weights": "joint"}).json()["exemplars"][0]["sha256"]
    expect(page.locator(WEIGHTS)).to_have_text(written(independent, weights="joint", k=10, without=[first]))


@pytest.mark.parametrize("asked", ["", "&weights=joint"])
def test_there_is_no_choice_where_it_would_change_nothing(live: Live, page: Page, asked: str) -> None:
    open_view(page, live, f"#/explain?test=4{asked}")
    expect(page.locator(WEIGHTS)).to_have_count(5)
    expect(page.get_by_label("How many samples")).to_be_visible()
    expect(page.get_by_label(NAME)).to_have_count(0)
    expect(page).to_have_url(re.compile("test=4$"))
    open_view(page, live, "#/credit")
    expect(page.get_by_label("Weights counted", exact=True)).to_be_visible()
    expect(page.get_by_label("What the weights say", exact=True)).to_have_count(0)


def test_credit_offers_both_where_they_differ(independent: Live, page: Page) -> None:
    open_view(page, independent, "#/credit?weights=joint")
    expect(page.get_by_label("What the weights say", exact=True)).to_have_value("joint")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_choice_is_readable_and_fits(independent: Live, page: Page, theme: str, width: int) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 844})
    open_view(page, independent, "#/explain?test=1&weights=joint")
    choice = page.get_by_label(NAME)
    expect(choice).to_be_visible()
    assert no_sideways(page)
    colours = "one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"
    front, back = (luminance(colour) for colour in choice.evaluate(colours))
    assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5
    assert (back < 0.5) == (theme == "dark")


def luminance(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)", as WCAG has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
