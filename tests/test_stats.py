"""Wilson intervals against scipy's, and what is said where there is nothing to count."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from provnet.errors import UsageError
from provnet.stats import wilson
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
