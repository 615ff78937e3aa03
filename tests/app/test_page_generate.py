"""The view Generate in a real browser, for a run that makes pictures: sliders, class, seed, and the samples behind."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from ..generation.made import pictures
from .browser import no_sideways, open_view
from .made import Live

MADE = "section[aria-label='The picture that was made'] img"


def hashes(page: Page) -> list[str]:
    return page.eval_on_selector_all(".exemplar", "all => all.map(one => one.dataset.hash)")


def test_a_run_that_classifies_has_no_such_view(page: Page, live: Live) -> None:
    open_view(page, live)
    assert page.locator("#nav a[data-view=generate]").count() == 0
    page.evaluate("location.hash = '#/generate'")
    expect(page).to_have_url(re.compile("#/explain"))


def test_seed_class_and_sliders_follow_the_server(page: Page, maker: Live) -> None:
    open_view(page, maker, "#/generate?seed=5&class=2")
    found = maker.post("/generate", json={"seed": 5, "class": 2}).json()
    expect(page.locator(MADE)).to_have_attribute("src", found["picture"])
    assert hashes(page) == [one["sha256"] for one in found["exemplars"]]
    first = page.locator("input[name=latent-0]")
    assert float(first.input_value()) == pytest.approx(found["latent"][0], abs=0.026)
    first.fill("2.5")
    wanted = [2.5, *np.clip(found["latent"][1:], -6, 6).tolist()]  # as far as the server takes them
    moved = maker.post("/generate", json={"seed": 5, "class": 2, "latent": wanted}).json()
    assert moved["picture"] != found["picture"]
    expect(page.locator(MADE)).to_have_attribute("src", moved["picture"])
    assert hashes(page) == [one["sha256"] for one in moved["exemplars"]]
    page.get_by_label("Class of the picture").select_option("0")
    other = maker.post("/generate", json={"seed": 5, "class": 0, "latent": wanted}).json()
    expect(page.locator(MADE)).to_have_attribute("src", other["picture"])
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Seed").press("Enter")
    seventh = maker.post("/generate", json={"seed": 7, "class": 0}).json()
    expect(page.locator(MADE)).to_have_attribute("src", seventh["picture"])
    expect(page).to_have_url(re.compile(r"#/generate\?seed=7&class=0$"))


def test_from_a_known_picture_and_on_a_phone(page: Page, maker: Live) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    hash_ = pictures().samples.hex(4)
    open_view(page, maker, f"#/generate?hash={hash_}")
    found = maker.post("/generate", json={"sha256": hash_}).json()
    expect(page.locator(MADE)).to_have_attribute("src", found["picture"])
    page.get_by_role("button", name="Difference").click()
    expect(page.locator(".exemplar canvas[data-mean]")).to_have_count(len(found["exemplars"]))
    assert no_sideways(page)
