"""What each kind of test decides, that every row of claims.csv can be decided, and that verdicts follow the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import CONFIRMED, NOT_TESTED, TESTS, claims, decide_cases
from provnet_paper.measures import (
    Known,
    difference_of_rates,
    figure_of,
    less,
    of_paper,
    paired_rates,
    with_luck,
)
from provnet_paper.records import SCALES, Figure, Results
from tests.cases import cases

from .made import found, real, verdict_of, with_figures, with_told

N = 10_000
DECIDED: list[tuple[str, tuple[float, ...], tuple[float, ...], list[int]]] = [
    ("above", (0.99, 0.98), (), [1]),
    ("above", (0.98, 0.99), (), [-1]),
    ("above", (0.98, 0.981), (), [0]),
    ("above", (0.91, 0.90), (1,), [1]),
    ("above", (0.91, 0.90), (12,), [0]),  # one of many comparisons
    ("below", (0.98, 0.99), (), [1]),
    ("differs", (0.98, 0.99), (), [1]),
    ("differs", (0.98, 0.981), (), [0]),
    ("not above", (0.981, 0.98), (), [1]),
    ("not above", (0.99, 0.98), (), [-1]),
    ("best", (0.95, 0.9, 0.9, 0.9), (), [1]),
    ("best", (0.95, 0.9, 0.95, 0.9), (), [0]),
    ("best", (0.95, 0.9, 0.95, 0.99), (), [-1]),
    ("any better", (0.9, 0.8, 0.95), (2,), [1]),
    ("any better", (0.9, 0.8, 0.9), (2,), [0]),
    ("any better", (0.9, 0.8, 0.7), (2,), [-1]),
    ("no worse", (0.98, 0.98), (), [1]),
    ("no worse", (0.979, 0.98), (), [0]),
    ("no worse", (0.95, 0.98), (), [-1]),
    ("matches", (0.979, 0.98), (), [1]),
    ("matches", (0.95, 0.98), (), [-1]),
    ("past", (0.9, 0.85), (0.01,), [1]),
    ("past", (0.91, 0.9), (0.01,), [0]),
    ("past", (0.9, 0.9), (0.01,), [-1]),
    ("past", (0.895, 0.9), (-0.02,), [1]),  # less than two points lost
    ("short of", (0.9, 0.9), (0.01,), [1]),
    ("changed more", (0.9, 0.8, 0.9, 0.88), (), [1]),
    ("changed more", (0.9, 0.88, 0.9, 0.8), (), [-1]),
    ("changed more", (0.7, 0.8, 0.5, 0.8), (), [1]),
    ("gained more", (0.9, 0.8, 0.9, 0.88), (), [1]),
    ("gained more", (0.7, 0.8, 0.5, 0.8), (), [-1]),  # less of a loss is no gain
    ("both fall", (0.9, 0.8, 0.9, 0.88), (), [1, 1, 1]),
    ("both fall", (0.9, 0.9, 0.9, 0.88), (), [0, 1, -1]),
    ("plateaus", (0.8, 0.9, 0.91), (), [1]),
    ("plateaus", (0.8, 0.81, 0.9), (), [-1]),
    ("plateaus", (0.8, 0.85, 0.9), (), [0]),
    ("falls", (0.8, 0.81, 0.7), (18,), [1]),
    ("falls", (0.8, 0.786), (1,), [1]),
    ("falls", (0.8, 0.786), (18,), [0]),  # one fall of many steps may be chance
    ("steadier", (0.9, 0.91, 0.7, 0.8), (), [1]),
    ("steadier", (0.7, 0.8, 0.9, 0.91), (), [-1]),
    ("at least", (0.993, 0.9918, 0.95), (0.99, 0.99, 0.99), [1, 0, -1]),
    ("less than", (0.001,), (0.01,), [1]),
    ("all at least", (0.95, 0.93), (0.9,), [1]),
    ("all at least", (0.95, 0.9), (0.9,), [0]),
    ("all at least", (0.95, 0.8), (0.9,), [-1]),
    ("about", (0.62, 0.9), (0.6, 0.97), [1, -1]),
    ("smaller", (1.0, 2.0), (), [1]),
    ("larger", (1.0, 2.0), (), [-1]),
    ("not smaller", (2.0, 2.0), (), [1]),
    ("not smaller", (1.0, 2.0), (), [-1]),
    ("reaches", (0.9, 0.9), (), [1]),
    ("reaches", (0.899, 0.9), (), [-1]),
    ("one reaches", (0.8, 0.9), (0.9,), [1]),
    ("one reaches", (0.8, 0.89), (0.9,), [-1]),
    ("share", (304.0, 1000.0), (0.3,), [1]),
    ("share", (1000.0, 1000.0), (0.3,), [-1]),
    ("jumps", (0.1, 0.1, 0.1, 0.3), (0.1,), [1]),
    ("jumps", (0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1), (0.1,), [0]),  # both measures have to agree
    ("jumps", (0.3, 0.3, 0.3, 0.1), (0.1,), [-1]),
    ("no jump", (0.1, 0.1, 0.1, 0.3), (0.1,), [-1]),
    ("no jump", (0.1, 0.1, 0.1, 0.1), (0.1,), [1]),
    ("jumps more", (0.1, 0.1, 0.1, 0.4, 0.1, 0.1, 0.1, 0.1), (0.1,), [1]),
    ("jumps more", (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.4), (0.1,), [-1]),
]
AREAS = ("at least of many", "separates less")


def test_what_a_kind_of_test_decides() -> None:
    for test, values, bars, signs in DECIDED:
        assert TESTS[test]([Known((value, N)) for value in values], bars)[0] == signs, (test, values, bars)
    rows = {claim.test for name in EXPERIMENTS for claim in claims(name) if claim.test}
    lucky = {"above with luck", "below with luck", "headline"}
    assert {test for test, *_ in DECIDED} | set(AREAS) | lucky == set(TESTS) == rows


def test_areas_are_judged_by_their_intervals() -> None:
    area = Known((0.9, 0), area=(0.85, 0.95))
    assert [TESTS["at least"]([area], (bar,))[0] for bar in (0.8, 0.9, 0.99)] == [[1], [0], [-1]]
    assert [TESTS["at least of many"]([area], (0.84, many))[0] for many in (1, 100)] == [[1], [0]]  # wider
    higher, near = Known((0.99, 0), area=(0.98, 1.0)), Known((0.94, 0), area=(0.9, 0.98))
    assert [TESTS["separates less"]([area, one], ())[0] for one in (higher, near)] == [[1], [0]]
    assert TESTS["separates less"]([higher, area], ())[0] == [-1]


@cases("name", EXPERIMENTS)
def test_every_row_asks_cells_that_are_run_and_decides_nothing_without_them(name: str) -> None:
    cells = {other: {cell.name for cell in EXPERIMENTS[other].cells(SCALES["full"])} for other in EXPERIMENTS}
    asked: set[str] = set()

    def look(text: str) -> Known | None:
        whose, _, rest = text.rpartition("!")
        cell, _, figure = rest.partition(":")
        if figure.endswith("@paper"):
            return of_paper(EXPERIMENTS[name].printed, cell, figure.removesuffix("@paper"))
        asked.add(cell)
        assert cell in cells[whose or name], text
        return Known((0.5, N), area=(0.4, 0.6) if "auc" in figure else None)

    for claim in claims(name):
        assert claim.test or claim.untested != "not run"
        for case in decide_cases(claim, look, (*claim.data, *claim.beside)) if claim.test else ():
            assert case.text or not claim.case
        nothing = decide_cases(claim, lambda text: None, claim.data) if claim.test else []
        assert all(sign is None for case in nothing for sign in case.signs) and not any(case.text for case in nothing)
    assert asked or name == "none"


@cases("name", EXPERIMENTS)
def test_a_sentence_without_its_cells_is_not_tested_and_one_with_some_is_so_far(name: str) -> None:
    results = real(name)
    few = {cell: seeds for cell, seeds in results.cells.items() if cell.startswith("fashion-mnist")}
    judged = found(replace(results, cells=few))
    assert {one.verdict for one in judged if one.so_far}.isdisjoint({NOT_TESTED})
    assert all(one.late == "" for one in judged if one.verdict == NOT_TESTED)
    assert found(replace(results, cells={})) == found(replace(results, scale="tiny")) == []
    for one, whole in zip(judged, found(results), strict=True):
        assert one.claim == whole.claim


# experiment, words of a sentence, cells and their new figures, verdict before, after
FLIPS: list[tuple[str, str, dict[str, dict[str, Figure]], str, str]] = [
    ("mixing", "memory is lost", {"mnist/1": {"index_accuracy": (0.4, 60_000)}}, "confirmed", "holds in part"),
    ("mixing", "costs more on", {"mnist/0": {"any_at_1": (0.3, N)}}, "confirmed", "contradicted"),
    ("mixing", "about 100 % of classes", {"mnist/1": {"any_at_1": (0.9, N)}}, "holds in part", "contradicted"),
    (
        "subsets",
        "30 % of MNIST match",
        {"mnist/stratified-30": {"class_accuracy": (0.9, N)}},
        "confirmed",
        "contradicted",
    ),
    (
        "subsets",
        "steadier than top 1",
        {"mnist/stratified-10": {"any_at_5": (0.1, N)}},
        "confirmed",
        "holds in part",
    ),
    (
        "subsets",
        "grow monotonically",
        {"mnist/stratified-50": {"any_at_1": (0.8, N)}},
        "undecided",
        "confirmed",
    ),
    (
        "embeddings",
        "94 of 10,000",
        {"mnist/class-conditional": {"any_at_1": (0.9, N)}},
        "confirmed",
        "contradicted",
    ),
    (
        "embeddings",
        "by visual similarity",
        {"mnist/class-conditional": {"nearer_than_own_class": (0.9, 60)}},
        "not tested",
        "confirmed",
    ),
    (
        "instance",
        "MNIST: indices are as good",
        {"mnist/index": {"probe_plain_from_plain": (0.997, N)}},
        "contradicted",
        "confirmed",
    ),
    (
        "vae",
        "Index prediction",
        {"lfw/faces": {"index_at_mean_2_to_25": (0.5, 6_000), "index_at_sample_2_to_25": (0.5, 6_000)}},
        "confirmed",
        "contradicted",
    ),
    (
        "membership",
        "near-perfect levels across",
        {"mnist/class-conditional": {"index_accuracy": (0.6, 60_000), "index_at_5": (0.7, 60_000)}},
        "confirmed",
        "holds in part",
    ),
    (
        "debugging",
        "planted wrong labels",
        {"fashion-mnist/wrong": {"low_entropy_auc_low": (0.4, N)}},
        "holds in part",
        "undecided",
    ),
    (
        "table2-ours",
        "Stanford Dogs with",
        {"stanford-dogs/class-conditional-pretrained": {"class_accuracy": (0.76, 8_000)}},
        "contradicted",
        "confirmed",
    ),
    (
        "cost",
        "as often as without",
        {cell: {"without": (0.5, N)} for cell in ("mnist", "fashion-mnist", "cifar10")},
        "not confirmed",
        "confirmed",
    ),
]


def test_verdicts_follow_the_numbers() -> None:
    for name, words, changes, before, after in FLIPS:
        results = real(name)
        assert verdict_of(results, words) == before, words
        for cell, figures in changes.items():
            results = with_figures(results, cell, figures)
        assert verdict_of(results, words) == after, words


def test_the_index_head_and_the_curves_are_judged_by_what_was_kept() -> None:
    subsets = real("subsets")
    words = "parameter reduction in the index head"
    assert verdict_of(subsets, words) == CONFIRMED
    assert verdict_of(with_told(subsets, "mnist/stratified-30", index_head=10), words) == "holds in part"
    sharing = real("sharing")
    falling = [9 - 8 * epoch / 149 for epoch in range(150)]
    for cell in sharing.cells:
        sharing = with_told(sharing, cell, loss={"index": falling, "class": falling})
    assert verdict_of(sharing, "smooth, stable loss curves") == CONFIRMED
    assert verdict_of(sharing, "introduced instability in Small") == "undecided"
    swinging = [loss + epoch % 2 for epoch, loss in enumerate(falling)]
    for cell in ("mnist/small-4", "fashion-mnist/small-4"):
        sharing = with_told(sharing, cell, loss={"index": swinging, "class": swinging})
    assert verdict_of(sharing, "introduced instability in Small") == CONFIRMED
    for cell, seeds in sharing.cells.items():
        flat = [{**row, "index": 1.0 if row["epoch"] > 60 else 0.5} for row in seeds[0].told["curve"]]
        sharing = with_told(sharing, cell, curve=flat)
    assert verdict_of(sharing, "throughout the 150-epoch") == "undecided"


def test_seeds_that_lie_apart_make_a_difference_less_sure() -> None:
    larger = Known((0.92, N), each=(0.92,))
    near, wide = (Known((0.9, N), each=each) for each in ((0.9, 0.901, 0.899), (0.95, 0.9, 0.85)))
    gaps = [with_luck(larger, printed) for printed in (near, wide)]
    assert [one.sign for one in gaps] == [1, 0]
    luck = student.ppf(0.975, 2) * np.std([0.95, 0.9, 0.85], ddof=1) * (1 + 1 / 3) ** 0.5
    half = np.hypot(luck, difference_of_rates((0.92, N), (0.9, N)).high - 0.02)
    assert gaps[1].low == pytest.approx(0.02 - half, abs=1e-4)


def test_a_gain_is_sure_only_where_seeds_agree() -> None:
    base = np.random.default_rng(0).random(N)
    better, theirs, worse = base < 0.95, base < 0.9, base < 0.89
    assert paired_rates([(better, theirs)], 11).sign == paired_rates([(better, theirs), (better, theirs)], 11).sign == 1
    assert (
        paired_rates([(better, theirs), (worse, theirs)], 11).sign
        == paired_rates([(better[:40], theirs[:40])], 11).sign
        == 0
    )
    assert paired_rates([(worse, theirs), (worse, theirs)], 11).sign == -1


def test_cells_that_kept_their_answers_are_compared_sample_by_sample() -> None:
    base = np.random.default_rng(0).random(N)
    one, two = (Known((float(right.mean()), N), {0: right}) for right in (base < 0.990, base < 0.992))
    alone = less(Known(two.figure), Known(one.figure))
    assert less(two, one).value == pytest.approx(alone.value)
    assert (less(two, one).sign, alone.sign) == (1, 0)  # two of a thousand are beyond chance only in pairs
    few, many = Known((0.5, 2), {0: np.array([True, False])}), Known((0.5, 4), {0: np.array([True, False] * 2)})
    assert less(few, many) == difference_of_rates((0.5, 2), (0.5, 4))  # answers to other samples are no pairs
    cell = next(iter(real("mixing").cells))
    kept = figure_of(real("mixing"), cell, "any_at_1")
    assert kept is not None and kept.right[0].mean() == pytest.approx(kept.figure[0])


def test_conditions_of_robustness_are_compared_on_the_same_pictures() -> None:
    results: Results = EXPERIMENTS["robustness"].measured(real("robustness"))
    ours, cnn = (figure_of(results, cell, "noise-0.2_top_1") for cell in ("mnist/0.4", "mnist/cnn"))
    assert ours is not None and cnn is not None
    assert ours.right[0].mean() == pytest.approx(ours.figure[0])
    gap = less(ours, cnn)
    assert gap.high - gap.low < 2 * (difference_of_rates(ours.figure, cnn.figure).high - gap.value)
    assert gap.sign == 1
