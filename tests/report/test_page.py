"""The explanation page: escaped, self-contained, and saying the right thing about each input."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet.report
from provnet.report.page import explanation_html
from provnet.report.records import ExplanationCard, visible
from tests.cases import cases
from tests.report.cards import HOSTILE, card, exemplar, hostile_card, picture
from tests.report.reading import assert_self_contained


@cases("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_text(text):
    page = assert_self_contained(explanation_html([hostile_card(text)], title=text, subtitle=text))
    harmless = assert_self_contained(explanation_html([hostile_card("x")], title="x", subtitle="x"))
    # only the halves of a long name (span) and the place of the subtitle (p) depend on the text
    tags, expected = ([tag for tag, _ in found.elements if tag not in ("span", "p")] for found in (page, harmless))
    assert tags == expected or text == ""
    assert " ".join(visible(text).split()) in page.words
    assert all(a["title"] == visible(text) for a in page.all("div", "label"))


def test_page_has_no_control_character():
    source = explanation_html([hostile_card(text) for text in HOSTILE], title="all")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)


def test_policy_forbids_scripts_and_loading():
    source = explanation_html([card()], title="t")
    policy = assert_self_contained(source).all("meta")[2]["content"]
    assert "default-src 'none'" in policy
    assert "script" not in policy


def test_weight_bars_are_proportional():
    page = assert_self_contained(explanation_html([card()], title="t"))
    widths = [float(a["style"].removeprefix("width:").removesuffix("%")) for a in page.all("i")]
    assert widths == [87.5, 50.0, 25.0, 12.5, 6.25, 3.12]  # confidence first


def test_pictures_round_trip_and_keep_their_pixels():
    shown = [picture(1), picture(2, (5, 9, 3)), picture(3, (4, 4, 1))]
    cards = [ExplanationCard(pixels, "a", "7", 0.5, True) for pixels in shown]
    sources = [a["src"] for a in assert_self_contained(explanation_html(cards, title="t")).all("img")]
    for pixels, source in zip(shown, sources, strict=True):
        with Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))) as image:
            assert np.array_equal(np.asarray(image), np.squeeze(pixels))


def test_small_pictures_stay_crisp_and_large_ones_are_scaled_down():
    cards = [ExplanationCard(picture(0, shape), "a", "7", 0.5, True) for shape in ((28, 28), (400, 1440, 3))]
    small, large = assert_self_contained(explanation_html(cards, title="t")).all("img")
    assert small["class"] == "px"
    assert "class" not in large
    with Image.open(io.BytesIO(base64.b64decode(large["src"].split(",")[1]))) as image:
        assert image.size == (720, 200)


def test_every_picture_has_words():
    page = assert_self_contained(explanation_html([card()], title="t"))
    alts = [a["alt"] for a in page.all("img")]
    assert alts[0] == "Input test/00001"
    assert alts[1:] == [f"Training sample train/{n:05d}, labelled 7" for n in range(5)]


def test_missing_picture_becomes_an_id_card():
    item = exemplar(3, picture=None, note="changed since training")
    shown = replace(card(), query=None, exemplars=(item,))
    page = assert_self_contained(explanation_html([shown], title="t"))
    assert page.all("img") == []
    assert len(page.all("div", "none")) == 2
    for words in ("changed since training", "input not shown", item.sha256[:12]):
        assert words in page.words
    assert page.all("div", "hash")[0]["title"] == f"SHA-256 {item.sha256}"


def test_unsupported_answer_says_so_and_is_grey():
    page = assert_self_contained(explanation_html([card(supported=False)], title="t"))
    assert "No supporting training sample" in page.words
    assert "nearest, but not evidence" in page.words
    assert "Supported;" not in page.words
    assert len(page.all("article", "unsupported")) == 1


def test_supported_answer_makes_no_excuse():
    page = assert_self_contained(explanation_html([card()], title="t"))
    assert "Supported; recognised by these training samples" in page.words
    assert "No supporting" not in page.words
    assert page.all("article", "unsupported") == []


@pytest.mark.parametrize("supported", [True, False])
def test_what_the_exemplars_carry_together_is_said(supported):
    page = assert_self_contained(explanation_html([card(supported=supported)], title="t"))
    assert "Together these carry 96.9 %, all other samples 3.1 %." in page.words
    assert "carr" not in assert_self_contained(explanation_html([card(k=0)], title="t")).words
    one = assert_self_contained(explanation_html([card(k=1)], title="t"))
    assert "This one carries 50.0 %, all other samples together 50.0 %." in one.words


@pytest.mark.parametrize(("truth", "chips"), [("7", ["chip good"]), ("9", ["chip bad"]), (None, [])])
def test_right_and_wrong_are_marked(truth, chips):
    page = assert_self_contained(explanation_html([card(truth=truth)], title="t"))
    assert [a["class"] for a in page.all("div", "chip")] == chips


def test_long_ids_are_whole_in_title_and_text():
    name = "train/n02099601/n02099601_000123456789.jpg"
    shown = replace(card(k=0), name=name)
    source = explanation_html([shown], title="t")
    assert assert_self_contained(source).all("div", "id")[0]["title"] == name
    assert f">{name}</div>" in re.sub(r"</?span[^>]*>", "", source)  # selecting it copies all of it


@cases(
    ("name", "parts"),
    [
        (
            "train/Donaudampfschifffahrtselektrizitäten/00001.png",
            ["train/Donaudampfschifffahrtselektrizitäten/", "00001.png"],
        ),
        ("train/犬犬犬犬犬犬犬犬犬犬/00001.png", ["train/犬犬犬犬犬犬犬犬犬犬/", "00001.png"]),
        ("train/שלום עולם שלום עולם/1", None),  # cut in the middle, its halves would change places
        ("train/" + "e\u0301" * 20, None),  # an accent would lose its letter
        ("train/aaaaaaaaaaaaaaa٣٤", None),
    ],
)
def test_long_ids_can_be_cut_in_the_middle_where_letters_stand_alone_and_run_to_the_right(name, parts):
    source = explanation_html([replace(card(k=0), name=name)], title="t")
    (shown,) = re.findall(r'<div class="id"[^>]*>(.*?)</div>', source, re.DOTALL)
    assert re.findall(r"<span[^>]*>(.*?)</span>", shown) == (parts or [name])


def test_counts_at_the_head():
    cards = [card(), card(truth="1"), card(supported=False, truth=None)]
    words = assert_self_contained(explanation_html(cards, title="t")).words
    assert "3 inputs 2 supported 1 without support 1 right 1 wrong" in words


def test_no_cards_and_no_exemplars():
    assert "Nothing was explained" in assert_self_contained(explanation_html([], title="t")).words
    assert "no exemplars were asked for" in assert_self_contained(explanation_html([card(k=0)], title="t")).words


def test_not_a_number_breaks_nothing():
    shown = replace(card(), confidence=float("nan"), exemplars=(exemplar(1, float("inf")),))
    page = assert_self_contained(explanation_html([shown], title="t"))
    assert [a["style"] for a in page.all("i")] == ["width:0.00%", "width:0.00%"]
    assert "n/a" in page.words


def test_same_cards_same_page():
    assert explanation_html([card()], title="t") == explanation_html([card()], title="t")


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@cases("theme", [0, 1], ids=["light", "dark"])
@cases(
    ("ink", "ground"),
    [
        *[(ink, ground) for ink in ("ink", "soft", "accent") for ground in ("page", "card")],
        *[("soft", "sunk"), ("good", "good-soft"), ("bad", "bad-soft"), ("warn", "warn-soft"), ("ink", "warn-soft")],
        *[("warn", "card"), ("on-accent", "accent")],
    ],
)
def test_contrast_is_at_least_aa(theme, ink, ground):
    style = (Path(provnet.report.__file__).parent / "templates" / "style.css").read_text()
    blocks = style.split("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[theme].split("*, *::before")[0]))
    light, dark = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5
