"""Label mixing: how often the target is another sample, and that it never leaves the class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap, TargetSampler
from tests.cases import cases
from tests.models.made import LAWS, Labels, uneven_labels

SIZES = (1, 2, 3, 40, 954, 1000)  # 1,999 samples have another one of their class
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
SURE = 1 - 1e-6  # how often a right count lies within its bounds


def draw(labels: np.ndarray, alpha: float, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return TargetSampler(IndexMap(labels), alpha).draw(seed, epoch).numpy()


@LAWS
@given(uneven_labels(), st.floats(0, 1), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_a_target_is_a_sample_of_the_same_class(made: Labels, alpha: float, seed: int, epoch: int) -> None:
    target = TargetSampler(made.index_map, alpha).draw(seed, epoch)
    assert target.dtype == torch.int64
    assert target.shape == (len(made.labels),)
    assert (made.labels[target.numpy()] == made.labels).all()
    alone = np.bincount(made.labels)[made.labels] == 1
    assert (target.numpy()[alone] == np.flatnonzero(alone)).all()


@LAWS
@given(uneven_labels(), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_alpha_0_is_the_sample_itself_and_alpha_1_never(made: Labels, seed: int, epoch: int) -> None:
    own = np.arange(len(made.labels))
    assert (TargetSampler(made.index_map, 0.0).draw(seed, epoch).numpy() == own).all()
    others = np.bincount(made.labels)[made.labels] > 1
    assert (TargetSampler(made.index_map, 1.0).draw(seed, epoch).numpy() != own)[others].all()


@cases("alpha", [0.01, 0.1, 0.3, 0.5, 0.9, 0.99])
@cases("seed", [0, 1, 2**62])
def test_the_target_is_another_as_often_as_alpha_says(alpha: float, seed: int) -> None:
    """P(target = self) = 1 - alpha, over all samples and within a class of two, classes of one aside."""
    sampler, own, epochs = TargetSampler(IndexMap(LABELS), alpha), np.arange(len(LABELS)), 60
    kept = np.stack([sampler.draw(seed, epoch).numpy() == own for epoch in range(epochs)])
    for size in SIZES[1:]:
        cells = kept[:, np.bincount(LABELS)[LABELS] == size]
        low, high = binom.interval(SURE, cells.size, 1 - alpha)
        assert low <= cells.sum() <= high
    # one sample over the epochs: the draws of epochs are independent, none is kept or moved for ever
    low, high = binom.interval(1 - 1e-9, epochs, 1 - alpha)
    several = kept[:, np.bincount(LABELS)[LABELS] > 1].sum(0)
    assert low <= several.min()
    assert several.max() <= high


def test_all_others_of_the_class_are_equally_likely() -> None:
    labels = np.array([0, 1, 0, 0, 1, 0, 0])
    sampler, epochs = TargetSampler(IndexMap(labels), 0.8), 2000
    counts = np.zeros((7, 7), int)
    for epoch in range(epochs):
        counts[np.arange(7), sampler.draw(3, epoch).numpy()] += 1
    for i in range(7):
        for j in range(7):
            others = (labels == labels[i]).sum() - 1
            chance = 0.0 if labels[i] != labels[j] else (0.2 if i == j else 0.8 / others)
            low, high = binom.interval(SURE, epochs, chance) if chance else (0, 0)
            assert low <= counts[i, j] <= high, (i, j)


def test_it_is_a_function_of_seed_and_epoch_alone() -> None:
    sampler = TargetSampler(IndexMap(LABELS), 0.5)
    late = sampler.draw(7, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        before = torch.random.get_rng_state()
        sampler.draw(7, 4)
        assert torch.equal(torch.random.get_rng_state(), before)  # the caller's randomness is not used
    assert torch.equal(sampler.draw(7, 5), late)
    assert (draw(LABELS, 0.5, 7, 5) == late.numpy()).all()
    assert (draw(LABELS, 0.5, 7, 6) != late.numpy()).mean() > 0.3
    assert (draw(LABELS, 0.5, 8, 5) != late.numpy()).mean() > 0.3
    assert (draw(LABELS, 0.5, 5, 7) != late.numpy()).mean() > 0.3


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf")])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match=r"alpha must lie in \[0, 1\]"):
        TargetSampler(IndexMap([0, 0]), alpha)
