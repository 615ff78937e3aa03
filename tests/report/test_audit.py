"""The page of an audit: geometry of curves and histograms, one self-contained file, the figure for print."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from provnet.base.errors import UsageError
from provnet.report.charts import Curve, histogram_plot, roc_plot
from provnet.tools.membership.page import SCORES, AuditReport, audit_figure, audit_html, holds_half, tpr_cell

from .reading import assert_self_contained


def score(value: float) -> dict:
    auc = {"value": value, "low": value - 0.01, "high": min(value + 0.01, 1), "n": 50}
    rate = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 25}
    none = {"value": None, "low": None, "high": None, "n": 25, "why": "25 negatives are too few"}
    return {
        "auc": auc,
        "tpr_at_fpr": {
            "0.001": {"allowed": 0.001, "threshold": None, "tpr": none, "fpr": none},
            "0.01": {"allowed": 0.01, "threshold": 0.7, "tpr": rate, "fpr": rate},
        },
        "histogram": {"edges": [-2.0, -1.0, -0.5], "members": [5, 20], "nonmembers": [25, 0]},
        "roc": [[0.0, 0.0], [0.0, 0.4], [0.2, 0.9], [1.0, 1.0]],
    }


def values() -> dict:
    rate = {"value": 1.0, "low": 0.9, "high": 1.0, "n": 25}
    return {
        "members": 25,
        "nonmembers": 25,
        "left_out": {"members that are withheld": 3, "nonmembers that are members": 0},
        "scores": {name: score(0.6 + 0.05 * number) for number, name in enumerate(SCORES)},
        "lookup": {kind: {"members": rate, "nonmembers": rate} for kind in ("bytes", "pixels")},
        "null": {"about": "a network drawn anew", "auc": {name: score(0.5)["auc"] for name in SCORES}},
        "distorted": {"shift": {name: score(0.7) for name in SCORES}, "noise": {name: score(0.8) for name in SCORES}},
    }


REPORT = AuditReport(
    run="runs/<b>x</b>",
    network="single, small",
    sources=("mnist, split train", "C:\\a<script>"),
    values=values(),
    copies={"noise": "noise, σ = 0.05", "shift": "one pixel aside"},
    facts=(("Seed", "0"),),
)


def test_the_page_is_one_file_and_trusts_no_name() -> None:
    source = audit_html(REPORT)
    page = assert_self_contained(source)
    assert "<b>x</b>" not in source and "a<script>" not in source
    for words in ("runs/<b>x</b>", "3 members that are withheld", "too few nonmembers", "one pixel aside", "0.8500"):
        assert words in page.words
    assert "nonmembers that are members" not in page.words
    assert len(page.all("svg", "chart")) == 2 + len(SCORES)
    assert page.words.index("noise, σ = 0.05") < page.words.index("one pixel aside")  # in the order of the copies


def test_without_copies_there_is_no_section_for_them() -> None:
    page = assert_self_contained(audit_html(replace(REPORT, values={**values(), "distorted": {}})))
    assert "Distorted copies" not in page.words


def test_keys_without_training_stand_beside_the_run() -> None:
    assert "Stored, but never trained" not in assert_self_contained(audit_html(REPORT)).words
    stored = {"about": "drawn anew, with keys", "auc": {name: score(0.9321)["auc"] for name in SCORES}}
    page = assert_self_contained(audit_html(replace(REPORT, values={**values(), "null_keys": stored})))
    assert "Stored, but never trained" in page.words
    assert "Drawn anew, with keys." in page.words
    assert page.words.count("0.9321") == len(SCORES) - 2  # the class branch has no keys


def numbers(path: str) -> np.ndarray:
    return np.array([float(x) for x in re.findall(r"-?[\d.]+", path)]).reshape(-1, 2)


def test_roc_curves_begin_and_end_in_the_corners() -> None:
    points = ((0.0, 0.0), (0.0, 0.5), (0.1, 0.9), (1.0, 1.0))
    for plot in (roc_plot([Curve("a", "k0", "0.9", points)]), roc_plot([Curve("a", "k0", "0.9", points)], log=True)):
        drawn = numbers(plot.paths[1].path)
        assert drawn[0].tolist() == [plot.frame.left, plot.frame.bottom]
        assert drawn[-1].tolist() == [plot.frame.right, plot.frame.top]
        assert (np.diff(drawn[:, 0]) >= 0).all() and (np.diff(drawn[:, 1]) <= 0).all()
        assert plot.paths[0].kind == "guess"
    assert [tick.text for tick in plot.x_ticks] == ["0.1 %", "1 %", "10 %", "100 %"]


def test_histograms_are_shares_of_their_own_kind() -> None:
    plot = histogram_plot("T", "x", [0.0, 0.5, 1.0], [10, 30], [100, 0])
    others, members = (numbers(path.path) for path in plot.paths)
    height = plot.frame.bottom - plot.frame.top
    assert (plot.frame.bottom - others[:, 1].min()) / height == pytest.approx(1.0)
    assert (plot.frame.bottom - members[:, 1].min()) / height == pytest.approx(0.75)
    assert "40 members and 100 nonmembers" in plot.words


def test_cells() -> None:
    assert tpr_cell(score(0.7)["tpr_at_fpr"]["0.001"]).words == "25 negatives are too few"
    assert not holds_half({"low": 0.51, "high": 0.6})


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_figure_for_print(kind: str, begin: bytes) -> None:
    assert audit_figure(REPORT, kind).startswith(begin)


def test_a_figure_that_cannot_be_made_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match='not "bmp"'):
        audit_figure(REPORT, "bmp")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="matplotlib"):
        audit_figure(REPORT, "png")
