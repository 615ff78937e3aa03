"""Names made visible, shares written without rounding to all or none."""

from __future__ import annotations

import sys

import pytest

from provnet.report.records import percent, visible, width
from tests.cases import cases


def test_visible_leaves_no_character_that_a_page_or_terminal_obeys():
    everything = "".join(map(chr, range(0x300))) + "\u202e\u2066\u2028\u2029\ud800\udcff\ufffe\U0010ffff"
    shown = visible(everything)
    shown.encode("utf-8")  # lone surrogates are gone
    assert not set(shown) & {chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
    assert not set(shown) & set("\u202e\u2066\u2028\u2029\ufffe")


@cases("name", ["Schäferhund", "🐶👩‍👩‍👧", "כלב", "犬", "e\u0301", "<script>", "a\xa0b", "=cmd|' /C calc'!A0"])
def test_visible_keeps_printable_names(name):
    assert visible(name) == name


@cases("share", [1e-9, 0.0004, 0.0005, 0.5, 0.9994, 0.9995, 0.99999, 1 - 1e-7])
def test_percent_never_claims_all_or_none(share):
    written = percent(share)
    if 5e-9 < share < 1 - 5e-9:
        assert written not in ("0 %", "100 %", "0.0 %", "100.0 %")
    assert float(written.removesuffix(" %").lstrip("<> ")) / 100 == pytest.approx(share, abs=5e-4)
    assert len(written) <= len("> 99.999 %")  # columns stay narrow


def test_percent_takes_float_error_for_all():
    assert percent(1 - sys.float_info.epsilon) == "100 %"


@pytest.mark.parametrize(
    ("share", "length"), [(-1.0, "0.00%"), (0.333, "33.30%"), (9.0, "100.00%"), (float("inf"), "0.00%")]
)
def test_width_stays_within_its_track(share, length):
    assert width(share) == length
