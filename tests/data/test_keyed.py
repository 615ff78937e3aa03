"""The keyed random numbers: the hash is splitmix64 to the bit, and its numbers look random."""

from __future__ import annotations

import math

import pytest
import torch

from provnet.base.batches import AUGMENTATION, fold, normal, sample_keys, uniform, words

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
EDGES = [0, 1, 2, 59_999, 2**31 - 1, 2**31, 2**32 + 7, 2**40, 2**53 + 1, 2**62, 2**63 - 1]


def splitmix64(state: int) -> int:
    """Steele, Lea and Flood (2014), on whole numbers without a sign."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


def chi_square(counts: torch.Tensor) -> float:
    """How many standard deviations the chi-square statistic of equal bins lies from what is expected."""
    expected = counts.sum().double() / len(counts)
    freedom = len(counts) - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (7, 3), (2**63 - 1, 99_999)])
def test_int64_arithmetic_gives_the_bits_of_splitmix64(seed: int, epoch: int) -> None:
    keys = sample_keys(torch.tensor(EDGES), seed=seed, epoch=epoch)
    drawn = words(keys, 61, 6)
    for row, index in enumerate(EDGES):
        key = splitmix64((index * GOLDEN + fold(seed, epoch, AUGMENTATION)) & MASK)
        assert int(keys[row]) & MASK == key
        expected = [splitmix64((key + (61 + j + 1) * GOLDEN) & MASK) for j in range(6)]
        assert [int(word) & MASK for word in drawn[row]] == expected


def test_the_first_words_are_the_published_ones() -> None:
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # splitmix64 from state 0
    assert [int(word) & MASK for word in words(torch.tensor([0]), 0, 3)[0]] == published


def test_keys_of_seeds_epochs_and_indices_all_differ() -> None:
    index = torch.cat([torch.arange(2_000), torch.arange(2**40, 2**40 + 2_000)])
    keys = [sample_keys(index, seed=s, epoch=e) for s in range(3) for e in range(3)]
    assert len(torch.cat(keys).unique()) == 9 * len(index)


@pytest.mark.parametrize("start", [0, 2**40, 2**63 - 200_000])
def test_uniform_numbers_are_uniform(start: int) -> None:
    keys = sample_keys(torch.arange(20_000) + start, seed=1, epoch=2)
    drawn = uniform(keys, 0, 8)
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    for number in range(8):  # every purpose by itself, over neighbouring indices
        assert abs(chi_square(torch.histc(drawn[:, number].double(), 100, 0, 1))) < 4
    pairs = (drawn[:, 0] * 32).floor() * 32 + (drawn[:, 1] * 32).floor()  # two purposes of one sample
    assert abs(chi_square(torch.bincount(pairs.long(), minlength=1024).double())) < 4


def test_every_byte_of_a_word_is_uniform() -> None:
    drawn = words(sample_keys(torch.arange(2_000), seed=0, epoch=0), 64, 20)
    for place in range(8):
        lane = (drawn >> (8 * place)) & 255
        assert abs(chi_square(torch.bincount(lane.flatten(), minlength=256).double())) < 4.5


@pytest.mark.parametrize("lag", [1, 2, 64, 1024])
def test_neighbouring_indices_and_pixels_are_not_correlated(lag: int) -> None:
    drawn = normal(sample_keys(torch.arange(1_500), seed=3, epoch=1), 64, 1_200).double()
    samples = (drawn[lag:, :64] * drawn[:-lag, :64]).mean() * math.sqrt(drawn[lag:, :64].numel())
    pixels = (drawn[:, lag:] * drawn[:, :-lag]).mean() * math.sqrt(drawn[:, lag:].numel())
    assert abs(float(samples)) < 4
    assert abs(float(pixels)) < 4


def test_neighbouring_seeds_and_epochs_are_not_correlated() -> None:
    index = torch.arange(50_000)
    here, next_epoch, next_seed = (
        uniform(sample_keys(index, seed=seed, epoch=epoch), 0, 1)[:, 0] - 0.5
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    )
    for other in (next_epoch, next_seed):
        assert abs(float((here * other).mean()) * 12 * math.sqrt(len(index))) < 4


def test_one_flipped_bit_of_an_index_changes_half_of_the_bits() -> None:
    index = torch.arange(500)
    here = words(sample_keys(index, seed=0, epoch=0), 0, 1)[:, 0]
    for bit in (0, 1, 17, 40, 62):
        changed = here ^ words(sample_keys(index ^ (1 << bit), seed=0, epoch=0), 0, 1)[:, 0]
        ones = sum(((changed >> place) & 1).sum() for place in range(64))
        assert abs(float(ones) / (64 * len(index)) - 0.5) < 4 * 0.5 / math.sqrt(64 * len(index))


def test_normal_numbers_are_normal() -> None:
    drawn = normal(sample_keys(torch.arange(2_000), seed=0, epoch=0), 64, 503).double()  # not a multiple of four
    assert drawn.shape == (2_000, 503)
    assert abs(float(drawn.mean())) < 4 / math.sqrt(drawn.numel())
    assert abs(float(drawn.std()) - 1) < 0.003
    assert abs(float((drawn**4).mean()) - 3) < 0.03
    assert abs(float((drawn.abs() > 2).double().mean()) - 0.0455) < 0.001
    assert 4 < float(drawn.abs().max()) < 4.5
