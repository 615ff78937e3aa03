"""The copy ratio: near-copies of every kind are found, fresh pictures are not, duplicates hide nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import provnet
from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.tools.copies.compute import nearest, nearest_features, nearest_pixels
from provnet.tools.copies.near_copies import (
    Calibration,
    blur,
    calibrate_copies,
    copy_ratios,
    levels_of,
    shift_each_way,
    shrink,
)
from tests.cases import cases

DIGITS = provnet.open_data("embedded", limit=1000).images
TRAIN, HELD, FRESH = DIGITS[:300], DIGITS[500:650], DIGITS[800:900]
SOME = TRAIN[:30]


def blur_bytes(images: Tensor) -> Tensor:
    return blur(images.float(), 1.0).round().to(torch.uint8)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate_copies(TRAIN, HELD, false_alarms=0.01)


@cases(
    ("name", "copies"),
    [
        ("same", SOME),
        ("noise", add_noise(SOME, 0)),
        ("shift", shift(SOME, 0)),
        ("jpeg", jpeg(SOME, 50)),
        ("blur", blur_bytes(SOME)),
        ("dim", (SOME.float() * 0.6 + 30).to(torch.uint8)),
        ("all at once", add_noise(shift(blur_bytes(SOME), 1), 2, 0.05)),
    ],
)
def test_copies_are_found_and_named(name: str, copies: Tensor, calibration: Calibration) -> None:
    found = copy_ratios(copies, TRAIN)
    assert (found.row == np.arange(len(SOME))).mean() >= 0.96, name
    assert (calibration.score(found) <= calibration.threshold).mean() >= 0.93, name


@pytest.mark.parametrize(
    "images", [FRESH, blur_bytes(FRESH), add_noise(FRESH, 0, 0.2)], ids=["plain", "blurred", "noisy"]
)
def test_fresh_pictures_are_left_alone(images: Tensor, calibration: Calibration) -> None:
    flagged = calibration.score(copy_ratios(images, TRAIN)) <= calibration.threshold
    assert flagged.mean() <= 0.05  # 1 % is stated; more than five in a hundred would happen once in 2,000 tries


def test_a_mean_of_pictures_is_near_all_and_a_copy_of_none(calibration: Calibration) -> None:
    """The trap: what is blurred to the middle has small pixel distances."""
    means = torch.stack([TRAIN[start::5].float().mean(0) for start in range(5)]).to(torch.uint8)
    near = nearest_pixels(means, TRAIN).distance.mean()
    assert near < nearest_pixels(FRESH, TRAIN).distance.mean() * 1.1
    assert not (calibration.score(copy_ratios(means, TRAIN)) <= calibration.threshold).any()


def test_duplicates_in_the_training_data_hide_no_copy(calibration: Calibration) -> None:
    twice = torch.cat([TRAIN, add_noise(TRAIN[:1].repeat(12, 1, 1, 1), 3, 0.03)])
    copy = copy_ratios(add_noise(TRAIN[:1], 5, 0.05), twice)
    assert copy.ratio[0] < calibration.threshold
    assert copy.row[0] == 0 or copy.row[0] >= len(TRAIN)


def test_strangers_are_no_copies(calibration: Calibration) -> None:
    noise = torch.randint(0, 256, (30, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert not (calibration.score(copy_ratios(noise, TRAIN)) <= calibration.threshold).any()


def test_a_sample_is_not_its_own_copy_nor_that_of_its_duplicate() -> None:
    doubled = torch.cat([TRAIN[:60], TRAIN[:3]])
    groups = np.concatenate([np.arange(60), np.arange(3)])
    found = copy_ratios(doubled[:3], doubled, groups=groups, own=groups[:3])
    assert (groups[found.row] != groups[:3]).all()
    assert (copy_ratios(doubled[:3], doubled).ratio < 1e-3).all()


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = copy_ratios(FRESH[:20], TRAIN)
    monkeypatch.setattr("provnet.tools.copies.near_copies.QUERIES", 7)
    monkeypatch.setattr("provnet.tools.copies.near_copies.KEYS", 64)
    parts = copy_ratios(FRESH[:20], TRAIN)
    assert (whole.row == parts.row).all()
    np.testing.assert_allclose(whole.ratio, parts.ratio, atol=1e-4)


def test_vectors_colours_and_large_pictures() -> None:
    draw = torch.Generator().manual_seed(1)
    for shape in ((30,), (3, 40, 36)):
        training = torch.rand((50, *shape), generator=draw)
        found = copy_ratios(training[4:6] + 0.01 * torch.rand((2, *shape), generator=draw), training)
        assert found.row.tolist() == [4, 5]
        assert (found.ratio < 0.2).all()
    assert len(levels_of(torch.zeros(1, 5))) == 1
    assert len(shift_each_way(shrink(torch.zeros(1, 1, 4, 4)))) == 1


def test_one_training_picture_gives_no_ratio() -> None:
    assert copy_ratios(FRESH[:2], TRAIN[:1]).ratio.tolist() == [1.0, 1.0]


def test_the_threshold_keeps_the_stated_rate() -> None:
    scores = np.sort(np.random.default_rng(0).random(999))
    one = Calibration(scores, 0.0, 0.01, "")
    assert one.p_value(np.array([one.threshold]))[0] <= 0.01
    assert one.p_value(np.array([scores[9]]))[0] > 0.01
    assert (scores <= one.threshold).sum() == 9
    few = Calibration(scores[:50], 0.0, 0.01, "")
    assert not few.enough
    assert few.threshold < 0
    assert few.to_json()["threshold"] is None


def test_leave_one_out_is_close_to_held_out(calibration: Calibration) -> None:
    alone = calibrate_copies(TRAIN, None, false_alarms=0.01, most=150)
    assert "each against all others" in alone.about
    assert abs(np.median(alone.scores) - np.median(calibration.scores)) < 0.08


def test_nearest_is_the_nearest() -> None:
    draw = torch.Generator().manual_seed(2)
    queries, keys = torch.randn(30, 6, generator=draw), torch.randn(70, 6, generator=draw)
    apart = torch.cdist(queries.double(), keys.double()).sort(1)
    found = nearest(queries, keys)
    assert (found.row == apart.indices[:, 0].numpy()).all()
    np.testing.assert_allclose(found.distance, apart.values[:, 0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.following, apart.values[:, 1].numpy(), rtol=1e-6)
    assert np.isinf(nearest(queries, keys[:1]).following).all()
    assert nearest_features(3 * keys[:2].numpy(), keys.numpy()).distance == pytest.approx(0, abs=1e-3)


def test_nearest_is_exact_far_from_zero_and_for_equal_keys() -> None:
    draw = np.random.default_rng(0)
    far = torch.from_numpy((1000 + 0.05 * draw.normal(size=(500, 16))).astype("f4"))
    both = torch.cat([far, far - 2000])  # no mean is near to all of them
    for keys in (far, both):
        assert (nearest(keys, keys).row == np.arange(len(keys))).all()
    keys = torch.cat([far[:40], far[7:8].expand(60, -1)])  # more equal ones than candidates
    found = nearest(keys[[7, 70]] + 1e-3, keys)
    assert found.row.tolist() == [7, 7]
    assert (found.distance == found.following).all()
    single = nearest(far[:3], far[7:8].expand(2, -1))
    assert (single.row == 0).all()


def test_nearest_names_what_is_not_finite() -> None:
    keys = torch.zeros(5, 2)
    keys[3, 1] = torch.inf
    with pytest.raises(NonFiniteError, match="training sample 3 holds NaN"):
        nearest(torch.zeros(1, 2), keys)
    with pytest.raises(NonFiniteError, match="image 3 holds NaN"):
        nearest(keys, torch.zeros(1, 2))


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        copy_ratios(TRAIN[:0], TRAIN)
    with pytest.raises(UsageError, match="cannot be compared"):
        copy_ratios(TRAIN[:1, :, :20], TRAIN)
    with pytest.raises(NonFiniteError, match="NaN"):
        copy_ratios(torch.full((1, 1, 28, 28), torch.nan), TRAIN.float())
    with pytest.raises(UsageError, match="false alarms"):
        calibrate_copies(TRAIN, HELD, false_alarms=0.7)
    with pytest.raises(UsageError, match="nothing to compare"):
        nearest(torch.zeros(0, 2), torch.zeros(3, 2))
