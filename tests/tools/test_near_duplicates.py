"""Equal and nearly equal pictures, and the same picture under different labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import provnet
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.tools.debug.duplicates import Duplicates, _around_one, duplicates
from provnet.tools.debug.signals import nearest_others
from tests.cases import cases


def grouped(images: torch.Tensor, labels: np.ndarray) -> Duplicates:
    data = provnet.open_data(images, labels, class_names=[str(i) for i in range(10)])
    near = nearest_others(F.normalize(images.flatten(1).float(), dim=1), 10)
    return duplicates(data.samples, data.images, near)


def base(n: int = 300) -> tuple[torch.Tensor, np.ndarray]:
    data = provnet.open_data("embedded", limit=n)
    return data.images, data.samples.labels


def test_different_digits_are_no_duplicates() -> None:
    found = grouped(*base())
    assert (found.group == -1).all()
    assert not found.exact.any()
    assert not found.conflict.any()


@cases(
    ("copy", "exact", "least"),
    [
        (lambda images: images, True, 12),
        (lambda images: add_noise(images, 0, 0.05), False, 11),
        (lambda images: shift(images, 0), False, 9),
        (jpeg, False, 11),
        (lambda images: (images.float() * 1.1).clamp(0, 255).to(torch.uint8), False, 11),
    ],
    ids=["same", "noise", "shift", "jpeg", "brighter"],
)
def test_copies_are_found(copy, exact: bool, least: int) -> None:  # type: ignore[no-untyped-def]
    images, labels = base()
    rows = np.arange(0, 240, 20) + np.arange(12) % 7
    both = torch.cat([images, copy(images[torch.from_numpy(rows)])])
    found = grouped(both, np.concatenate([labels, labels[rows]]))
    pairs = [(row, 300 + i) for i, row in enumerate(rows.tolist())]
    hits = sum(found.group[a] == found.group[b] != -1 for a, b in pairs)
    assert hits >= least
    assert not found.conflict.any()
    assert {bool(found.exact[b]) for _, b in pairs} == {exact}
    strangers = np.setdiff1d(np.arange(312), np.array(pairs).reshape(-1))
    assert (found.group[strangers] == -1).all()


def squares(n: int = 320) -> torch.Tensor:
    """Squares of few places and sizes, each in its own two greys: the same shape comes again and again."""
    chance = np.random.default_rng(0)
    images = np.empty((n, 1, 16, 16))
    for image in images:
        y, x, side = chance.integers(2, 7, 3)
        image[:] = chance.uniform(0, 90)
        image[0, y : y + side + 2, x : x + side + 2] = chance.uniform(140, 255)
    return torch.from_numpy((images + chance.normal(0, 2, images.shape)).clip(0, 255).astype(np.uint8))


def test_the_same_shape_in_other_greys_is_another_picture() -> None:
    images = squares()
    copies = images[:5] + 1  # slightly brighter
    found = grouped(torch.cat([images, copies]), np.zeros(325, dtype=np.int64))
    assert sum(found.group[i] == found.group[320 + i] != -1 for i in range(5)) == 5
    pixels = torch.cat([images, copies]).double().flatten(1)
    for number in range(int(found.group.max()) + 1):
        members = pixels[torch.from_numpy(found.members(number))]
        assert float(torch.cdist(members, members).max()) / 16 < 12  # RMS of 255
    assert (found.group[5:320] >= 0).mean() < 0.05


@pytest.mark.parametrize("reach", [1, 2, 3])
def test_a_chain_whose_ends_are_different_is_no_group(reach: int) -> None:
    chain = np.stack([np.arange(20), np.arange(1, 21)], 1)
    found = _around_one(chain, lambda one, other: np.abs(one - other) <= reach)
    assert len(found) > 20 / 3
    assert (np.abs(found[:, 0] - found[:, 1]) <= reach).all()
    middles, members = set(found[:, 0].tolist()), found[:, 1].tolist()
    assert len(set(members)) == len(members)  # a sample is in one group
    assert not middles & set(members)


def test_copies_of_one_picture_are_one_group() -> None:
    images, labels = base()
    copies = torch.cat([add_noise(images[5:6], seed, 0.03) for seed in range(9)])  # more than there are candidates
    found = grouped(torch.cat([images, copies]), np.concatenate([labels, np.full(9, labels[5])]))
    assert found.members(int(found.group[5])).tolist() == [5, *range(300, 309)]


def test_the_same_picture_under_two_labels_is_a_conflict() -> None:
    images, labels = base(100)
    both = torch.cat([images, images[7:8], images[9:10]])
    found = grouped(both, np.concatenate([labels, [(labels[7] + 1) % 10], [labels[9]]]))
    assert np.flatnonzero(found.conflict).tolist() == [7, 100]
    assert found.members(int(found.group[9])).tolist() == [9, 101]


@pytest.mark.parametrize("width", [4, 10])
@pytest.mark.parametrize("units", ["alike", "far apart"])
def test_rows_of_a_table_are_duplicates_only_where_they_are_equal(width: int, units: str) -> None:
    chance = np.random.default_rng(0)
    scale = np.ones(width) if units == "alike" else np.logspace(0, 3, width)
    values = torch.from_numpy((chance.normal(size=(500, width)) * scale).astype(np.float32))
    both = torch.cat([values, values[3:4]])
    found = grouped(both, chance.integers(0, 3, 501))
    assert np.flatnonzero(found.group >= 0).tolist() == [3, 500]
    assert np.flatnonzero(found.exact).tolist() == [3, 500]


def test_vectors_and_single_samples() -> None:
    values = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([values, values[:2]])
    data = provnet.open_data(twice, [0] * 32)
    found = duplicates(data.samples, data.images, nearest_others(F.normalize(twice, dim=1), 5))
    assert found.group[0] == found.group[30] != found.group[1] == found.group[31]
    one = provnet.open_data(values[:1], [0])
    assert duplicates(one.samples, one.images, nearest_others(values[:1], 5)).group.tolist() == [-1]
