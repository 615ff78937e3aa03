"""The judge: what each kind of test decides, what a verdict needs, and that every row of claims.csv can be decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import (
    HEADLINE,
    OURS,
    TESTS,
    Claim,
    Known,
    Look,
    apart,
    claims,
    decided,
    difference,
    findings,
    judged,
    kept_hits,
    known,
    less,
    signs_of,
    with_luck,
)
from provnet_paper.records import SCALES, Result, Results

from .made import ORIGIN, told
from .made_others import OTHERS, made

N = 10_000
ROWS = [(name, claim) for name in EXPERIMENTS for claim in claims(name) if claim.test in TESTS]


def rates(*values: float) -> list[Known]:
    return [Known((value, N)) for value in values]


@pytest.mark.parametrize(
    ("test", "values", "bars", "signs"),
    [
        ("above", (0.99, 0.98), (), [1]),
        ("above", (0.98, 0.99), (), [-1]),
        ("above", (0.98, 0.981), (), [0]),
        ("below", (0.98, 0.99), (), [1]),
        ("best", (0.95, 0.9, 0.9, 0.9), (), [1]),
        ("best", (0.95, 0.9, 0.95, 0.9), (), [0]),
        ("best", (0.95, 0.9, 0.95, 0.99), (), [-1]),
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
        ("above of many", (0.91, 0.90), (1,), [1]),
        ("above of many", (0.91, 0.90), (12,), [0]),
        ("changed more", (0.9, 0.8, 0.9, 0.88), (), [1]),
        ("changed more", (0.9, 0.88, 0.9, 0.8), (), [-1]),
        ("changed more", (0.7, 0.8, 0.5, 0.8), (), [1]),
        ("gained more", (0.9, 0.8, 0.9, 0.88), (), [1]),
        ("gained more", (0.7, 0.8, 0.5, 0.8), (), [-1]),  # less of a loss is no gain
        ("at least", (0.993, 0.9918, 0.95), (0.99, 0.99, 0.99), [1, 0, -1]),
        ("less than", (0.001,), (0.01,), [1]),
        ("about", (0.62, 0.9), (0.6, 0.97), [1, -1]),
    ],
)
def test_what_a_kind_of_test_decides(
    test: str, values: tuple[float, ...], bars: tuple[float, ...], signs: list[int]
) -> None:
    assert TESTS[test](rates(*values), bars)[0] == signs


def test_areas_are_judged_by_their_intervals() -> None:
    area = Known((0.9, 0), area=(0.85, 0.95))
    assert [TESTS["at least"]([area], (bar,))[0] for bar in (0.8, 0.9, 0.99)] == [[1], [0], [-1]]
    higher, near = Known((0.99, 0), area=(0.98, 1.0)), Known((0.94, 0), area=(0.9, 0.98))
    assert [TESTS["separates less"]([area, one], ())[0] for one in (higher, near)] == [[1], [0]]
    assert TESTS["separates less"]([higher, area], ())[0] == [-1]
    assert (area.ends, area.area3) == ("0.9000 (0.8500 to 0.9500)", "0.900 (0.850 to 0.950)")


def everywhere(value: Known | None) -> Look:
    return lambda cell, figure: value


@pytest.mark.parametrize(("name", "claim"), ROWS, ids=lambda one: one if isinstance(one, str) else one.sentence[:40])
def test_no_sentence_is_decided_where_nothing_was_run_and_few_where_nothing_differs(name: str, claim: Claim) -> None:
    assert judged(signs_of(claim, everywhere(None), claim.data)) == "not tested"
    area = (0.4, 0.6) if any(word in claim.cells[0] for word in ("auc.", "area.")) else None
    same = Known((0.5, 10**6), area=area)
    found = set(signs_of(claim, everywhere(same), claim.data))
    bar = {"matches": {1}, "no worse": {1}, "about": {-1}, "past": {-1 if claim.bars and claim.bars[0] > 0 else 1}}
    bar |= {"short of": {1}, HEADLINE: set()}
    if claim.bars and claim.test in ("at least", "less than"):
        signs = {1 if claim.bars[0] < 0.4 else 0 if claim.bars[0] <= 0.6 else -1}
        bar |= {"at least": signs, "less than": {-sign for sign in signs}}
    assert found == bar.get(claim.test, {0})
    assert all(case.text or not claim.case for case in decided(claim, everywhere(same), claim.data))


@pytest.mark.parametrize("name", OTHERS)
def test_every_row_is_one_line_of_its_page_and_names_cells_that_are_run(name: str) -> None:
    experiment, rows = EXPERIMENTS[name], [claim for claim in claims(name) if claim.test != HEADLINE]
    lines = experiment.section(made(name))
    for claim in rows:
        begin = f"- {OURS if claim.ours else ''}{claim.sentence} **"
        assert len([line for line in lines if line.startswith(begin)]) == 1, claim.sentence
    cells = {cell.name for cell in experiment.cells(SCALES["full"])}
    asked: set[str] = set()

    def look(cell: str, figure: str) -> Known | None:
        asked.add(cell)
        return Known((0.5, N), area=(0.4, 0.6))

    for claim in claims(name):
        if claim.test in TESTS:
            decided(claim, look, (*claim.data, *claim.beside))
    assert asked <= cells


def test_a_test_of_its_own_may_leave_its_sentence_out() -> None:
    names = {claim.test for claim in claims("embeddings") if claim.test and claim.test not in TESTS}
    found = findings(made("embeddings"), {name: lambda results: None for name in names})
    assert len(found) == len([claim for claim in claims("embeddings") if not claim.test])


def test_what_came_late_is_said_only_of_what_was_judged() -> None:
    late = [claim.sentence for claim in claims("sharing") if claim.late]
    own = {claim.test: (lambda results: ([], "no")) for claim in claims("sharing") if claim.test not in TESTS}
    for results, said in ((made("sharing"), True), (replace(made("sharing"), cells={}), False)):
        found = [one for one in findings(results, own) if one.claim in late and one.evidence != "no"]
        assert found and all(bool(one.late) == said for one in found)


def test_seeds_that_lie_apart_make_a_difference_less_sure() -> None:
    larger = Known((0.92, N), each=(0.92,))
    near, wide = (Known((0.9, N), each=each) for each in ((0.9, 0.901, 0.899), (0.95, 0.9, 0.85)))
    found = [with_luck(larger, printed) for printed in (near, wide)]
    assert [one.sign for one in found if one] == [1, 0]
    luck = student.ppf(0.975, 2) * np.std([0.95, 0.9, 0.85], ddof=1) * (1 + 1 / 3) ** 0.5
    half = np.hypot(luck, apart((0.92, N), (0.9, N)).high - 0.02)
    assert found[1] is not None and found[1].low == pytest.approx(0.02 - half, abs=1e-4)


def test_a_gain_is_sure_only_where_seeds_agree() -> None:
    base = np.random.default_rng(0).random(N)
    better, theirs, worse = base < 0.95, base < 0.9, base < 0.89
    assert difference([(better, theirs)], 11).sign == 1
    assert difference([(better, theirs), (better, theirs)], 11).sign == 1
    assert difference([(better, theirs), (worse, theirs)], 11).sign == 0
    assert difference([(worse, theirs), (worse, theirs)], 11).sign == -1
    assert difference([(better[:40], theirs[:40])], 11).sign == 0


def test_cells_that_kept_their_answers_are_compared_sample_by_sample() -> None:
    base = np.random.default_rng(0).random(N)
    hits = {"mnist/one": base < 0.990, "mnist/two": base < 0.992}
    cells = {
        cell: {
            seed: Result({"right": (float(right.mean()), N)}, told() | kept_hits({"right": right}), ORIGIN)
            for seed in (0, 1)
        }
        for cell, right in hits.items()
    }
    kept = Results("sharing", "full", cells, {})
    bare = Results("sharing", "full", {cell: {0: replace(one[0], told=told())} for cell, one in cells.items()}, {})
    paired, alone = (
        less(known(results, "mnist/two", "right"), known(results, "mnist/one", "right")) for results in (kept, bare)
    )
    assert paired is not None and alone is not None
    assert paired.value == pytest.approx(alone.value)
    assert (paired.sign, alone.sign) == (1, 0)  # two of a thousand are beyond chance only in pairs
    assert less(known(kept, "mnist/two", "right"), known(kept, "mnist/none", "right")) is None


def test_answers_to_other_samples_are_no_pairs() -> None:
    few, many = Known((0.5, 2), {0: np.array([True, False])}), Known((0.5, 4), {0: np.array([True, False] * 2)})
    assert less(few, many) == apart((0.5, 2), (0.5, 4))
