"""The view Explain in a real browser: pictures given in every way, answers that follow sliders, samples left out."""

from __future__ import annotations

import base64
import re
from contextlib import ExitStack
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from provnet_app.served import Served

from .browser import no_sideways, open_view
from .made import NAMES, Live, digit, digits, png, serving

CARD = ".exemplars .exemplar"


def weights(page: Page) -> list[tuple[str, str]]:
    """Hash and weight of every card, once all are there."""
    expect(page.locator(CARD)).to_have_count(5)
    return page.eval_on_selector_all(
        CARD, "cards => cards.map(one => [one.dataset.hash, one.querySelector('.weight .num').textContent])"
    )


def moved(page: Page, name: str, value: float) -> None:
    """Move a slider as a person does: the value changes, then the browser says so."""
    page.locator(f"input[name={name}]").fill(str(value))


def test_upload_shows_exemplars_in_the_order_of_the_server(page: Page, live: Live) -> None:
    open_view(page, live)
    page.set_input_files(".dropzone input", {"name": "seven.png", "mimeType": "image/png", "buffer": digit(7)})
    expect(page.locator(".query h2")).to_have_text("Your picture")
    expect(page.locator(CARD)).to_have_count(5)
    found = live.send("/explain", digit(7)).json()
    assert [one[0] for one in weights(page)] == [one["sha256"] for one in found["exemplars"]]
    expect(page.locator(".predicted")).to_have_text(found["predicted"]["label"])
    confidence = page.locator(".answer [aria-label=Confidence]")
    expect(confidence).to_have_attribute("aria-valuenow", f"{found['confidence']:.4f}")
    loaded = "all => [...document.querySelectorAll(all)].every(one => one.complete && one.naturalWidth > 0)"
    page.wait_for_function(loaded, arg=f"{CARD} img")
    assert "hash=" in page.url  # the address leads to the same picture again
    page.reload()
    expect(page.locator(".query h2")).to_have_text("Your picture")


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_picture_dropped_or_pasted(page: Page, live: Live, how: str) -> None:
    open_view(page, live)
    expect(page.locator(".query h2")).to_have_text("Test sample")
    page.evaluate(
        """([text, how]) => {
          const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], "given.png", {type: "image/png"}));
          const event = how === "drop" ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
            : new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
          document.body.dispatchEvent(event);
        }""",
        [base64.b64encode(digit(5)).decode(), how],
    )
    expect(page.locator(".query h2")).to_have_text("Your picture")


def test_what_is_no_picture_is_refused_in_words(page: Page, live: Live, allowed: list[str]) -> None:
    open_view(page, live)
    page.set_input_files(".dropzone input", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"})
    expect(page.locator("#toast")).to_contain_text("a.txt is no picture")
    allowed.append("status of 415")
    page.set_input_files(".dropzone input", {"name": "b.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.locator("#toast")).to_contain_text("b.png:")
    expect(page.locator(CARD)).to_have_count(5)  # what was there stays


def test_draw_a_digit(page: Page, live: Live) -> None:
    open_view(page, live)
    page.get_by_role("button", name="Draw one").click()
    box = page.locator("canvas.board").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 140, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 140, box["y"] + 220, steps=5)
    page.mouse.up()
    expect(page.locator(".query h2")).to_have_text("Your picture")
    sent = page.url.partition("hash=")[2][:64]
    drawn = live.get(f"/pictures/{sent}").content
    assert drawn[1:4] == b"PNG" and live.get("/samples/" + sent).status_code == 404


def test_a_test_sample_is_picked_with_the_keyboard(page: Page, live: Live) -> None:
    open_view(page, live)
    page.locator(".strip button").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".strip button[aria-pressed=true]")).to_have_attribute("data-position", "2")
    expect(page.locator(".query .mono")).to_have_text("test/002")
    assert page.url.endswith("#/explain?test=2")
    page.locator(".strip-box select").select_option("3")
    expect(page.locator(".strip button[data-position]")).to_have_count(6)


def test_sliders_move_prediction_and_exemplars_and_no_stale_answer_stays(page: Page, live: Live) -> None:
    open_view(page, live, "#/explain?test=12")
    before = weights(page)
    for value in (0.1, 0.2, 0.3, 0.4):
        moved(page, "noise", value)
    moved(page, "rotation", 90)
    expect(page.locator(".query .chip")).to_have_text("distorted")
    expect(page).to_have_url(re.compile("test=12&noise=0.4&rotation=90$"))
    asked = {"test": 12, "distort": {"noise": 0.4, "rotation": 90}}
    found = live.post("/explain/known", json=asked).json()
    assert [one[0] for one in weights(page)] == [one["sha256"] for one in found["exemplars"]]
    assert weights(page) != before
    expect(page.locator(".query img")).to_have_attribute("src", found["picture"])
    page.get_by_role("button", name="Reset").click()
    expect(page).to_have_url(re.compile("test=12$"))
    assert weights(page) == before


def test_old_answers_that_come_late_are_dropped(page: Page, live: Live) -> None:
    open_view(page, live, "#/explain?test=3")
    page.evaluate("""() => {
      const whole = window.fetch;
      let first = true;
      window.fetch = async (...given) => {
        const slow = first && String(given[0]).includes("explain/known");
        if (slow) first = false;
        const reply = await whole(given[0], slow ? {...given[1], signal: undefined} : given[1]);
        if (slow) await new Promise((done) => setTimeout(done, 600));
        return reply;
      };
    }""")
    page.locator(".strip button[data-position='20']").click()
    page.locator(".strip button[data-position='21']").click()
    expect(page.locator(".query .mono")).to_have_text("test/021")
    page.wait_for_timeout(800)
    expect(page.locator(".query .mono")).to_have_text("test/021")


def test_a_sample_left_out_and_taken_back(page: Page, live: Live) -> None:
    open_view(page, live, "#/explain?test=4")
    before = weights(page)
    page.locator(f"{CARD} .face").first.click()
    expect(page.locator(".changes h2")).to_have_text("Without these samples")
    now = weights(page)
    assert before[0][0] not in [one[0] for one in now] and now[0][0] == before[1][0]
    expect(page.locator(f"{CARD} .moved.new")).to_have_count(1)
    expect(page.locator(f"{CARD} .moved").first).to_contain_text(f"was {before[1][1]}, place 2")
    found = live.post("/explain/known", json={"test": 4, "without": [before[0][0]]}).json()
    expect(page.locator(".changes")).to_contain_text(f"They had {found['without']['weight'] * 100:.1f} %")
    page.reload()  # what was left out is part of the address
    expect(page.locator(".left-out li")).to_have_count(1)
    expect(page.locator(CARD)).to_have_count(5)
    page.locator(".left-out button").click()
    expect(page.locator(".changes")).to_have_count(0)
    assert weights(page) == before


def test_beside_and_difference(page: Page, live: Live) -> None:
    open_view(page, live, "#/explain?test=4")
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator(f"{CARD} .pair img")).to_have_count(10)
    page.get_by_role("button", name="Difference").click()
    expect(page.locator(f"{CARD} canvas[data-mean]")).to_have_count(5)
    training, test = digits("train", 80), digits("test", 60).images[4, 0].numpy().astype(float)
    for hash_, mean in page.eval_on_selector_all(
        CARD, "all => all.map(one => [one.dataset.hash, Number(one.querySelector('canvas').dataset.mean)])"
    ):
        row = next(i for i in range(len(training)) if training.samples.hex(i) == hash_)
        assert mean == pytest.approx(abs(test - training.images[row, 0].numpy()).mean() / 255, abs=2e-3)


def test_no_supporting_sample_is_said_clearly(page: Page, live: Live) -> None:
    import numpy as np

    noise = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8)
    assert live.send("/explain", png(noise)).json()["supported"] is False
    open_view(page, live)
    page.set_input_files(".dropzone input", {"name": "noise.png", "mimeType": "image/png", "buffer": png(noise)})
    expect(page.locator(".answer .note strong")).to_have_text("No supporting sample")
    expect(page.locator(".exemplars.unsupported")).to_have_count(1)


def test_training_sample_by_hash_and_the_back_button(page: Page, live: Live) -> None:
    open_view(page, live)
    hash_ = digits("train", 80).samples.hex(5)
    page.get_by_text("By SHA-256").click()
    page.get_by_label("SHA-256 of a training sample").fill("zz")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#toast")).to_contain_text("64 characters")
    page.get_by_label("SHA-256 of a training sample").fill(hash_)
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".query h2")).to_have_text("Training sample")
    page.locator("#nav a[data-view=run]").click()
    expect(page.locator(".view-run h1")).to_be_visible()
    page.go_back()
    expect(page.locator(".query h2")).to_have_text("Training sample")
    assert hash_ in page.url


def test_names_are_shown_as_text_and_keep_the_layout(page: Page, live: Live) -> None:
    seen = set()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for position in range(0, 60, 6):
            open_view(page, live, f"#/explain?test={position}")
            expect(page.locator(".query .label-line bdi")).to_have_text(NAMES[position // 6])
            seen.add(page.locator(".predicted").text_content())
            assert no_sideways(page), f"{NAMES[position // 6][:20]} at {width} px"
    assert seen <= set(NAMES)
    assert page.locator("main script, main img[src=x], header b").count() == 0
    assert page.locator("#run-name").text_content() == "a <b>run</b>"
    page.set_viewport_size({"width": 1280, "height": 844})
    assert page.locator(".classes .name").first.evaluate("node => node.title === node.textContent")


def test_a_run_that_shows_no_pictures_is_asked_for_none(page: Page, served: Served, servers: ExitStack) -> None:
    hidden = servers.enter_context(serving(replace(served, exposure="ids")))
    open_view(page, hidden, "#/explain?test=4")
    expect(page.locator(f"{CARD} .picture.none")).to_have_count(5)
    expect(page.locator(".query .picture.none")).to_have_text("picture not shown")
    assert page.locator("main img").count() == 0  # one that is refused would be a console error too
    page.set_input_files(".dropzone input", {"name": "own.png", "mimeType": "image/png", "buffer": digit(5)})
    expect(page.locator(".query img")).to_have_count(1)  # what a person gives is shown to them


def test_a_picture_that_is_gone_is_said(page: Page, live: Live, allowed: list[str]) -> None:
    allowed.append("status of 404")
    open_view(page, live, f"#/explain?hash={'0' * 64}")
    expect(page.get_by_role("alert")).to_contain_text("give it again")
    page.locator(".strip button").first.click()
    expect(page.locator(CARD)).to_have_count(5)


def test_dark_by_button_is_kept(page: Page, live: Live) -> None:
    open_view(page, live)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.emulate_media(color_scheme="dark")
    page.evaluate("localStorage.clear()")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme ?? ''") == ""
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_without_the_token_the_page_asks_for_it(page: Page, live: Live, allowed: list[str]) -> None:
    allowed.append("status of 401")
    page.goto(live.base)
    expect(page.locator("h1")).to_have_text("Open the link that provnet app printed")
    page.get_by_label("Link or token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.locator("form .error")).to_be_visible()
    page.get_by_label("Link or token").fill(f"{live.base}/#t={live.token}")
    page.get_by_role("button", name="Open").click()
    expect(page.locator(CARD)).to_have_count(5)
    assert live.token not in page.url
    assert re.search(r"HttpOnly|httpOnly", str(page.context.cookies())) is not None
