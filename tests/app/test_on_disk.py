"""A run that changes in its folder while the app is open: it is said, and no other run is taken for it."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from provnet.runs.run import read_run, write_run
from provnet.training.config import train_config
from provnet_app.served import Served
from tests.fitting import fit

from .browser import open_view
from .made import Live, digits, serving

FILES = "section[aria-label=Files] .chip"


@pytest.fixture
def own(served: Served, tmp_path: Path, servers: ExitStack) -> Live:
    """A server of a folder of its own."""
    assert served.folder is not None
    folder = shutil.copytree(served.folder, tmp_path / "run")
    return servers.enter_context(serving(replace(served, folder=folder, keep=folder / "app")))


def folder_of(live: Live) -> Path:
    assert live.state.served.folder is not None
    return live.state.served.folder


def changed(live: Live) -> str:
    return str(live.get("/run/state").json()["changed"])


def test_what_was_measured_since_is_shown(own: Live) -> None:
    assert live_measures(own) == []
    run = read_run(folder_of(own))
    figure = {"value": 0.9, "low": 0.8, "high": 0.95, "n": 60}
    config = replace(run.config, evaluation={"class_accuracy": figure})
    write_run(replace(run, config=config), folder_of(own))
    assert changed(own) == "" and own.get("/run/files").json()["verified"]
    assert live_measures(own) == ["class_accuracy"]


def live_measures(live: Live) -> list[str]:
    return [one["name"] for one in live.get("/run/evaluation").json()["measures"]]


def test_another_run_in_the_folder_is_not_taken_for_the_one_that_answers(own: Live) -> None:
    before = own.get("/run/files").json()
    assert before["verified"] and before["model_sha256"]
    other = fit(digits("train", 80), config=train_config("fast", epochs=1, batch_size=32, seed=7))
    figure = {"value": 0.1, "low": 0.0, "high": 0.2, "n": 60}
    write_run(replace(other, config=replace(other.config, evaluation={"class_accuracy": figure})), folder_of(own))
    assert "another one" in changed(own)
    found = own.get("/run/files").json()
    assert not found["verified"] and found["model_sha256"] == before["model_sha256"]
    assert "model.safetensors" in {one["name"] for one in found["files"] if not one["ok"]}
    assert live_measures(own) == [] and own.get("/run/curves").json()["epochs"] == []
    assert "not in its folder" in own.get("/run/card").json()["markdown"]


def test_samples_that_were_withheld_since_are_told(own: Live) -> None:
    run = read_run(folder_of(own))
    samples = replace(run.samples, withheld=np.arange(len(run.samples)) == 3)
    write_run(replace(run, samples=samples), folder_of(own))
    assert "withheld" in changed(own) and str(folder_of(own)) not in changed(own)
    assert own.get("/run/card").json()["markdown"].startswith("---")


def test_a_run_that_is_gone_is_told(own: Live) -> None:
    shutil.rmtree(folder_of(own))
    assert "not in its folder any more" in changed(own)
    found = own.get("/run/files")
    assert found.status_code == 200 and not found.json()["verified"] and str(folder_of(own)) not in found.text
    assert own.post("/explain/known", json={"test": 0}).status_code == 200
    one = own.get("/samples?limit=1").json()["items"][0]
    item = {"sample_id": one["sample_id"], "sha256": one["sha256"]}
    assert own.post("/decisions", json={"items": [item], "decision": "drop"}).json()["saved"] is False
    assert not folder_of(own).exists()


def test_the_page_says_it_in_every_view_and_when_one_comes_back_to_it(own: Live, page: Page) -> None:
    open_view(page, own, "#/run")
    expect(page.locator(FILES)).to_have_text("All files are unchanged")
    expect(page.locator("#changed")).to_be_empty()
    shutil.rmtree(folder_of(own))
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator("#changed")).to_contain_text("not in its folder any more")
    page.get_by_role("link", name="Data").click()
    page.wait_for_selector(".view-data")
    expect(page.locator("#changed")).to_be_visible()


def test_a_tab_of_a_server_that_was_started_again_asks_for_the_new_link(
    live: Live, page: Page, allowed: list[str]
) -> None:
    allowed.append("401")
    open_view(page, live, "#/explain")
    page.wait_for_selector(".exemplar")
    page.context.clear_cookies()  # as a new server does not know the old cookie
    page.locator(".strip button").nth(4).click()
    expect(page.get_by_role("alert")).to_contain_text("started again")
    page.get_by_label("Link or token").fill("ключ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the token is wrong")
    page.get_by_label("Link or token").fill(f"{live.base}/#t={live.token}")
    page.keyboard.press("Enter")
    expect(page.locator(".exemplars .exemplar")).to_have_count(5)
