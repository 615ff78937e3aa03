"""The page of `provnet debug`: names of others stay text, the policy allows one script, everything found is there."""

from __future__ import annotations

import re

import numpy as np

from provnet.report.records import ExemplarCard, NextStep
from provnet.tools.debug.page import (
    ClassRow,
    Contribution,
    DebugReport,
    DuplicateRow,
    SampleTile,
    SignalRow,
    Suspect,
    debug_html,
)
from tests.cases import cases

EVIL = "<script>alert(1)</script>\"'\u202e\x1b"


def tile(name: str = "a/1.png", label: str = "cat", score: float = 0.9) -> SampleTile:
    return SampleTile(np.zeros((4, 4), np.uint8), name, "ab" * 32, label, score)


def report(name: str = "a/1.png", label: str = "cat", **changes: object) -> DebugReport:
    one = tile(name, label)
    values: dict[str, object] = {
        "run": name,
        "network": "single network",
        "count": 1200,
        "withheld": 3,
        "left_out": 2,
        "threshold": 0.5,
        "flagged": 40,
        "expected": 39.5,
        "odd": 1,
        "suspects": (
            Suspect(
                one, label, 0.8, (Contribution("course", 2.0),), (ExemplarCard(None, name, "cd" * 32, label, 0.4),)
            ),
        ),
        "nearest": (),
        "confusions": ((label, label, 3),),
        "signals": (SignalRow("course", "loss", 2.0, -3.0),),
        "base": -2.0,
        "fitted": 0.75,
        "classes": (ClassRow(label, 9, 1, (one,), (one,)),),
        "anomalies": (one,),
        "duplicates": (DuplicateRow(0, "near", True, 2, (one, one)),),
        "groups": 1,
        "conflicts": 1,
        "class_names": (label, "dog"),
        "next_steps": (NextStep("provnet train x", "again"),),
    }
    return DebugReport(**(values | changes))  # type: ignore[arg-type]


def test_foreign_names_stay_text() -> None:
    page = debug_html(report(EVIL, EVIL))
    assert page.count("<script>") == 1
    assert "alert(1)</script>" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_policy_names_the_only_script() -> None:
    page = debug_html(report())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'")
    assert len(re.findall(r"script-src 'sha256-[^']+'", policy)) == 1
    assert "unsafe-inline'" not in policy.replace("style-src 'unsafe-inline'", "")


@cases(
    "words",
    ["1,200 training samples", "3 withheld", "2 samples that changed", "39.5", "different labels", "90.0 %", "of 40"],
)
def test_everything_found_is_there(words: str) -> None:
    assert words in " ".join(debug_html(report()).split())


def test_a_page_with_nothing_found() -> None:
    page = debug_html(report(suspects=(), anomalies=(), duplicates=(), confusions=(), flagged=0, groups=0, conflicts=0))
    for words in ("No label reaches", "No sample stands out", "None found", "Nothing was flagged"):
        assert words in page
    assert '<td class="n">–</td>' in page  # no mean over no samples
    assert "+2.00" not in page


def test_a_sample_without_a_picture_says_why() -> None:
    lost = SampleTile(None, "a/1.png", "ab" * 32, "cat", 0.9, "changed since training")
    assert "changed since training" in debug_html(report(anomalies=(lost,)))
