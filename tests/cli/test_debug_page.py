"""The figures of `provnet debug` are the same on the terminal, on the page and in the files, and read well."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from provnet.report.records import percent
from provnet.tools.debug.files import samples_csv
from provnet.tools.debug.page import Contribution, SignalRow, Suspect, debug_html, probability, with_sign
from provnet.tools.debug.signals import Mislabels, mislabels
from tests.report.test_debugging import report, tile

from .conftest import CLASSES, PER_CLASS, Call


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", page).split())


@pytest.mark.usefixtures("telling")
def test_one_percentage_everywhere(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d", "--review", "--threshold", "0.000001")
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    cards = dict(
        re.findall(r'<article class="suspect"[^>]*? data-id="([^"]+)".*?<div class="num">([^<]+?) <span>', page, re.S)
    )
    with (tmp_path / "d" / "samples.csv").open(encoding="utf-8", newline="") as file:
        scores = {row["sample_id"]: row["mislabel"] for row in csv.DictReader(file)}
    with (tmp_path / "d" / "decisions.csv").open(encoding="utf-8", newline="") as file:
        decided = {row["sample_id"]: row["mislabel"] for row in csv.DictReader(file)}
    lines = re.findall(r"^ *(\S.* %)  (\S+)  digit-\d, probably digit-\d$", found.out, re.MULTILINE)
    assert len(lines) == 5
    for shown, name in lines:
        assert cards[name].replace("&lt;", "<") == shown
        assert decided[name] == scores[name]
        assert abs(float(shown.strip("<> %")) / 100 - float(scores[name])) <= 0.0005 + 1e-6


def test_where_nothing_is_flagged_the_most_suspicious_are_shown_in_their_order(
    call: Call, run: Path, tmp_path: Path
) -> None:
    found = call("debug", run, "--out", tmp_path / "d", "--threshold", "0.999")
    with (tmp_path / "d" / "samples.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: -float(row["mislabel"]))
    assert float(rows[0]["mislabel"]) < 0.999
    assert "no label reaches 99.9 %; these come nearest to it" in found.out
    named = re.findall(r"%  (\S+)  (digit-\d), or else digit-\d$", found.out, re.MULTILINE)
    assert named == [(row["sample_id"], row["label"]) for row in rows[:5]]
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    section = page[page.index('<section id="suspects">') : page.index('<section id="duplicates">')]
    shown = re.findall(r'alt="Training sample (\S+), labelled (digit-\d)"', section)
    assert shown == [(row["sample_id"], row["label"]) for row in rows[:20]]
    call("debug", run, "--out", tmp_path / "e", "--threshold", "0.000001")
    assert "come nearest to" not in (tmp_path / "e" / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("telling")
def test_nearly_certain_is_as_near_on_terminal_and_page(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sure(*given: Any, **options: Any) -> Mislabels:
        found = mislabels(*given, **options)
        return replace(found, score=np.full_like(found.score, 0.99996))

    monkeypatch.setattr("provnet.tools.debug.compute.mislabels", sure)
    found = call("debug", run, "--out", tmp_path / "d")
    assert len(re.findall("^99.996 %  ", found.out, re.MULTILINE)) == 5
    page = text_of((tmp_path / "d" / "report.html").read_text("utf-8"))
    assert page.count("99.996 % probably wrong") == PER_CLASS * CLASSES
    assert ",0.999960," in (tmp_path / "d" / "samples.csv").read_text("utf-8")


@pytest.mark.parametrize("share", [0.547815, 0.940856, 0.5, 0.99996])
def test_a_probability_is_rounded_like_any_share(share: float) -> None:
    assert probability(share) == percent(share)
    one = Suspect(tile(score=share), "dog", 0.8, (Contribution("course", 2.0),))
    assert f"{percent(share)} probably wrong" in text_of(debug_html(report(suspects=(one,))))


def test_no_probability_is_certain() -> None:
    one = Suspect(tile(score=1.0), "dog", 0.8, (Contribution("course", 2.0),))
    assert "&gt; 99.999 % probably wrong" in text_of(debug_html(report(suspects=(one,))))


def test_one_sample_is_no_samples() -> None:
    shown = text_of(debug_html(report(left_out=1, withheld=1, count=1)))
    assert "1 sample that changed or is missing since training is left out." in shown
    assert "1 withheld sample is left out." in shown
    assert "1 training sample looked at." in shown
    assert "1 samples" not in shown
    more = text_of(debug_html(report(left_out=2, withheld=3)))
    assert "2 samples that changed or are missing since training are left out." in more
    assert "3 withheld samples are left out." in more


@pytest.mark.parametrize("value", [-0.0, -0.004, 0.004])
def test_nothing_has_no_sign(value: float) -> None:
    one = Suspect(tile(), "dog", 0.8, (Contribution("course", value),))
    page = debug_html(report(suspects=(one,), signals=(SignalRow("course", "loss", value, value),), base=value))
    for text in ("-0.0", "+0.0"):
        assert text not in text_of(page)
    assert with_sign(value) == "0.0"
    assert (with_sign(0.06), with_sign(-0.06)) == ("+0.1", "-0.1")


def test_no_negative_zero_in_the_files() -> None:
    found = SimpleNamespace(columns=lambda threshold: {"from_course": np.array([-0.0, -1e-9, -0.5])})
    assert samples_csv(found, 0.5) == b"from_course\n0.000000\n0.000000\n-0.500000\n"
