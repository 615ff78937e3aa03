"""The contact sheet: size, pixels, bars, and text that no font can draw."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageColor, ImageFont

from provnet.base.errors import UsageError
from provnet.report import sheet
from provnet.report import sheet as fonts
from provnet.report.records import ExplanationCard
from provnet.report.sheet import count_undrawable, explanation_png
from provnet.tools.generate.page import sheet_png
from tests.cases import cases
from tests.report.cards import HOSTILE, card, exemplar, hostile_card, picture


def _pixels(cards) -> np.ndarray:
    return np.asarray(explanation_png(cards))


def _runs(image: np.ndarray, colour: str, thickness: int) -> list[int]:
    """Lengths of the filled bars of a colour: horizontal runs that are `thickness` rows tall."""
    same = (image == ImageColor.getrgb(colour)).all(axis=2)
    lengths = []
    for y in range(1, len(same) - thickness):
        row = same[y] & ~same[y - 1]
        starts = np.flatnonzero(row & ~np.roll(row, 1))
        for start in starts:
            length = int(np.argmin(np.append(same[y, start:], False)))
            if same[y : y + thickness, start : start + length].all():
                lengths.append(length)
    return lengths


def test_one_row_an_input():
    one, three = explanation_png([card()]), explanation_png([card()] * 3)
    assert one.mode == "RGB"
    assert one.width == three.width
    height = one.height - 2 * sheet.MARGIN
    assert three.height == 3 * height + 2 * sheet.GAP + 2 * sheet.MARGIN


def test_many_generated_pictures_stand_in_two_columns():
    def size(count: int) -> tuple[int, int]:
        return Image.open(io.BytesIO(sheet_png([card()] * count))).size

    width, _ = size(6)
    assert size(7) == (2 * width, explanation_png([card()] * 4).height)
    numbered = [card(name=f"generated-{number}") for number in range(8)]
    drawn = np.asarray(Image.open(io.BytesIO(sheet_png(numbered))))
    assert (drawn[:, width:] == np.asarray(explanation_png(numbered[4:]))).all()


def test_query_pixels_are_enlarged_to_whole_squares():
    query = picture(7)
    image = _pixels([ExplanationCard(query, "a", "7", 0.5, True)])
    scale = sheet.QUERY // 28
    top, left = sheet.MARGIN + sheet.GAP // 4, sheet.MARGIN
    drawn = image[top : top + sheet.QUERY, left : left + sheet.QUERY, 0]
    assert np.array_equal(drawn, np.kron(query, np.ones((scale, scale), np.uint8)))


def test_bars_are_proportional():
    weights = [0.5, 0.25, 0.125, 0.0625]
    shown = replace(card(truth=None), exemplars=tuple(exemplar(n, w, picture=None) for n, w in enumerate(weights)))
    found = _runs(_pixels([shown]), sheet.ACCENT, 12)
    assert found == [round(0.875 * sheet.CONFIDENCE), *[round(w * sheet.BAR) for w in weights]]


def test_a_line_below_the_exemplars_says_what_they_carry_together():
    last = replace(card(), exemplars=(*card().exemplars[:4], replace(card().exemplars[4], weight=0.05)))
    one, other = _pixels([card()]), _pixels([last])  # 3.1 % and 5.0 %: the bar of the last, and the line
    differ = np.flatnonzero((one != other).any(axis=(1, 2)))
    hashes = sheet.MARGIN + sheet.GAP // 4 + sheet.ANSWER + sheet.HEADING + sheet.EXEMPLAR + 104
    assert (differ > hashes + 24).any()
    assert (differ < hashes).any()
    ends = np.flatnonzero((one != 255).any(axis=(1, 2))).max()
    assert ends < len(one) - sheet.MARGIN // 2


def test_unsupported_is_drawn_without_accent_but_for_confidence():
    shown = replace(card(supported=False), query=None, confidence=0.0)
    assert _runs(_pixels([shown]), sheet.ACCENT, 12) == []
    assert (_pixels([shown]) == ImageColor.getrgb(sheet.WARN)).all(axis=2).any()


@pytest.mark.parametrize("default_font", [False, True])
def test_no_text_crashes_any_font(default_font, monkeypatch):
    if default_font:
        monkeypatch.setattr(sheet, "face", lambda size, style="regular": fonts.Face(ImageFont.load_default(size)))
    assert explanation_png([hostile_card(text) for text in HOSTILE]).height > 1000


def test_unknown_letters_lose_their_accents_unknown_signs_become_question_marks():
    plain = fonts.Face(ImageFont.load_default(20))  # Pillow's own font has no umlauts
    assert plain.clean("Größe, Łódź") == "Grosse, Lodz"
    assert plain.clean("犬 dog 🐶") == "? dog ?"
    assert plain.clean("e\u0301\u200d") == "e"


def test_text_is_cut_to_its_width():
    face = fonts.face(20)
    for text in HOSTILE:
        for middle in (False, True):
            assert face.width(face.shorten(text, 150, middle=middle)) <= 150
        lines = face.lines(text, 150, 3)
        assert len(lines) <= 3
        assert all(face.width(line) <= 150 for line in lines)
    assert face.shorten("train/aaaaaaaaaaaaaaaaaaaaaaaaaaaa/00001.png", 150, middle=True).endswith("1.png")


def test_more_exemplars_than_a_line_holds_wrap():
    five, six = explanation_png([card(k=5)]), explanation_png([card(k=6)])
    assert six.width == five.width
    assert six.height == five.height + sheet.LINE_HEIGHT


@pytest.mark.parametrize("count", [0, sheet.MOST_CARDS + 1])
def test_too_few_or_too_many_are_refused(count):
    with pytest.raises(UsageError, match=rf"^{count} inputs.*--html"):
        explanation_png([card(k=0)] * count)


@cases("shape", [(1, 1), (1, 500), (500, 1), (32, 32, 3), (28, 28, 1), (250, 100, 3)])
def test_any_shape_fits_its_box(shape):
    explanation_png(
        [ExplanationCard(picture(1, shape), "a", "7", 0.5, True, (exemplar(1, picture=picture(2, shape)),))]
    )


@pytest.mark.parametrize(
    "bad", [np.zeros((0, 4), np.uint8), np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8), np.zeros(4, np.uint8)]
)
def test_what_is_no_picture_is_refused(bad):
    with pytest.raises(UsageError, match=r"a picture of shape .* allowed: uint8"):
        explanation_png([ExplanationCard(bad, "a", "7", 0.5, True)])


def test_png_round_trip(tmp_path):
    image = explanation_png([card()])
    image.save(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as read:
        assert read.size == image.size


def test_names_that_no_font_can_draw_are_counted() -> None:
    assert count_undrawable(["plain", "Größe", "what?"]) == 0
    assert count_undrawable(["\U0010fffd", "ok", "\U0010fffd\U0010fffd"]) == 2
