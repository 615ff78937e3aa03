"""Noise, shift and JPEG: small changes that keep the row, the shape, the type and the range of every sample."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import provnet
from provnet.base.batches import keyed_generator
from provnet.base.errors import UsageError
from provnet.data.modalities import augment as distort
from provnet.data.modalities.augment import add_noise, jpeg, perturbations, shift, spread_of
from tests.cases import cases
from tests.models.made import LAWS

KINDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "noise": add_noise,
    "shift": shift,
    "jpeg": lambda images, seed: jpeg(images),
}
STEPS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


@pytest.fixture(scope="module")
def digits() -> Tensor:
    return provnet.open_data("embedded", limit=60).images


def random_pictures(n: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, channels, height, width), dtype=np.uint8))


@pytest.mark.parametrize("name", KINDS)
@LAWS
@given(n=st.integers(1, 5), channels=st.sampled_from([1, 3]), height=st.integers(1, 9), width=st.integers(1, 9))
def test_shape_type_and_input_are_kept(name: str, n: int, channels: int, height: int, width: int) -> None:
    images = random_pictures(n, channels, height, width)
    before = images.clone()
    out = KINDS[name](images, 3)
    assert out.shape == images.shape
    assert out.dtype == torch.uint8
    assert torch.equal(images, before)
    assert torch.equal(KINDS[name](images, 3), out)  # a function of pictures and seed


@pytest.mark.parametrize("name", ["noise", "jpeg"])
def test_a_copy_stays_nearest_to_its_own_row(name: str, digits: Tensor) -> None:
    copies = KINDS[name](digits, 0).flatten(1).float()
    nearest = torch.cdist(copies, digits.flatten(1).float()).argmin(1)
    assert nearest.tolist() == list(range(60))
    assert not torch.equal(copies, digits.flatten(1).float())


@pytest.mark.parametrize("name", ["noise", "shift"])
def test_another_seed_gives_another_copy_and_torchs_own_has_no_say(name: str, digits: Tensor) -> None:
    one = KINDS[name](digits, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        assert torch.equal(KINDS[name](digits, 0), one)
    assert not torch.equal(KINDS[name](digits, 1), one)


def test_noise_has_the_spread_that_is_asked_for() -> None:
    grey = torch.full((200, 1, 20, 20), 128, dtype=torch.uint8)
    for sigma in (0.02, 0.1):
        off = (add_noise(grey, 0, sigma).float() - 128) / 255
        assert float(off.std()) == pytest.approx(sigma, rel=0.02)
        assert abs(float(off.mean())) < 2e-3
    assert torch.equal(add_noise(grey, 0, sigma=0.0), grey)


def test_noise_is_clamped_and_never_wraps() -> None:
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 40, 40)
    black, white = add_noise(ends, 0).float()
    assert float(black.max()) < 255 * 0.6
    assert float(white.min()) > 255 * 0.4
    assert float((black == 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_noise_on_floats_follows_the_spread_of_each_feature() -> None:
    values = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 100.0, 0.0])
    out = add_noise(values, 0)
    assert out.dtype == torch.float32
    np.testing.assert_allclose((out - values).std(0).numpy(), [0.1, 10.0, 0.0], rtol=0.05)
    assert float(add_noise(values[:1], 0).sub(values[:1]).abs().max()) == 0  # one sample has no spread
    many = torch.cat([add_noise(values[row : row + 1], row, spread=spread_of(values)) for row in range(500)])
    np.testing.assert_allclose((many - values[:500]).std(0).numpy(), [0.1, 10.0, 0.0], rtol=0.15)
    assert torch.equal(add_noise(values, 0, spread=spread_of(values)), out)


@LAWS
@given(st.integers(1, 6), st.sampled_from([1, 3]), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_a_shift_is_one_of_eight_by_a_pixel(n: int, channels: int, height: int, width: int, seed: int) -> None:
    images = random_pictures(n, channels, height, width, seed)
    out = shift(images, seed).numpy()
    for row, picture in enumerate(images.numpy()):
        wanted = []
        for dy, dx in STEPS:
            moved = np.zeros_like(picture)
            for y in range(height):
                for x in range(width):
                    if 0 <= y + dy < height and 0 <= x + dx < width:
                        moved[:, y + dy, x + dx] = picture[:, y, x]
            wanted.append(moved)
        assert any(np.array_equal(out[row], moved) for moved in wanted)


def test_all_eight_directions_are_taken() -> None:
    dots = torch.zeros(400, 1, 3, 3, dtype=torch.float32)
    dots[:, :, 1, 1] = 1.0
    out = shift(dots, 0)
    assert out.dtype == torch.float32
    places = out.sum((0, 1))
    assert float(places[1, 1]) == 0
    assert float(places.flatten().sum()) == 400
    assert sorted(places.flatten().tolist())[1] > 20


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows_at_that_quality(channels: int, digits: Tensor) -> None:
    images = random_pictures(3, channels, 17, 11)
    for quality in (10, 50):
        out = jpeg(images, quality)
        for row, picture in enumerate(images.numpy()):
            buffer = io.BytesIO()
            plain = picture[0] if channels == 1 else np.moveaxis(picture, 0, 2)
            Image.fromarray(plain).save(buffer, "JPEG", quality=quality)
            back = np.asarray(Image.open(buffer))
            assert np.array_equal(out[row].numpy(), back[None] if channels == 1 else np.moveaxis(back, 2, 0))
    coarse, fine = (float((jpeg(digits, quality).float() - digits).abs().mean()) for quality in (10, 90))
    assert coarse > 2 * fine > 0


def test_which_distortions_there_are_depends_on_the_kind_of_data(digits: Tensor) -> None:
    assert list(perturbations(digits)) == ["noise", "shift", "jpeg"]
    assert list(perturbations(digits.float())) == ["noise", "shift"]
    assert list(perturbations(torch.zeros(3, 5))) == ["noise"]
    for name, copied in perturbations(digits).items():
        assert torch.equal(copied(digits, 4), KINDS[name](digits, 4))


def test_what_cannot_be_distorted_is_refused() -> None:
    with pytest.raises(UsageError, match=r"only pictures .* can be shifted, got shape \(3, 5\)"):
        shift(torch.zeros(3, 5), 0)
    for images in (torch.zeros(2, 1, 4, 4), torch.zeros(2, 5, dtype=torch.uint8)):
        with pytest.raises(UsageError, match="JPEG takes uint8 pictures"):
            jpeg(images)


@cases("most", [16, 40, 2**20])
@cases("shape", [(1, 1, 1, 3), (3, 1, 1, 5), (16, 1, 1, 1), (1, 1, 1, 17), (5, 3, 5, 3), (7, 1, 8, 8)])
@cases("dtype", [torch.uint8, torch.float32])
def test_noise_drawn_in_parts_is_that_drawn_at_once(
    shape: tuple[int, ...], most: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, below the 16 values that torch draws together, at them and beyond."""
    images = random_pictures(*shape).to(dtype)
    noise = torch.randn(shape, generator=keyed_generator(5, 11)) * 0.2
    if dtype == torch.uint8:
        whole = (images.float() / 255 + noise).clamp(0, 1).mul(255).round().to(torch.uint8)
    else:
        whole = images + noise * images.std(0, correction=0, keepdim=True)
    monkeypatch.setattr(distort, "VALUES", most)
    assert torch.equal(add_noise(images, 5, 0.2), whole)
    assert torch.equal(add_noise(images.to(memory_format=torch.channels_last), 5, 0.2), whole)


@LAWS
@given(count=st.integers(0, 200), most=st.integers(1, 100))
def test_parts_of_a_draw_are_the_whole_and_small(count: int, most: int) -> None:
    parts = list(distort.draws(count, most))
    assert [i for part in parts for i in range(count)[part]] == list(range(count))
    assert all(part.stop - part.start < max(most, 16) + 16 for part in parts)
    one, other = keyed_generator(1), keyed_generator(1)
    drawn = [torch.randn(part.stop - part.start, generator=one) for part in parts]
    assert torch.equal(torch.cat([torch.empty(0), *drawn]), torch.randn(count, generator=other))


def test_few_numbers_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    drawn = torch.randn

    def noted(size: int, **more: torch.Generator) -> Tensor:
        sizes.append(size)
        return drawn(size, **more)

    monkeypatch.setattr(distort, "VALUES", 64)
    monkeypatch.setattr(torch, "randn", noted)
    add_noise(random_pictures(9, 1, 8, 9), 0)
    assert sizes == [64] * 9 + [72]  # the last 8 are too few to be drawn alone


@pytest.mark.parametrize("most", [1, 200, 2**20])
def test_pictures_shifted_in_parts_are_those_shifted_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_pictures(23, 3, 5, 6)
    whole = torch.stack([moved(images[i], *STEPS[int(way)]) for i, way in enumerate(directions(23, 4))])
    monkeypatch.setattr(distort, "VALUES", most)
    assert torch.equal(shift(images, 4), whole)


def directions(n: int, seed: int) -> Tensor:
    return torch.randint(0, len(STEPS), (n,), generator=keyed_generator(seed, 12))


def moved(image: Tensor, dy: int, dx: int) -> Tensor:
    out = torch.zeros_like(image)
    height, width = image.shape[1:]
    for y in range(max(dy, 0), height + min(dy, 0)):
        for x in range(max(dx, 0), width + min(dx, 0)):
            out[:, y, x] = image[:, y - dy, x - dx]
    return out
