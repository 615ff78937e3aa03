"""The page of `provnet attribute`: differences that can be seen, sources that are first of nothing."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from provnet.report.records import Picture
from provnet.tools.copies.page import AttributionReport, CopyCard, SourceCard, attribution_html, difference

from .cards import exemplar, picture
from .reading import Page

RATE = {"value": 0.5, "low": 0.1, "high": 0.9, "n": 2}
VALUES = {
    **dict.fromkeys(("supported", "abstained", "near_copies"), RATE),
    "images": 2,
    "compared": 9,
    "copied_samples": 1,
    "withheld": 0,
    "control": {},
    "calibration": {"threshold": 0.2, "false_alarms": 0.01, "about": "held-out pictures"},
}


def page_of(copy: Picture, sample: Picture, first: int = 1) -> str:
    """A page with one near-copy and one source."""
    item = exemplar(1, picture=sample)
    card = CopyCard(copy, difference(copy, sample), "a.png", item, 0.1, 0.01, bool((copy == sample).all()))
    sources = (SourceCard(item, first, 1),)
    return attribution_html(
        AttributionReport("run", "net", "folder", VALUES, [0.1], [0.8], copies=(card,), sources=sources)
    )


@pytest.mark.parametrize(("apart", "words"), [(0, "no difference"), (3, "× 85"), (4, "× 63"), (200, "")])
def test_a_difference_is_as_bright_as_it_can_be_and_says_by_how_much(apart: int, words: str) -> None:
    sample = picture(1, (8, 8)) // 8
    copy = sample.copy()
    copy[2, 3] += apart
    page = Page(page_of(copy, sample))
    (shown,) = [a["src"] for a in page.all("img") if a["alt"] == "Difference of the two"]
    with Image.open(io.BytesIO(base64.b64decode(shown.split(",")[1]))) as image:
        pixels = np.asarray(image)
    assert (pixels > 0).sum() == (1 if apart else 0)
    assert apart == 0 or pixels.max() >= min(apart * 63, 200)
    assert words in page.words
    assert bool(words) == ("× " in page.words or "no difference" in page.words)


def test_a_source_that_comes_first_nowhere_does_not_say_so() -> None:
    sample = picture(1, (8, 8))
    assert "first of 2 images" in Page(page_of(sample, sample, 2)).words
    words = Page(page_of(sample, sample, 0)).words
    assert "first of" not in words
    assert "1 near-copy" in words
