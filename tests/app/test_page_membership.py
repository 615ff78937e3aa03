"""The view Membership in a real browser: one picture, a batch, and the ROC of the run."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from .browser import no_sideways, open_view
from .made import Live, digit, digits, png

JUDGED = ".judged"


def given(*pictures: bytes) -> list[dict[str, object]]:
    return [{"name": f"{i}.png", "mimeType": "image/png", "buffer": one} for i, one in enumerate(pictures)]


def test_a_batch_is_judged_as_the_server_does(page: Page, live: Live) -> None:
    own = [png(digits("train", 80).images[row].numpy()) for row in (0, 5, 40)]
    others = [digit(3), digit(30)]
    open_view(page, live, "#/membership")
    page.set_input_files(".dropzone input", given(*own, *others))
    expect(page.locator(JUDGED)).to_have_count(5)
    keys = page.url.partition("hash=")[2].replace("%2C", ",").split(",")
    items = live.post("/membership", json={"sha256": keys}).json()["items"]
    shown = page.eval_on_selector_all(JUDGED, "all => all.map(one => one.dataset.verdict)")
    assert shown == [one["verdict"] for one in items]
    assert shown[:3] == ["member"] * 3
    first = page.locator(JUDGED).first
    expect(first).to_contain_text("Trained on")
    expect(first).to_contain_text("Its pixels are those of a training sample")
    expect(first).to_contain_text(re.compile(r"p (=|<) 0\.\d+, from \d+ held-out samples"))
    expect(first).to_contain_text(digits("train", 80).samples.sample_ids[0])
    expect(page.locator(".view-membership strong").first).to_have_text("5 asked about:")
    page.reload()
    expect(page.locator(JUDGED)).to_have_count(5)


def test_long_names_leave_room_for_how_often_a_picture_is_there(page: Page, live: Live) -> None:
    open_view(page, live, "#/membership")
    page.set_input_files(".dropzone input", given(png(digits("train", 80).images[0].numpy())))
    often = page.locator(JUDGED).get_by_text("2 times in the data")
    expect(often).to_be_visible()
    box = often.bounding_box()
    assert box is not None and box["height"] < 40  # on one line
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert no_sideways(page)


def test_one_picture_by_its_address_and_samples_to_try(page: Page, live: Live) -> None:
    hash_ = digits("test", 60).samples.hex(9)
    open_view(page, live, f"#/membership?hash={hash_}")
    expect(page.locator(JUDGED)).to_have_count(1)
    page.get_by_role("button", name="Try training samples").click()
    expect(page.locator(f"{JUDGED}[data-verdict=member]")).to_have_count(6)
    page.get_by_role("link", name="Explain it").first.click()
    expect(page.locator(".query h2")).to_have_text("Training sample")


def test_roc_of_the_run(page: Page, live: Live) -> None:
    roc = live.get("/membership/roc").json()
    open_view(page, live, "#/membership")
    expect(page.locator(".roc .plot")).to_have_count(2)
    best = roc["curves"][0]
    words = f"{best['auc']['value']:.3f} ({best['auc']['low']:.3f} to {best['auc']['high']:.3f}"
    expect(page.locator(".roc tbody tr").first).to_contain_text(words)
    for kind in ("linear", "logarithmic"):
        expect(page.locator(f".roc .plot[aria-label*='{kind}']")).to_have_attribute("aria-label", re.compile("AUC 0"))
    expect(page.locator(".roc .plot .line")).to_have_count(2)
    page.get_by_label("Compare every score").check()
    expect(page.locator(".roc .plot .line")).to_have_count(2 * min(6, len(roc["curves"])))
    expect(page.get_by_role("columnheader", name="found at 1 % false alarms")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".roc .plot").first).to_have_attribute("width", re.compile(r"^3\d\d$"))
    assert no_sideways(page)


def test_before_the_audit_equal_pixels_decide_and_a_button_starts_it(fresh: Live, page: Page) -> None:
    open_view(page, fresh, "#/membership")
    page.set_input_files(".dropzone input", given(png(digits("train", 80).images[2].numpy()), digit(3)))
    expect(page.locator(JUDGED)).to_have_count(1)
    expect(page.locator(JUDGED)).to_have_attribute("data-verdict", "member")
    expect(page.get_by_label("Not decided yet")).to_contain_text("takes the audit above")
    page.get_by_role("button", name="Compute now").click()
    expect(page.locator(".roc .plot")).to_have_count(2, timeout=30_000)


def test_verdicts_are_given_again_once_the_audit_is_there(page: Page, fresh: Live) -> None:
    open_view(page, fresh, "#/membership")
    page.set_input_files(".dropzone input", given(digit(3)))
    expect(page.get_by_label("Not decided yet").locator("li")).to_have_count(1)
    page.get_by_role("button", name="Compute now").click()
    expect(page.locator(JUDGED)).to_contain_text("held-out samples", timeout=60_000)
    expect(page.locator(JUDGED)).to_contain_text("0.png")
