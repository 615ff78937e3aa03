"""Support: minus the Mahalanobis distance from the class that is claimed, also where there is no spread to measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import mahalanobis

from provnet.heads.support import (
    ALONE,
    DIM,
    FLOOR,
    LOOKS,
    MANY,
    RANK,
    Support,
    looks_of,
    measure_held_out,
    place_in_class,
)
from tests.cases import cases

from .made import LAWS


def clouds(n: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that lie apart and share one uneven spread."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(width, width)))
    mixing = np.geomspace(1, 4, width)[:, None] * turned
    labels = np.arange(n) % classes
    centres = rng.normal(size=(classes, width)) * 10
    return (centres[labels] + rng.normal(size=(n, width)) @ mixing).astype(np.float32), labels


def fitted(x: np.ndarray, labels: np.ndarray, classes: int) -> Support:
    torch.manual_seed(0)
    support = Support(classes, x.shape[1])
    support.fit(torch.from_numpy(x), torch.from_numpy(labels))
    return support


def distance(support: Support, queries: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.asarray(-support(torch.from_numpy(queries), torch.from_numpy(labels)).numpy())


def means(x: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    return np.stack([x[labels == c].astype(np.float64).mean(0) for c in range(classes)])


def evened(values: np.ndarray | float, mean: float, n: int, imagined: int) -> np.ndarray:
    """Variances as if so many samples more had been seen, spread evenly."""
    return np.asarray((n * np.asarray(values) + imagined * mean) / (n + imagined))


@LAWS
@given(st.integers(2, 8), st.integers(1, 4), st.integers(0, 2**16))
def test_it_is_the_mahalanobis_distance_where_all_directions_are_kept(width: int, classes: int, seed: int) -> None:
    x, labels = clouds(60 * classes, width, classes, seed)
    middle = means(x, labels, classes)
    away = x - middle[labels]
    spread = away.T @ away / len(x)  # one for all classes, about their own means
    inverse = np.linalg.inv(
        evened(spread, 0.0, len(x), width) + evened(0.0, np.trace(spread) / width, len(x), width) * np.eye(width)
    )
    queries, claimed = clouds(12, width, classes, seed + 1)
    found = distance(fitted(x, labels, classes), queries, claimed)
    wanted = [mahalanobis(q, middle[c], inverse) for q, c in zip(queries, claimed, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=5e-3)


def test_beyond_the_directions_kept_one_mean_variance_stands_for_the_rest() -> None:
    """A spectrum that falls by steps, so that the main directions are the same however they are found."""
    rng, width = np.random.default_rng(0), RANK + 40
    x = (rng.normal(size=(900, width)) * np.where(np.arange(width) < RANK, 8.0, 0.5)).astype(np.float32)
    labels = np.arange(900) % 2
    middle = means(x, labels, 2)
    away = x - middle[labels]
    values, vectors = np.linalg.eigh(away.T @ away / len(x))
    rest = evened(values[: width - RANK].mean(), values.mean(), len(x), RANK)
    values, main = evened(values, values.mean(), len(x), RANK), slice(width - RANK, width)
    queries, claimed = rng.normal(size=(20, width)).astype(np.float32) * 5, np.arange(20) % 2
    off = queries - middle[claimed]
    along = off @ vectors[:, main]
    wanted = np.sqrt((along**2 / values[main]).sum(1) + ((off**2).sum(1) - (along**2).sum(1)) / rest)
    np.testing.assert_allclose(distance(fitted(x, labels, 2), queries, claimed), wanted, rtol=0.02)


def test_directions_without_spread_count_as_a_thousandth_of_the_mean_variance() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((8000, 4), np.float32)  # so many that four imagined ones weigh less than the floor
    x[:, 0] = rng.normal(size=8000)
    total = float(((x - x.mean(0)) ** 2).sum(1).mean())
    middle = x.mean(0, dtype=np.float64).astype(np.float32)
    queries = middle + np.diag([1.0, 1.0, 2.0, 0.0]).astype(np.float32)
    found = distance(fitted(x, np.zeros(8000, np.int64), 1), queries, np.zeros(4, np.int64))
    wanted = [1 / np.sqrt(total), 1 / np.sqrt(FLOOR * total / 4), 2 / np.sqrt(FLOOR * total / 4), 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_class_is_measured_from_its_own_mean() -> None:
    x, labels = clouds(200, 5, 3)
    support = fitted(x, labels, 3)
    middle = means(x, labels, 3).astype(np.float32)
    grid = np.stack([distance(support, middle, np.full(3, c)) for c in range(3)])
    assert (np.diag(grid) < 1e-2).all()
    assert grid[~np.eye(3, dtype=bool)].min() > 1


@LAWS
@given(st.integers(0, 2**16), st.sampled_from([3, 40, 200]), st.integers(1, 3))
def test_the_farther_the_lower(seed: int, width: int, classes: int) -> None:
    x, labels = clouds(50, width, classes, seed)
    support = fitted(x, labels, classes)
    ray = np.random.default_rng(seed).normal(size=width).astype(np.float32)
    steps = np.geomspace(0.5, 1e4, 12, dtype=np.float32)[:, None]
    for label in range(classes):
        centre = support.mean[label].numpy()
        found = support(torch.from_numpy(centre + steps * ray), torch.full((12,), label))
        assert bool((found.diff() < 0).all())
        assert bool((found <= 0).all())


@cases(
    ("x", "labels", "classes"),
    [
        ([[3.0, -1.0, 2.0]], [0], 1),
        ([[3.0, -1.0, 2.0]], [1], 3),
        ([[0.0, 0.0, 0.0]], [0], 1),
        ([[5.0, 5.0, 5.0]] * 7, [0] * 7, 1),
        ([[5.0, 5.0, 5.0]] * 4 + [[-2.0, 0.0, 1.0]] * 3, [0] * 4 + [2] * 3, 3),
        ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [9.0, 0.0, 1.0]], [0, 1, 2], 4),
    ],
    ids=["one sample", "one sample of three classes", "zeros", "equal", "equal in each class", "classes of one"],
)
def test_without_spread_it_stays_a_number(x: list[list[float]], labels: list[int], classes: int) -> None:
    values, own = np.array(x, np.float32), np.array(labels)
    support = fitted(values, own, classes)
    assert np.abs(distance(support, values, own)).max() < 1e-2  # each lies at the mean of its class
    near, far = values + np.float32(0.1), values + np.float32(100)
    assert np.isfinite(distance(support, far, own)).all()
    assert (distance(support, far, own) > distance(support, near, own)).all()
    assert (distance(support, near, own) > 0).all()


def test_equal_samples_are_floored_by_their_own_size() -> None:
    support = fitted(np.full((6, 2), 5.0, np.float32), np.zeros(6, np.int64), 1)
    found = distance(support, np.array([[5.0, 6.0]], np.float32), np.array([0]))
    assert found[0] == pytest.approx(1 / np.sqrt(ALONE * 25), rel=1e-3)


def test_before_it_is_fitted_it_is_the_plain_distance_from_zero() -> None:
    queries = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    np.testing.assert_allclose(
        distance(Support(2, 5), queries, np.arange(6) % 2), np.linalg.norm(queries, axis=1), rtol=1e-5
    )


def test_the_scale_of_the_features_does_not_matter() -> None:
    x, labels = clouds(100, 6, 2)
    one = distance(fitted(x, labels, 2), x, labels)
    for factor in (1e-2, 1e3):
        scaled = (x * factor).astype(np.float32)
        np.testing.assert_allclose(distance(fitted(scaled, labels, 2), scaled, labels), one, rtol=1e-2)


@pytest.mark.parametrize("first", [(60, 5), (20, 200)])
def test_fitting_again_leaves_nothing_of_the_first_time(first: tuple[int, int]) -> None:
    n, width = first
    support = fitted(*clouds(n, width, 2), 2)
    x, labels = clouds(9, width, 2, seed=5)
    torch.manual_seed(0)
    support.fit(torch.from_numpy(x), torch.from_numpy(labels))
    fresh = fitted(x, labels, 2).state_dict()
    for name, value in support.state_dict().items():
        assert torch.equal(value, fresh[name]), name


def held(
    x: np.ndarray, labels: np.ndarray, classes: int, copies: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    torch.manual_seed(0)
    rows, own = torch.from_numpy(x), torch.from_numpy(labels)
    some = rows if copies is None else torch.from_numpy(copies)
    support, known = measure_held_out(rows, own, some, own[: len(some)], torch.arange(len(some)), classes)
    return -support.numpy(), known.numpy()


@pytest.mark.parametrize("n", [100, 200, 400])
def test_few_samples_are_as_far_as_unseen_ones_when_held_out(n: int) -> None:
    """More directions than samples: by a spread that was fitted to them all lie near, and equally so."""
    x, labels = clouds(n + 300, 256, 4)
    seen, unseen = slice(0, n), slice(n, None)
    support = fitted(x[seen], labels[seen], 4)
    fresh = distance(support, x[unseen], labels[unseen])
    own = distance(support, x[seen], labels[seen])
    assert (fresh <= np.quantile(own, 0.95)).mean() < 0.5
    assert (fresh <= np.quantile(held(x[seen], labels[seen], 4)[0], 0.95)).mean() > 0.9


@pytest.mark.parametrize("n", [60, 100, 200, MANY])
def test_an_odd_sample_is_far_however_few_and_uneven_the_classes_are(n: int) -> None:
    x, _ = clouds(n, 200, 1)
    labels = (np.arange(n) >= n // 10).astype(np.int64)  # one class of nine times the size of the other
    x[labels == 1] += 30
    odd = np.array([1, n // 2, n - 1])
    x[odd] = 3 * (x[odd] - x[labels == 0].mean(0)) + x[labels == 0].mean(0)
    found, known = held(x, labels, 2)
    assert known.all()
    assert set(np.argsort(-found)[:3]) == set(odd.tolist())
    rest = np.setdiff1d(np.arange(n), odd)
    sizes = [np.median(found[rest][labels[rest] == label]) for label in (0, 1)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.25)  # the size of its class makes no sample odd


def test_a_sample_takes_no_part_in_how_far_it_is() -> None:
    x, labels = clouds(50, 6, 2)
    one, _ = held(x, labels, 2)
    moved = x.copy()
    moved[7] += 1000
    other, _ = held(moved, labels, 2, copies=x)
    assert other[7] == pytest.approx(one[7], rel=1e-3)
    assert other[9] < one[9] / 2  # another is measured with it


def test_the_only_sample_of_its_class_is_not_measured_and_two_are() -> None:
    x, _ = clouds(24, 5, 1)
    labels = np.array([0] * 20 + [3, 3, 1, 2])
    found, known = held(x, labels, 5)
    assert known.tolist() == [True] * 22 + [False] * 2
    assert (found[~known] == 0).all()
    assert (found[known] > 0).all()
    alone, none = held(x[:1], labels[:1], 5)
    assert (alone.tolist(), none.tolist()) == ([0.0], [False])


@LAWS
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_the_place_in_its_class_counts_the_samples_before(labels: list[int]) -> None:
    wanted = [labels[:i].count(label) for i, label in enumerate(labels)]
    assert place_in_class(torch.tensor(labels)).tolist() == wanted


def test_looks_are_brightness_contrast_and_detail() -> None:
    pictures = np.random.default_rng(0).normal(size=(5, 3, 6, 7)).astype(np.float32) * 2 + 1
    found = looks_of(torch.from_numpy(pictures)).numpy()
    for row, picture in zip(found, pictures.astype(np.float64), strict=True):
        contrast = np.mean([channel.var() for channel in picture])
        steps = np.concatenate([np.diff(picture, axis=1).ravel(), np.diff(picture, axis=2).ravel()])
        wanted = [picture.mean(), np.log(contrast + DIM), np.log((steps**2).mean() + DIM)]
        np.testing.assert_allclose(row, wanted, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 9), (3, 9, 1)])
def test_looks_of_narrow_pictures_are_numbers(shape: tuple[int, ...]) -> None:
    found = looks_of(torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)))
    assert found.shape == (4, LOOKS)
    assert bool(torch.isfinite(found).all())


def test_the_larger_distance_counts_where_the_looks_were_measured() -> None:
    x, labels = clouds(100, 6, 2)
    support = fitted(x, labels, 2)
    features, claimed = torch.from_numpy(x[:4]), torch.from_numpy(labels[:4])
    looks = torch.tensor([[0.0] * LOOKS, [1.0] * LOOKS, [50.0] * LOOKS, [1e6] * LOOKS])
    by_features = support(features, claimed)
    assert torch.equal(support(features, claimed, looks), by_features)  # a run from before
    support.looks = fitted(*clouds(100, LOOKS, 1), 1)
    by_looks = support.looks(looks, torch.zeros(4, dtype=torch.int64))
    assert torch.equal(support(features, claimed, looks), torch.minimum(by_features, by_looks))
    assert torch.equal(support(features, claimed), by_features)  # latents have no looks
    support.looks.stretch(3.0)
    torch.testing.assert_close(support.looks(looks, torch.zeros(4, dtype=torch.int64)), 3 * by_looks)
