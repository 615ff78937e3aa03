"""The demo page: every figure with n and interval, curves, matrix, explanations, identity, and plain words."""

from __future__ import annotations

import pytest

from provnet.report.charts import line_chart, steps
from provnet.report.records import EpochRow, NextStep, evaluation_rows
from provnet.tools.demo import confusion_cells, demo_html, mixups, training_charts
from tests.cases import cases
from tests.report.cards import HOSTILE, card, demo_report, hostile_card
from tests.report.reading import assert_self_contained


def test_story_is_told():
    words = assert_self_contained(demo_html(demo_report())).words
    for part in (
        *["class-conditional", "4,000 handwritten digits", "21.4 s", "CPU, 2 threads", "1,234,567", "47.9 s"],
        *["Class accuracy 97.8 %", "96.7 to 98.5 %", "n = 1,000", "Exact index 99.9 %", "99.7 to 99.96 %", "n = 4,000"],
        *["index@5 100 %", "Under noise", "Under shift", "Under JPEG", "any@1", "any@5", "majority@5"],
        *["2 right and 1 wrong", "No supporting training sample", "says little by itself"],
        *["reveals membership", "ab" * 32, "cd" * 32, "torch 2.13.0", "provnet verify runs/demo", "Threshold 0.41"],
    ):
        assert part in words, part


def test_figures_without_a_tile_are_in_the_table():
    words = assert_self_contained(demo_html(demo_report())).words
    assert "made_up_figure 12.3 % 10.0 % 20.0 % 7" in words


@pytest.mark.parametrize(
    ("network", "said"), [("class-conditional", True), ("class-conditional-heads", True), ("single", False)]
)
def test_figures_that_are_equal_by_construction_are_named(network, said):
    words = assert_self_contained(demo_html(demo_report(network=network))).words
    assert ("by construction" in words) is said


@cases("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_anywhere_stays_text(text):
    report = demo_report(
        **dict.fromkeys(("data", "network", "backbone", "device", "fingerprint", "run"), text),
        class_names=(text, text + "1", text + "2"),
        explanations=(hostile_card(text), card()),
        versions={text: text},
        next_steps=(NextStep(text, text),),
        facts=((text, text),),
    )
    assert_self_contained(demo_html(report))


def test_an_empty_report_is_still_a_page():
    empty = dict.fromkeys(("epochs", "evaluation", "confusion", "explanations", "files", "next_steps", "facts"), ())
    assert_self_contained(demo_html(demo_report(**empty, versions={})))


def test_tile_draws_its_interval():
    styles = [a["style"] for a in assert_self_contained(demo_html(demo_report())).all("i") if "left" in a["style"]]
    assert styles[0] == "left:96.70%;width:1.80%"
    assert len(styles) == 9


def test_many_classes_leave_the_matrix_out():
    names = tuple(f"class {n}" for n in range(30))
    confusion = tuple(tuple(5 if i == j else int(j == 0) for j in range(30)) for i in range(30))
    page = assert_self_contained(demo_html(demo_report(class_names=names, confusion=confusion)))
    assert page.all("table", "matrix") == []
    assert "class 1 taken for class 0 1 of 6" in page.words


def test_matrix_counts_are_shown():
    page = assert_self_contained(demo_html(demo_report()))
    assert len(page.all("td", "yes")) == 3
    assert len(page.all("td", "no")) == 2
    assert "2 taken for 0 3 of 10" in page.words


def test_no_error_says_so():
    report = demo_report(confusion=((10, 0, 0), (0, 10, 0), (0, 0, 10)))
    assert "every test sample was answered right" in assert_self_contained(demo_html(report)).words


def test_confusion_of_nothing():
    assert confusion_cells([[0, 0], [0, 0]])[0][0].tint == 0.0
    assert mixups([[0, 0], [0, 0]], ["a", "b"]) == ()


def test_curve_goes_where_the_values_are():
    loss, accuracy = training_charts(
        [EpochRow(1, 4.0, 0.0, 0.5), EpochRow(2, 2.0, 1.0, float("nan")), EpochRow(3, 0.0, 1.0, 0.5)]
    )
    dots, box = loss.paths[0].marks, loss.frame
    assert [dot.y for dot in dots] == [box.top, (box.top + box.bottom) / 2, box.bottom]
    assert [dot.x for dot in dots] == [box.left, (box.left + box.right) / 2, box.right]
    classes, indices = accuracy.paths
    assert [dot.y for dot in classes.marks] == [box.bottom, box.top, box.top]
    assert indices.path.count("M") == 2  # a gap, not a bridge, where a value is missing


@cases("epochs", [1, 2, 7, 80, 1000])
def test_any_number_of_epochs_is_drawn(epochs):
    rows = tuple(EpochRow(n + 1, 1 / (n + 1), 0.5, 0.5) for n in range(epochs))
    assert_self_contained(demo_html(demo_report(epochs=rows)))
    chart = training_charts(rows)[0]
    assert len(chart.paths[0].marks) == epochs
    assert 1 <= len(chart.x_ticks) <= 9
    assert all(chart.frame.left <= tick.at <= chart.frame.right for tick in chart.x_ticks)


@pytest.mark.parametrize("values", [[0.0, 0.0], [float("nan")] * 2, [1e-12, 1e-13], [1e9, float("inf")]])
def test_odd_values_stay_in_the_plot(values):
    chart = line_chart("Loss", [1, 2], [("loss", values)])
    assert all(chart.frame.top <= mark.y <= chart.frame.bottom for path in chart.paths for mark in path.marks)


@cases(("low", "high"), [(0, 1), (0, 0.93), (0, 6.9), (1, 80), (0, 1e-7), (0, 12345)])
def test_steps_cover_the_range_with_few_round_numbers(low, high):
    found = steps(low, high, 5)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 8


def test_evaluation_rows_keep_the_order_and_skip_the_rest():
    figure = {"value": 1, "n": 2, "low": 0.3, "high": 1}
    rows = evaluation_rows({"b": figure, "note": "text", "none": None, "a": {"x": figure, "deep": {"y": figure}}})
    assert [row.key for row in rows] == ["b", "a.x", "a.deep.y"]
