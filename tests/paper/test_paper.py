"""The paper's numbers and the verdicts beside them."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

import provnet_paper
from provnet_paper.beside import standings
from provnet_paper.networks import DATA, FIGURES, SETTINGS
from provnet_paper.records import MET, MISSED, NOT_COMPARED, NOT_RUN, WITHIN, half_width, printed, standing
from provnet_paper.table2 import remarks

from .made import table2

FOLDER = Path(provnet_paper.__file__).parent


def test_every_data_set_has_its_ten_numbers_once() -> None:
    keys = [(one.data, one.setting, one.figure) for one in printed("2")]
    assert len(set(keys)) == len(keys) == 50
    for data in DATA:
        counts = [sum(key[:2] == (data, setting) for key in keys) for setting in SETTINGS]
        assert counts == [2, 2, 3, 3]
    assert {figure for _, _, figure in keys} == set(FIGURES)
    assert all(0 < one.value <= 1 for one in printed("2"))


def test_remarks_speak_of_numbers_that_exist() -> None:
    with (FOLDER / "remarks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = {(one.data, one.setting, one.figure) for one in printed("2")}
    for row in rows:
        wanted = [row["data"], row["setting"], row["figure"]]
        assert any(all(w in ("*", k) for w, k in zip(wanted, key, strict=True)) for key in keys), row
        assert row["remark"].endswith(".")
    assert len(rows) == len(remarks("table2")) + len(remarks("table2-ours"))


@pytest.mark.parametrize(("value", "verdict"), [(0.9, MET), (0.95, MET), (0.8995, WITHIN), (0.89, MISSED)])
def test_verdicts(value: float, verdict: str) -> None:
    found = standing(0.9, [(value, 10_000)])
    assert (found.verdict, found.won) == (verdict, value > 0.9)


def test_the_bar_is_the_papers_number_less_the_half_width() -> None:
    for paper, n in itertools.product((0.5, 0.9908, 1.0), (1_000, 60_000)):
        half = half_width(paper, n)
        assert standing(paper, [(paper - half * 0.999, n)]).verdict in (MET, WITHIN)
        assert standing(paper, [(paper - half * 1.001, n)]).verdict == MISSED


def test_mean_std_and_n_are_over_seeds() -> None:
    found = standing(0.5, [(0.4, 100), (0.6, 50)])
    assert found.mean == pytest.approx(0.5)
    assert found.std == pytest.approx(0.02**0.5)
    assert (found.seeds, found.n, found.verdict) == (2, 50, MET)
    assert standing(0.5, [(0.4, 100)]).std is None
    assert standing(0.5, []).verdict == NOT_RUN
    assert standing(0.5, [(0.9, 10)], compared=False).verdict == NOT_COMPARED


def test_only_full_scale_is_compared() -> None:
    full, tiny = (standings(results, "2") for results in (table2(), table2(scale="tiny")))
    assert sum(one.verdict == MET for one in full.values()) == 30
    assert {one.verdict for one in tiny.values()} == {NOT_COMPARED, NOT_RUN}
