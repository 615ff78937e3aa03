"""Intervals of rates against scipy's and against their exact coverage; what is said where nothing is to be counted."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc
from scipy.stats import binom, binomtest, norm
from scipy.stats import t as student

from provnet.base.errors import UsageError
from provnet.base.stats import Interval, beta_quantile, beta_share, clopper_pearson, t_quantile, wilson
from tests.models.made import LAWS


@LAWS
@given(st.integers(1, 10_000_000), st.floats(0, 1))
def test_it_is_scipys(n: int, share: float) -> None:
    hits = round(share * n)
    found = wilson(hits, n)
    wanted = binomtest(hits, n).proportion_ci(method="wilson")
    assert found.value == hits / n
    assert found.n == n
    assert found.low == pytest.approx(wanted.low, abs=1e-9)
    assert found.high == pytest.approx(wanted.high, abs=1e-9)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.27753),  # z^2 / (n + z^2)
        (10, 10, 0.72247, 1.0),
        (1, 1, 0.20654, 1.0),
        (5, 10, 0.23659, 0.76341),
        (15, 148, 0.06240, 0.16050),  # Newcombe 1998
    ],
)
def test_known_values(hits: int, n: int, low: float, high: float) -> None:
    found = wilson(hits, n)
    assert found.low == pytest.approx(low, abs=2e-4)
    assert found.high == pytest.approx(high, abs=2e-4)


@LAWS
@given(st.integers(1, 1_000_000), st.floats(0, 1))
def test_it_lies_within_0_and_1_and_mirrors(n: int, share: float) -> None:
    hits = round(share * n)
    found, mirrored = wilson(hits, n), wilson(n - hits, n)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low < found.high <= 1
    assert mirrored.high == pytest.approx(1 - found.low, abs=1e-12)
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-12)


def test_more_samples_make_it_narrower() -> None:
    widths = [w.high - w.low for w in (wilson(9 * n, 10 * n) for n in (1, 10, 100, 1000))]  # type: ignore[operator]
    assert widths == sorted(widths, reverse=True)


def test_no_samples_have_no_value() -> None:
    nothing = wilson(0, 0)
    assert nothing.to_json() == {"value": None, "n": 0, "low": None, "high": None}
    assert str(nothing) == "no samples (n = 0)"
    assert json.loads(json.dumps(nothing.to_json(), allow_nan=False)) == nothing.to_json()


def test_how_it_is_written() -> None:
    assert str(wilson(1999, 2000)) == "99.95% (99.72% to 99.99%, n = 2,000)"
    assert set(wilson(1, 3).to_json()) == {"value", "n", "low", "high"}


@pytest.mark.parametrize(("hits", "n"), [(1, 0), (-1, 5), (6, 5), (0, -1), (math.nan, 5), (math.inf, 5)])
def test_counts_that_cannot_be_are_refused(hits: float, n: int) -> None:
    with pytest.raises(UsageError, match=r"successes must lie in 0\.\.n"):
        wilson(hits, n)


@pytest.mark.parametrize("n", range(1, 200))
def test_the_interval_holds_its_rate(n: int) -> None:
    for hits in (0, n):
        found = wilson(hits, n)
        assert found.low <= found.value <= found.high


def chances(n: int, p: float) -> np.ndarray:
    """(n + 1,) binomial probabilities, from logs of factorials."""
    logs = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    k = np.arange(n + 1)
    return np.exp(logs[n] - logs[k] - logs[n - k] + k * math.log(p) + (n - k) * math.log1p(-p))


RATES = (0.001, 0.01, 0.037, 0.1, 0.2501, 0.4003, 0.5, 0.68, 0.9, 0.9701, 0.995)
COUNTS = (5, 10, 30, 100, 250, 1000)


@pytest.mark.parametrize("n", COUNTS)
def test_wilson_holds_the_rate_as_often_as_it_must(n: int) -> None:
    """Exact coverage of our interval, against the score test that it turns around: |k - np| <= z sqrt(np(1 - p))."""
    ends = [wilson(k, n) for k in range(n + 1)]
    for p in RATES:
        ours = chances(n, p)[[found.low <= p <= found.high for found in ends]].sum()  # type: ignore[operator]
        reach = norm.ppf(0.975) * math.sqrt(n * p * (1 - p))
        inside = [k for k in range(n + 1) if abs(k - n * p) <= reach]
        wanted = binom.pmf(inside, n, p).sum()
        assert ours == pytest.approx(wanted, abs=1e-3), (n, p)


@pytest.mark.parametrize("n", COUNTS[:-1])
def test_clopper_pearson_holds_the_rate_at_least_95_times_in_100(n: int) -> None:
    ends = [clopper_pearson(k, n) for k in range(n + 1)]
    for p in RATES:
        inside = [found.low <= p <= found.high for found in ends]  # type: ignore[operator]
        assert binom.pmf(np.flatnonzero(inside), n, p).sum() >= 0.95, (n, p)


@LAWS
@given(st.integers(1, 1_000_000), st.floats(0, 1))
def test_clopper_pearson_is_scipys(n: int, share: float) -> None:
    hits = round(share * n)
    found, wanted = clopper_pearson(hits, n), binomtest(hits, n).proportion_ci(method="exact")
    assert found.value == hits / n
    assert found.low == pytest.approx(wanted.low, abs=1e-8)
    assert found.high == pytest.approx(wanted.high, abs=1e-8)


@LAWS
@given(st.floats(0, 1), st.floats(0.5, 1e4), st.floats(0.5, 1e4))
def test_the_incomplete_beta_function_is_scipys(x: float, a: float, b: float) -> None:
    # so close to 1 that 1 - x has few digits, scipy's own value is off by some 1e-9
    assert beta_share(x, a, b) == pytest.approx(betainc(a, b, x), abs=1e-8 if x > 1 - 1e-9 else 1e-9)


@pytest.mark.parametrize("df", [1, 1.5, 3, 12.7, 400, 99_999, 1e7])
def test_students_quantile_is_scipys(df: float) -> None:
    assert t_quantile(df) == pytest.approx(student.ppf(0.975, df), rel=1e-4)


def test_nothing_and_nonsense() -> None:
    assert clopper_pearson(0, 0).value is None
    assert "why" not in clopper_pearson(3, 5).to_json()
    said = Interval(None, 7, None, None, "too few")
    assert said.to_json() == {"value": None, "n": 7, "low": None, "high": None, "why": "too few"}
    assert str(said) == "too few"
    with pytest.raises(UsageError, match=r"successes must lie in 0\.\.n"):
        clopper_pearson(3, 2)
    with pytest.raises(UsageError, match="above 0"):
        beta_quantile(0.5, 0, 1)
