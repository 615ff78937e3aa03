"""The order of training: every sample once an epoch, a function of (seed, epoch) alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provnet.base.batches import bounds, fold, keyed_generator, order, steps_before
from provnet.base.errors import UsageError
from tests.models.made import LAWS


@LAWS
@given(st.integers(1, 300), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_an_epoch_shows_every_sample_once(n: int, seed: int, epoch: int) -> None:
    one = order(n, seed, epoch)
    assert sorted(one.tolist()) == list(range(n))
    assert one.dtype == torch.int64
    assert torch.equal(order(n, seed, epoch), one)


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(order(50, seed, epoch).tolist()) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def test_the_callers_randomness_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    order(50, 1, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


@LAWS
@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 8))
def test_batches_cover_everything_and_none_is_too_small(n: int, batch: int, least: int) -> None:
    found = bounds(n, batch, least)
    assert [i for start, end in found for i in range(start, end)] == list(range(n))
    sizes = [end - start for start, end in found]
    assert all(size == batch for size in sizes[:-1])
    assert sizes[-1] < batch + least
    if len(sizes) > 1 and batch >= least:
        assert sizes[-1] >= least


@LAWS
@given(st.integers(8, 60), st.integers(8, 16), st.integers(1, 4), st.integers(1, 4), st.integers(0, 30))
def test_other_processes_go_on_after_the_same_samples(n: int, batch: int, a: int, b: int, at: int) -> None:
    before, now = bounds(n, batch, 2 * a), bounds(n, batch, 2 * b)
    epochs, batches = divmod(at, len(before))
    seen = before[batches - 1][1] if batches else 0
    cuts = [0, *(end for _, end in now[:-1])]  # where one may go on within an epoch
    if seen not in cuts:
        with pytest.raises(UsageError, match="number of processes of the checkpoint"):
            steps_before((epochs, batches), before, now)
        return
    step = steps_before((epochs, batches), before, now)
    assert divmod(step, len(now)) == (epochs, cuts.index(seen))
    if a == b:
        assert step == at


def test_keys_do_not_meet() -> None:
    keys = [key for length in (1, 2, 3) for key in itertools.product((0, 1, 2, 11, 12, -1, 2**63 - 1), repeat=length)]
    folded = [fold(*key) for key in keys]
    assert len(set(folded)) == len(keys)
    assert all(0 <= value < 2**63 for value in folded)
    numbers = [float(torch.rand((), generator=keyed_generator(*key))) for key in keys[:50]]
    assert len(set(numbers)) == 50
