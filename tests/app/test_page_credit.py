"""The view Credit in a real browser: a file of sources, test samples or own pictures, bars, curve and table."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from playwright.sync_api import FilePayload, Page, expect

from .browser import no_sideways, open_view
from .made import Live, digit

PEOPLE = ("Ann", "<b>Bob</b>", "=1+1", "Zoë " + "z" * 190)


def sources(live: Live, folder: Path) -> Path:
    """A file that says whose the samples are; two are not in it."""
    items = live.get("/samples", params={"limit": 500}).json()["items"]
    path = folder / "sources.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(one["sample_id"], PEOPLE[min(i // 12, 3)]) for i, one in enumerate(items[:-2])]
        csv.writer(file).writerows([("sample_id", "contributor"), *rows])
    return path


def test_credit_for_test_samples(fresh: Live, page: Page, tmp_path: Path) -> None:
    open_view(page, fresh, "#/credit")
    share = page.get_by_role("button", name="Share the credit")
    expect(page.get_by_text("does not say who contributed")).to_be_visible()
    expect(share).to_be_disabled()
    page.get_by_label("Choose a CSV file of sources").set_input_files(sources(fresh, tmp_path))
    expect(page.get_by_label("Who contributed")).to_contain_text("2 samples are not listed")
    page.get_by_label("Number", exact=True).fill("30")
    share.click()
    expect(page.locator(".credit-bars li")).to_have_count(5)
    found = fresh.post("/credit", json={"test": {"first": 0, "count": 30}}).json()
    expect(page.locator(".credit-bars li .name")).to_have_text([one["name"] for one in found["contributors"]])
    figure = page.get_by_role("img", name="Lorenz curve")
    expect(figure).to_be_visible()
    expect(figure).to_have_attribute("aria-label", re.compile(re.escape(f"{found['gini']['value']:.3f}")))
    expect(page.locator(".credit-result tbody tr")).to_have_count(5)
    assert page.locator("main b:text-is('Bob')").count() == 0  # a name is text, not markup
    with page.expect_download() as coming:
        page.get_by_role("button", name="Save CSV").click()
    rows = list(csv.DictReader(Path(coming.value.path()).read_text("utf-8").splitlines()))
    assert {row["contributor"] for row in rows} == {*PEOPLE, "(not listed)"} - {"=1+1"} | {"'=1+1"}
    assert "count=30" in page.url
    page.reload()
    expect(page.locator(".credit-bars li")).to_have_count(5)  # the address says what was asked


def test_credit_for_own_pictures_on_a_phone(fresh: Live, page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    fresh.send("/credit/sources", sources(fresh, tmp_path).read_bytes(), "text/csv")
    open_view(page, fresh, "#/credit")
    page.get_by_label("my own pictures").check()
    files: list[FilePayload] = [{"name": f"{i}.png", "mimeType": "image/png", "buffer": digit(i)} for i in (2, 9)]
    page.get_by_label("Choose pictures").set_input_files(files)
    expect(page.locator(".own-pictures img")).to_have_count(2)
    page.get_by_role("button", name="Share the credit").click()
    expect(page.locator(".tile").first).to_contain_text("of 2")
    assert no_sideways(page)
    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("button", name="Share the credit")).to_be_disabled()


def test_a_wrong_file_is_refused_in_words(fresh: Live, page: Page, allowed: list[str]) -> None:
    allowed.append("422")
    open_view(page, fresh, "#/credit")
    wrong: FilePayload = {"name": "wrong.csv", "mimeType": "text/csv", "buffer": b"who,what\na,b\n"}
    page.get_by_label("Choose a CSV file of sources").set_input_files(wrong)
    expect(page.locator("#toast .bad")).to_contain_text("sample_id")


def test_a_file_is_called_by_its_own_name(fresh: Live, page: Page, tmp_path: Path, allowed: list[str]) -> None:
    allowed.append("422")
    open_view(page, fresh, "#/credit")
    own = sources(fresh, tmp_path).rename(tmp_path / "who gave what.csv")
    page.get_by_label("Choose a CSV file of sources").set_input_files(own)
    expect(page.get_by_label("Who contributed")).to_contain_text("from who gave what.csv")
    wrong = FilePayload(name="<b>wrong.csv", mimeType="text/csv", buffer=b"hello\n")
    page.get_by_label("Choose a CSV file of sources").set_input_files(wrong)
    expect(page.locator(".toast.bad")).to_contain_text("<b>wrong.csv row 1")
