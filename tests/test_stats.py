"""Intervals of rates: their laws, their coverage, and scipy's own where it has them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm
from scipy.stats import t as student

from provnet.base.errors import UsageError
from provnet.base.stats import Z95, Interval, clopper_pearson, t_quantile, wilson
from tests.cases import cases
from tests.models.made import LAWS

RATES = (0.001, 0.01, 0.037, 0.1, 0.2501, 0.4003, 0.5, 0.68, 0.9, 0.9701, 0.995)
COUNTS = (5, 10, 30, 100, 250)


@LAWS
@given(st.integers(1, 10_000_000), st.floats(0, 1))
def test_both_intervals_are_scipys(n: int, share: float) -> None:
    hits = round(share * n)
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        found, wanted = ours(hits, n), binomtest(hits, n).proportion_ci(method=method)
        assert (found.value, found.n) == (hits / n, n)
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-8)


@LAWS
@given(st.integers(1, 1_000_000), st.floats(0, 1))
def test_an_interval_holds_its_rate_and_mirrors(n: int, share: float) -> None:
    hits = round(share * n)
    for ours in (wilson, clopper_pearson):
        found, mirrored = ours(hits, n), ours(n - hits, n)
        assert 0 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]
        assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)  # type: ignore[operator]


@LAWS
@given(st.integers(1, 10_000), st.integers(2, 100), st.floats(0, 1))
def test_more_samples_make_it_narrower(n: int, more: int, share: float) -> None:
    hits = round(share * n)
    for ours in (wilson, clopper_pearson):
        few, many = ours(hits, n), ours(more * hits, more * n)
        assert many.high - many.low < few.high - few.low  # type: ignore[operator]


@cases("n", COUNTS)
def test_coverage(n: int) -> None:
    """Exact: Wilson turns the score test |k - np| <= z sqrt(np(1 - p)) around, Clopper-Pearson holds 95 % always."""
    k = np.arange(n + 1)
    for p in RATES:
        chance = binom.pmf(k, n, p)
        held = {f: np.array([f(int(i), n).low <= p <= f(int(i), n).high for i in k]) for f in (wilson, clopper_pearson)}  # type: ignore[operator]
        wanted = chance[np.abs(k - n * p) <= norm.ppf(0.975) * math.sqrt(n * p * (1 - p))].sum()
        assert chance[held[wilson]].sum() == pytest.approx(wanted, abs=1e-3), p
        assert chance[held[clopper_pearson]].sum() >= 0.95, p


@cases("df", [1, 1.5, 3, 12.7, 400, 99_999])
def test_a_t_quantile_leaves_one_in_forty_above(df: float) -> None:
    assert student.sf(t_quantile(df), df) == pytest.approx(0.025)


def test_many_degrees_of_freedom_are_the_normal_law() -> None:
    assert t_quantile(1e5) == t_quantile(math.inf) == Z95 == pytest.approx(norm.ppf(0.975))
    assert t_quantile(99_999) == pytest.approx(Z95, rel=1e-4)


def test_no_samples_have_no_value() -> None:
    nothing = {"value": None, "n": 0, "low": None, "high": None}
    for found in (wilson(0, 0), clopper_pearson(0, 0)):
        assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == nothing
        assert str(found) == "no samples (n = 0)"
    said = Interval(None, 7, None, None, "too few")
    assert said.to_json() == {**nothing, "n": 7, "why": "too few"}
    assert str(said) == "too few"
    assert str(wilson(1999, 2000)) == "99.95% (99.72% to 99.99%, n = 2,000)"


@cases(("hits", "n"), [(1, 0), (-1, 5), (6, 5), (0, -1), (math.nan, 5), (math.inf, 5)])
def test_counts_that_cannot_be_are_refused(hits: float, n: int) -> None:
    for ours in (wilson, clopper_pearson):
        with pytest.raises(UsageError, match=r"successes must lie in 0\.\.n"):
            ours(hits, n)  # type: ignore[operator]
