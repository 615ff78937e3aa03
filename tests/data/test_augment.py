"""Changed copies that keep their index: what each change does, and that a copy depends on its sample alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provnet.data.modalities.augment import POLICIES, Policy, augment
from tests.cases import cases
from tests.data.augmented import EVERYTHING, alike, made, pictures


@pytest.mark.parametrize("policy", [*POLICIES.values(), EVERYTHING], ids=[*POLICIES, "everything"])
@given(rows=st.lists(st.integers(0, 39), min_size=1, max_size=12), epoch=st.integers(0, 2**40), seed=st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_a_copy_depends_on_its_sample_alone(policy: Policy, rows: list[int], epoch: int, seed: int) -> None:
    images, index = pictures(40, 3, 16, 18), torch.arange(40) * 7 + 2**40
    whole = augment(images, index, policy, seed=seed, epoch=epoch)
    some = torch.tensor(rows)  # permuted, repeated, other batch mates
    assert torch.equal(augment(images[some], index[some], policy, seed=seed, epoch=epoch), whole[some])
    pieces = [
        augment(a, b, policy, seed=seed, epoch=epoch) for a, b in zip(images.split(7), index.split(7), strict=True)
    ]
    assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.parametrize("name", ["tiny", "noise", "digits", "photos"])
def test_another_seed_epoch_or_index_gives_another_copy(name: str) -> None:
    images, index = alike(pictures(1, 1, 28, 28)[0], 200), torch.arange(200)
    policy = replace(POLICIES[name], keep=0.0)
    here = augment(images, index, policy, seed=0, epoch=0)
    for other in (
        augment(images, index, policy, seed=1, epoch=0),
        augment(images, index, policy, seed=0, epoch=1),
        augment(images, index + 200, policy, seed=0, epoch=0),
        augment(images, index + 2**32, policy, seed=0, epoch=0),
        here.roll(1, 0),
    ):
        assert (here != other).flatten(1).any(1).float().mean() > 0.98


@cases("shape", [(1, 28, 28), (3, 32, 32), (3, 17, 40), (1, 16, 16)])
@cases("name", ["digits", "photos"])
def test_bytes_in_and_bytes_out(shape: tuple[int, ...], name: str) -> None:
    images = pictures(50, *shape)
    before = images.clone()
    out = made(images, name)
    assert (out.dtype, out.shape, out.is_contiguous()) == (torch.uint8, images.shape, True)
    assert torch.equal(images, before)  # the samples themselves stay as they were
    assert not torch.equal(out, images)


@pytest.mark.parametrize(
    "policy", [Policy(), POLICIES["none"], replace(EVERYTHING, keep=1.0), Policy(erase=0.5, erase_share=0.0)]
)
def test_the_identity_gives_the_very_same_values(policy: Policy) -> None:
    images = pictures(20, 3, 32, 32)
    assert policy.idle
    assert torch.equal(made(images, policy), images)


@pytest.mark.parametrize("fill", ["zero", "reflect"])
def test_a_warp_of_nothing_is_exact(fill: str) -> None:
    images = pictures(64, 3, 15, 20)
    still = Policy(scale=(0.5, 2.0), rotate=45.0, warp_share=1e-9, fill=fill)  # interpolates, between equal places
    assert still.warps
    assert torch.equal(made(images, still), images)
    moved = Policy(shift=2, flip=True, fill=fill)
    assert torch.equal(made(images, replace(moved, rotate=9.0, warp_share=1e-9)), made(images, moved))


def test_the_share_kept_is_exact_and_changes_with_the_epoch() -> None:
    images = pictures(4_000, 1, 8, 8)
    policy = Policy(noise=1.0, erase=0.5, shift=2, keep=0.3)
    kept = torch.stack([(made(images, policy, epoch=e) == images).flatten(1).all(1) for e in range(2)])
    assert abs(float(kept.float().mean()) - 0.3) < 4 * math.sqrt(0.3 * 0.7 / kept.numel())
    both = float((kept[0] & kept[1]).float().mean())
    assert abs(both - 0.09) < 0.02


@pytest.mark.parametrize("most", [1, 2, 4])
def test_shifts_are_whole_pixels_each_as_likely(most: int) -> None:
    picture = torch.zeros(1, 9, 9, dtype=torch.uint8)
    picture[0, 4, 4] = 200
    n, choices = 8_000, (2 * most + 1) ** 2
    out = made(alike(picture, n), Policy(shift=most))
    assert bool((out.flatten(1).sum(1) == 200).all())
    counts = (out[:, 0] == 200).sum(0).double()
    inside = counts[4 - most : 5 + most, 4 - most : 5 + most]
    assert float(inside.sum()) == n
    assert float(((inside - n / choices) ** 2).sum() / (n / choices)) < choices - 1 + 4 * math.sqrt(2 * choices)


def test_what_comes_in_is_zero_or_the_reflection() -> None:
    row = torch.tensor([10, 20, 30, 40], dtype=torch.uint8)
    images = alike(row.expand(1, 4, 4), 300)
    zero = {tuple(p[0, 2].tolist()) for p in made(images, Policy(shift=2)) if p[0, 2].any()}
    assert zero == {(30, 40, 0, 0), (20, 30, 40, 0), (10, 20, 30, 40), (0, 10, 20, 30), (0, 0, 10, 20)}
    folded = {tuple(p[0, 2].tolist()) for p in made(images, Policy(shift=2, fill="reflect"))}
    assert folded == {(30, 40, 30, 20), (20, 30, 40, 30), (10, 20, 30, 40), (20, 10, 20, 30), (30, 20, 10, 20)}


def test_half_are_flipped_left_to_right_and_none_where_the_policy_says_so() -> None:
    images = pictures(4_000, 3, 6, 7)
    out = made(images, Policy(flip=True))
    same, mirrored = ((out == other).flatten(1).all(1) for other in (images, images.flip(3)))
    assert bool((same ^ mirrored).all())
    assert abs(float(mirrored.float().mean()) - 0.5) < 4 * 0.5 / math.sqrt(len(images))
    for name in ("tiny", "digits", "noise"):
        assert not POLICIES[name].flip
    ramp = alike((torch.arange(28) * 9).to(torch.uint8).expand(1, 28, 28), 500)
    for epoch in range(3):
        out = made(ramp, "digits", epoch=epoch).float()
        assert bool((out[..., 14:24].mean((1, 2, 3)) > out[..., 4:14].mean((1, 2, 3))).all())


def test_sigma_of_the_noise_is_uniform_up_to_its_bound() -> None:
    images = torch.full((3_000, 3, 16, 16), 128, dtype=torch.uint8)
    spread = made(images, Policy(noise=0.12)).float().flatten(1).std(1) / 255
    assert float(spread.max()) < 0.12 * 1.15
    assert abs(float(spread.mean()) - 0.06) < 0.003
    assert abs(float((spread < 0.03).float().mean()) - 0.25) < 0.04
    centre = made(images, Policy(noise=0.12)).float().mean()
    assert abs(float(centre) - 128) < 0.1


def test_noise_is_clamped_and_differs_between_pixels_and_channels() -> None:
    for value in (0, 255):
        out = made(torch.full((200, 3, 8, 8), value, dtype=torch.uint8), Policy(noise=1.0))
        assert abs(float((out == value).float().mean()) - 0.5) < 0.05  # no wrap-around
    out = made(torch.full((200, 3, 8, 8), 128, dtype=torch.uint8), Policy(noise=0.2)).float() - 128
    assert abs(float(torch.corrcoef(torch.stack([out[:, 0].flatten(), out[:, 1].flatten()]))[0, 1])) < 0.04


@pytest.mark.parametrize("fill", ["zero", "mean"])
def test_erasing_covers_one_rectangle_within_its_share(fill: str) -> None:
    images = pictures(1_000, 3, 20, 30) // 2 + 100
    out = made(images, Policy(erase=0.25, erase_fill=fill, erase_share=0.5))
    colour = torch.zeros(1_000, 3) if fill == "zero" else images.float().mean((2, 3)).round()
    covered = (out == colour[:, :, None, None]).all(1) & (out != images).any(1)
    area = covered.flatten(1).float().mean(1)
    assert float(area.max()) <= 0.25
    assert float(area.max()) > 0.1
    assert 0.35 < float((area > 0).float().mean()) <= 0.54  # half, less those too small for one pixel
    untouched = ~covered[:, None].expand_as(images)
    assert torch.equal(out[untouched], images[untouched])
    boxes = covered.any(2).sum(1) * covered.any(1).sum(1)  # columns times rows
    assert bool((covered.flatten(1).sum(1) >= 0.98 * boxes).all())  # a pixel may have had the mean already
    middle = covered.float().mean(0)
    assert float(middle[10, 15]) > float(middle[0, 0]) > 0  # everywhere, corners too


def test_brightness_and_contrast_stay_within_bounds() -> None:
    images = torch.full((2_000, 3, 4, 4), 100, dtype=torch.uint8)
    images[..., 2:] = 140
    lighter = made(images, Policy(brightness=0.1)).float()
    offset = lighter.mean((1, 2, 3)) - 120
    assert bool((lighter[..., 2:] - lighter[..., :2] == 40).all())
    assert 24 < float(offset.max()) <= 26
    assert -26 <= float(offset.min()) < -24
    assert abs(float(offset.mean())) < 1.5
    stretched = made(images, Policy(contrast=0.5)).float()
    spread = stretched[:, 0, 0, 3] - stretched[:, 0, 0, 0]
    assert 58 < float(spread.max()) <= 60
    assert 20 <= float(spread.min()) < 22
    assert float((stretched.mean((1, 2, 3)) - 120).abs().max()) <= 1


def test_warps_turn_and_resize_about_the_middle() -> None:
    axis = torch.arange(33).float() - 16
    disc = ((axis[:, None] ** 2 + axis**2) < 64).to(torch.uint8) * 200  # radius 8
    area = made(alike(disc[None], 500), Policy(scale=(0.5, 1.5))).float().sum((1, 2, 3)) / (disc.float().sum())
    assert float(area.min()) == pytest.approx(0.25, abs=0.03)
    assert float(area.max()) == pytest.approx(2.25, abs=0.1)
    assert float(area.sqrt().mean()) == pytest.approx(1.0, abs=0.05)
    turned = made(alike(disc[None], 100), Policy(rotate=90.0)).float()
    assert float((turned.sum((1, 2, 3)) / disc.float().sum() - 1).abs().max()) < 0.01
    bar = (axis.abs() < 2)[:, None].expand(33, 33).to(torch.uint8) * 200  # lying
    right = made(alike(bar[None], 2_000), Policy(rotate=30.0, fill="reflect")).float()[:, 0, :, 26]
    height = (right * axis).sum(1) / right.sum(1)  # of the bar, ten columns right of the middle: 10 tan(angle)
    angle = (height / 10).atan().rad2deg()
    assert 28 < float(angle.max()) < 31.5
    assert -31.5 < float(angle.min()) < -28
    assert abs(float(angle.mean())) < 2


def test_vectors_get_noise_in_units_of_their_spread() -> None:
    values, std = torch.zeros(3_000, 4), torch.tensor([1.0, 10.0, 0.1, 0.0])
    index = torch.arange(3_000)
    out = augment(values, index, Policy(noise=0.3, shift=2, flip=True), seed=0, epoch=0, std=std)
    assert out.dtype == torch.float32
    expected = 0.3 / math.sqrt(3)  # sigma is uniform from 0 to 0.3
    assert (out.std(0)[:3] / std[:3]).tolist() == pytest.approx([expected] * 3, rel=0.06)
    assert bool((out[:, 3] == 0).all())
    plain = augment(values, index, "noise", seed=0, epoch=0)
    assert float((plain == 0).all(1).float().mean()) == pytest.approx(POLICIES["noise"].keep, abs=0.03)
    some = torch.tensor([5, 2_999, 5])
    assert torch.equal(augment(values[some], some, "noise", seed=0, epoch=0), plain[some])
    assert augment(values.double(), index, "noise", seed=0, epoch=0).dtype == torch.float64
    assert torch.equal(augment(values, index, Policy(shift=1), seed=0, epoch=0), values)


def test_pictures_of_floats_get_noise_alone() -> None:
    images = pictures(100, 1, 9, 9).float() * 10 - 700
    out = augment(images, torch.arange(100), replace(POLICIES["digits"], noise=1e-4, keep=0), seed=0, epoch=0)
    assert 0 < float((out - images).abs().max()) < 1e-3


def test_no_samples_give_no_copies() -> None:
    assert made(pictures(0, 3, 8, 8), "photos").shape == (0, 3, 8, 8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize("policy", [*POLICIES.values(), EVERYTHING, replace(EVERYTHING, fill="zero")])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_a_gpu_gives_the_bytes_of_the_cpu(policy: Policy, shape: tuple[int, ...]) -> None:
    images, index = pictures(5_000, *shape), torch.arange(5_000) + 2**40
    for epoch in range(3):
        here = augment(images, index, policy, seed=5, epoch=epoch)
        there = augment(images.cuda(), index.cuda(), policy, seed=5, epoch=epoch)
        assert there.is_cuda
        assert torch.equal(there.cpu(), here)
    values = images.float().flatten(1)
    here = augment(values, index, policy, seed=5, epoch=0)
    assert torch.equal(augment(values.cuda(), index.cuda(), policy, seed=5, epoch=0).cpu(), here)


def test_noise_comes_to_its_share_of_the_samples() -> None:
    out = made(torch.full((2000, 1, 6, 6), 128, dtype=torch.uint8), Policy(noise=1.0, noise_share=0.3))
    assert float((out != 128).flatten(1).any(1).float().mean()) == pytest.approx(0.3, abs=0.04)
    assert Policy(noise=0.5, noise_share=0.0).idle
