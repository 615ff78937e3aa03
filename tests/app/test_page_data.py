"""The view Data in a real browser: filter, move by keys, relabel, undo, export, scroll through 60,000 samples."""

from __future__ import annotations

import csv
import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from provnet_app.served import Served

from .browser import no_sideways, open_view
from .made import NAMES, Live, serving, until

MANY = 60_000


@pytest.fixture
def decided(served: Served, live: Live, tmp_path: Path, servers: ExitStack) -> Live:
    """A server of its own with all scores, where decisions may be made; `live` has computed them."""
    assert served.keep is not None
    shutil.copytree(served.keep, tmp_path / "app")
    return servers.enter_context(serving(replace(served, keep=tmp_path / "app")))


def items(tab: Page, live: Live, query: str = "?sort=index") -> None:
    open_view(tab, live, f"#/data{query}")
    tab.wait_for_selector(".vg-tile:not(.waiting)")


def exported(tab: Page) -> list[dict[str, str]]:
    with tab.expect_download() as coming:
        tab.get_by_role("link", name="Export CSV").click()
    assert coming.value.suggested_filename == "decisions.csv"
    return list(csv.DictReader(Path(coming.value.path()).read_text("utf-8").splitlines()))


def test_relabelled_by_keys_undone_and_exported(decided: Live, page: Page) -> None:
    items(page, decided)
    grid = page.get_by_role("listbox", name="Training samples")
    page.locator(".vg-tile[data-at='3']").click()
    first = decided.get("/samples", params={"offset": 3, "limit": 1}).json()["items"][0]
    page.keyboard.press("r")
    page.get_by_role("combobox", name="New label").fill("emoji")
    page.keyboard.press("Enter")
    expect(page.locator(".vg-tile[data-at='3'] .vg-badge")).to_have_text("→ 🦊 emoji")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "4")  # on to the next one
    page.keyboard.press("d")
    expect(page.locator(".vg-tile[data-at='4'] .vg-badge")).to_contain_text("drop")
    page.keyboard.press("k")
    expect(page.locator(".vg-tile[data-at='5'] .vg-badge")).to_contain_text("keep")
    page.keyboard.press("u")
    expect(page.locator(".vg-tile[data-at='5'] .vg-badge")).to_be_empty()
    page.keyboard.press("Shift+U")
    expect(page.locator(".vg-tile[data-at='5'] .vg-badge")).to_contain_text("keep")
    page.keyboard.press("u")
    expect(page.get_by_text("0 keep, 1 relabel, 1 drop")).to_be_visible()
    expect(grid).to_be_focused()
    rows = exported(page)
    assert {row["decision"] for row in rows} == {"relabel", "drop"}
    changed = next(row for row in rows if row["decision"] == "relabel")
    assert (changed["sample_id"], changed["sha256"], changed["new_label"]) == (
        first["sample_id"],
        first["sha256"],
        "🦊 emoji",
    )


def test_many_are_selected_with_shift_and_dropped_in_one_step(decided: Live, page: Page) -> None:
    items(page, decided)
    page.locator(".vg-tile[data-at='1']").click()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".vg-tile[aria-selected='true']")).to_have_count(3)
    expect(page.get_by_label("The sample", exact=True)).to_contain_text("3 selected")
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_text("0 keep, 0 relabel, 3 drop")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("nothing decided yet")).to_be_visible()
    page.get_by_label("Decision", exact=True).select_option(label="decided")
    expect(page.get_by_text("No sample fits these filters.")).to_be_visible()


def test_filters_are_in_the_address_and_the_back_button_takes_them_away(page: Page, live: Live) -> None:
    items(page, live)
    expect(page.locator(".total")).to_have_text("82 samples")
    page.get_by_label("Class", exact=True).select_option("3")
    expect(page.locator(".total")).to_have_text("8 samples")
    assert "class=3" in page.url
    page.get_by_label("Sort by").select_option("mislabel")
    found = live.get("/samples?class=3&sort=mislabel&order=desc").json()["items"]
    assert len(found) == 8
    scores = page.locator(".vg-tile:visible .vg-score")
    expect(scores).to_have_text([f"{one['mislabel']:.2f}" for one in found])
    page.get_by_label("Sample id").fill("no such id")
    expect(page.get_by_text("No sample fits these filters.")).to_be_visible()
    page.go_back()
    expect(page.locator(".total")).to_have_text("8 samples")
    page.go_back()
    expect(page.locator(".total")).to_have_text("82 samples")
    items(page, live, "?class=3&sort=typicality&order=asc&maximum=1&order=nonsense")
    expect(page.locator(".total")).to_have_text("8 samples")
    expect(page.get_by_label("Class", exact=True)).to_have_value("3")


def test_duplicate_groups_and_the_panel(page: Page, live: Live) -> None:
    items(page, live)
    page.get_by_role("button", name="Duplicates").click()
    groups = live.get("/summary").json()["duplicate_groups"]
    assert groups >= 2
    named = page.locator(".vg-tile:visible .vg-group")
    expect(named.first).to_have_text("group 0")
    until(lambda: len(set(named.all_inner_texts())) == groups)
    page.locator(".vg-tile[data-at='0']").click()
    panel = page.get_by_label("The sample", exact=True)
    expect(panel.get_by_role("heading", name="The network recognises")).to_be_visible()
    expect(panel.locator("ol.named li")).not_to_have_count(0)
    panel.get_by_role("link", name="in group 0").click()
    expect(page.get_by_role("button", name="Duplicate group 0: take this filter away")).to_be_visible()


LATE = """(() => {
  const whole = window.setTimeout;
  window.setTimeout = (act, wait, ...more) => {
    if (wait === 300) window.late = act;
    return whole(act, wait, ...more);
  };
  window.addEventListener("hashchange", () => window.late?.()); // before the page hears of it
})()"""


def test_a_link_counts_although_the_view_that_is_left_would_note_where_one_stood(page: Page, live: Live) -> None:
    page.add_init_script(LATE)
    items(page, live)
    page.get_by_role("button", name="Duplicates").click()
    expect(page.locator(".vg-tile:visible .vg-group").first).to_have_text("group 0")
    page.locator(".vg-tile[data-at='0']").click()
    page.get_by_label("The sample", exact=True).get_by_role("link", name="in group 0").click()
    expect(page.get_by_role("button", name="Duplicate group 0: take this filter away")).to_be_visible()
    assert "group=0" in page.url


def test_names_are_text_and_fit_a_phone(page: Page, live: Live) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    items(page, live, "?sort=label")
    assert no_sideways(page)
    page.locator(".vg-tile[data-at='0']").click()
    expect(page.locator(".panel-label")).to_have_text(NAMES[0])
    assert page.locator("main script, main [onerror]").count() == 0
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Relabel").click()
    expect(page.get_by_role("option", name=NAMES[5])).to_be_visible()
    assert no_sideways(page)
    page.keyboard.press("Escape")


def test_only_rows_in_sight_are_in_the_document(page: Page, live: Live, allowed: list[str]) -> None:
    allowed.append("404")  # the server, asked about the current one, knows no such ids
    real = live.get("/samples", params={"limit": 80}).json()["items"]
    asked: list[int] = []

    def many(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        offset, limit = int(query["offset"][0]), int(query["limit"][0])
        asked.append(offset)
        rows = [{**real[i % 80], "index": i, "sample_id": f"train/{i}"} for i in range(offset, offset + limit)]
        route.fulfill(json={"total": MANY, "offset": offset, "scores": True, "items": rows[: MANY - offset]})

    page.route("**/api/v1/samples?*", many)
    items(page, live)
    assert page.locator(".vg-tile").count() < 150
    page.locator(".vg-tile[data-at='0']").click()
    page.keyboard.press("End")
    last = page.locator(f".vg-tile[data-at='{MANY - 1}']")
    expect(last).to_have_attribute("aria-label", re.compile(rf"^{re.escape(real[-1]['label'])}, train/{MANY - 1},"))
    expect(last.locator(".vg-picture")).to_have_attribute("style", re.compile("blob:"))
    page.locator(".vg").evaluate("node => { node.scrollTop = node.scrollHeight / 2; }")
    expect(page.locator(f".vg-tile[data-at='{MANY // 2}']")).not_to_have_class(re.compile("waiting"))
    places = page.locator(".vg-tile:visible").evaluate_all("tiles => tiles.map((one) => Number(one.dataset.at))")
    assert all(abs(one - MANY / 2) < 300 for one in places)
    assert page.locator(".vg-tile").count() < 150
    assert len(set(asked)) < 12  # what was jumped over was never fetched


def test_scores_are_computed_on_demand(fresh: Live, page: Page) -> None:
    items(page, fresh)
    expect(page.get_by_role("heading", name="Scores of the samples")).to_be_visible()
    assert page.locator(".quick").get_by_role("button", name="Suspects").count() == 0
    page.get_by_role("button", name="Compute now").click()
    expect(page.locator(".quick").get_by_role("button", name="Suspects")).to_be_visible(timeout=20_000)
    expect(page.get_by_role("heading", name="Scores of the samples")).to_have_count(0)


def test_the_count_of_all_is_that_of_the_list(page: Page, live: Live) -> None:
    run = live.get("/run").json() | {"withheld": 3}  # samples counts those that may be named, without them
    page.route("**/api/v1/run", lambda route: route.fulfill(json=run))
    items(page, live)
    expect(page.locator(".quick button").first).to_have_text("All82")
    expect(page.locator(".total")).to_have_text("82 samples")


def test_what_another_tab_decided_is_shown_when_one_comes_back(decided: Live, page: Page) -> None:
    items(page, decided)
    expect(page.locator(".decided")).to_have_text("nothing decided yet")
    first = decided.get("/samples", params={"limit": 1}).json()["items"][0]
    item = {"sample_id": first["sample_id"], "sha256": first["sha256"]}
    decided.post("/decisions", json={"items": [item], "decision": "drop"})
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator(".decided")).to_have_text("0 keep, 0 relabel, 1 drop")
    expect(page.locator(".vg-tile[data-at='0'] .vg-badge")).to_contain_text("drop")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".decided")).to_have_text("nothing decided yet")


@pytest.mark.parametrize("moved", [True, False])
def test_missing_pictures_are_told_with_what_to_do(served: Served, page: Page, servers: ExitStack, moved: bool) -> None:
    why = ("/old/place: no such file or folder",)
    gone = replace(served, training=None, index=None, facts=why, test=None, test_why=why[0], keep=None)
    found = servers.enter_context(serving(gone if moved else replace(served, keep=None)))
    items(page, found)
    note = page.locator(".view-data > .note")
    if not moved:
        expect(note).to_have_count(0)
        return
    expect(note).to_contain_text("The training pictures are missing (/old/place: no such file or folder)")
    expect(note).to_contain_text("--data")
    page.get_by_role("link", name="Explain", exact=True).click()
    expect(page.locator(".choose")).to_contain_text("There are no test samples to choose from: /old/place")


def test_it_opens_on_the_suspects_and_they_are_reviewed_one_by_one(decided: Live, page: Page) -> None:
    items(page, decided, "")
    order = decided.get("/samples", params={"sort": "issue", "order": "desc", "limit": 4}).json()["items"]
    expect(page.locator(".what-next")).to_contain_text("The most suspicious come first")
    assert "sort=issue" in page.url
    items(page, decided, "?sort=issue&order=desc")  # all, not those alone that are flagged
    page.get_by_role("button", name="Review one by one").last.click()
    stage = page.locator(".stage")
    expect(stage.locator(".panel-label").first).to_have_text(order[0]["label"])
    expect(stage.locator(".typical").first.locator("img").first).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(page.locator(".vg-tile[data-at='1'] .vg-badge")).to_contain_text("keep")
    page.keyboard.press("p")  # back over those that are decided about: there is none before them
    expect(page.locator("#toast")).to_contain_text("comes before this one")
    page.keyboard.press("Home")
    page.keyboard.press("n")
    expect(page.locator(".vg-tile.current")).to_have_attribute("data-at", "2")
    page.keyboard.press("v")
    expect(stage).to_be_hidden()
    assert decided.get("/decisions").json()["counts"]["keep"] == 2


def test_no_label_is_chosen_for_a_sample_that_is_not_in_doubt(decided: Live, page: Page) -> None:
    items(page, decided, "?sort=mislabel&order=asc")
    page.locator(".vg-tile[data-at='0']").click()
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Choose a label")).to_be_visible()
    page.keyboard.press("Escape")
    assert decided.get("/decisions").json()["total"] == 0


def test_tags_are_given_filtered_by_and_kept(decided: Live, page: Page) -> None:
    items(page, decided)
    page.locator(".vg-tile[data-at='2']").click()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("t")
    page.keyboard.type("blurred <b>")
    page.keyboard.press("Enter")
    expect(page.locator(".tags .chip")).to_have_text("blurred <b>✕")
    page.get_by_label("Tag", exact=True).select_option("blurred <b>")
    expect(page.locator(".total")).to_have_text("2 samples")
    assert decided.state.keeping.load("tags") is not None
    page.locator(".vg-tile[data-at='0']").click()
    page.get_by_role("button", name="Take the tag blurred <b> away").click()
    expect(page.locator("#toast")).to_contain_text("taken away")
    assert decided.get("/tags").json()["items"] == [{"tag": "blurred <b>", "samples": 1}]


def test_a_picture_is_enlarged_and_leads_to_those_most_alike(page: Page, live: Live) -> None:
    items(page, live, "?sort=index&at=4")
    page.locator(".panel .zoomable").first.click()
    window = page.get_by_role("dialog", name="The picture")
    window.get_by_role("button", name="What the network sees").click()
    expect(window.locator("img")).to_have_attribute("src", re.compile("view=network"))
    window.get_by_role("button", name="Find similar").click()
    expect(page.get_by_role("button", name="Most alike first: take this filter away")).to_be_visible()
    own = live.get("/samples", params={"limit": 5}).json()["items"][4]["sha256"]
    expect(page.locator(".vg-tile[data-at='0'] .vg-picture")).to_have_attribute("data-hash", own[:8])


def test_issues_by_class_lead_to_their_samples(page: Page, live: Live) -> None:
    items(page, live)
    page.locator(".issues summary").click()
    link = page.locator(".issues a[aria-label*='duplicates']").first
    n = re.findall(r": (\d+) duplicates", link.get_attribute("aria-label") or "")[0]
    link.click()
    expect(page.locator(".total")).to_have_text(f"{n} sample{'' if n == '1' else 's'}")
