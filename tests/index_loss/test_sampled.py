"""The loss over a random part of the keys."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.base.errors import UsageError
from tests.index_loss.made import Case, make, ours, plain, sampled, with_gradients


def drawn_keys(case: Case, rate: float, seed: int) -> Tensor:
    """Which keys the loss looks at, (N,) bool: those that make it NaN when they are."""
    found = []
    for row in range(len(case.keys)):
        keys = case.keys.clone()
        keys[row] = torch.nan
        found.append(bool(sampled(replace(case, keys=keys), rate, seed).loss.isnan().all()))
    return torch.tensor(found)


@settings(max_examples=40, deadline=None)
@given(b=st.integers(1, 9), n=st.integers(1, 30), rate=st.floats(0.01, 1), seed=st.integers(0, 2**16))
def test_the_targets_are_always_in_the_sample(b: int, n: int, rate: float, seed: int) -> None:
    case = make(b, n, seed=seed)
    drawn = drawn_keys(case, rate, seed)
    assert drawn[case.target].all()
    assert drawn.sum() == max(math.ceil(rate * n), min(b, n))


def test_the_other_keys_are_drawn_evenly() -> None:
    case = replace(make(2, 12), target=torch.tensor([3, 7]))
    times = torch.stack([drawn_keys(case, 0.5, seed) for seed in range(150)]).double().mean(0)
    others = torch.ones(12, dtype=torch.bool)
    others[case.target] = False
    assert times[case.target].tolist() == [1, 1]
    assert (times[others] - 0.4).abs().max() < 0.16  # 4 of 10, within four standard deviations


@settings(max_examples=40, deadline=None)
@given(b=st.integers(1, 9), n=st.integers(1, 30), rate=st.floats(0.01, 1), seed=st.integers(0, 2**16))
def test_a_sampled_loss_is_never_above_the_exact_one(b: int, n: int, rate: float, seed: int) -> None:
    case = make(b, n, seed=seed)
    some, exact = sampled(case, rate, seed), ours(case)
    assert (some.loss <= exact.loss + 1e-12).all()
    assert (some.hit >= exact.hit).all()


def test_a_sample_of_all_keys_is_exact() -> None:
    case = make(smoothing=0.1)
    found, gradients = with_gradients(lambda c: sampled(c, 1.0), case)
    wanted, wanted_gradients = with_gradients(ours, case)
    torch.testing.assert_close([*found, *gradients], [*wanted, *wanted_gradients])


def test_the_loss_of_a_sample_is_that_of_its_keys_alone() -> None:
    case = make(3, 20, smoothing=0.1)
    rows = drawn_keys(case, 0.3, seed=5).nonzero().squeeze(1)
    alone = replace(case, keys=case.keys[rows], target=torch.searchsorted(rows, case.target))
    torch.testing.assert_close(sampled(case, 0.3, seed=5), plain(alone))


def test_the_generator_decides_the_sample() -> None:
    case = make(2, 100)
    torch.testing.assert_close(sampled(case, 0.2, seed=1), sampled(case, 0.2, seed=1), rtol=0, atol=0)
    assert not torch.equal(sampled(case, 0.2, seed=1).loss, sampled(case, 0.2, seed=2).loss)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match=r"rate must lie in \(0, 1\]"):
        sampled(make(), rate)


def test_a_sampled_target_that_names_no_key_is_refused_before_the_draw() -> None:
    with pytest.raises(UsageError, match=r"targets must lie in \[0, 11\), got 11"):
        sampled(replace(make(), target=torch.full((5,), 11)), 0.5)
