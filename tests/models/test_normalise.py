"""What goes into a network: raw bytes or floats, normalised inside; another shape is refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, Normalise, build
from tests.cases import cases

from .made import LAWS, NETWORKS, UNEVEN

MEAN, STD = (0.1, 0.5, 0.9), (0.2, 0.4, 1.5)


@LAWS
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3]), st.booleans())
def test_bytes_are_normalised_channel_by_channel(n: int, height: int, width: int, channels: int, each: bool) -> None:
    few = slice(channels) if each else slice(1)  # one value for all channels, or one a channel
    config = NetworkConfig("single", "small", (channels, height, width), 2, mean=MEAN[few], std=STD[few], scale=255.0)
    images = np.random.default_rng(n).integers(0, 256, (n, channels, height, width), dtype=np.uint8)
    out = Normalise(config)(torch.from_numpy(images))
    assert out.dtype == torch.float32
    for channel in range(channels):
        place = channel if each else 0
        wanted = (images[:, channel].astype(np.float64) / 255 - MEAN[place]) / STD[place]
        np.testing.assert_allclose(out[:, channel].numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64, torch.int64])
def test_vectors_are_normalised_feature_by_feature(kind: torch.dtype) -> None:
    config = NetworkConfig("single", "mlp", (3,), 2, mean=MEAN, std=STD)
    values = torch.tensor([[1, 2, 3], [-4, 0, 7]], dtype=kind)
    out = Normalise(config)(values)
    assert out.dtype == torch.float32
    wanted = (values.numpy().astype(np.float64) - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_bytes_and_the_same_values_as_floats_give_the_same_answer(network: str) -> None:
    config = NetworkConfig(network, "small", (1, 8, 8), 3, mean=(0.13,), std=(0.3,), scale=255.0)
    net = build(config, IndexMap(UNEVEN)).eval()
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype=np.uint8))
    one, other = net(images), net(images.double())
    assert torch.equal(one.logits, other.logits)
    assert torch.equal(one.features, other.features)


def test_the_input_is_left_as_it_was() -> None:
    config = NetworkConfig("single", "mlp", (3,), 2, mean=MEAN, std=STD)
    values = torch.ones(2, 3)
    Normalise(config)(values)
    assert torch.equal(values, torch.ones(2, 3))


@cases("network", NETWORKS)
@cases("shape", [(2, 1, 8, 7), (2, 3, 8, 8), (8, 8), (2, 64), (2, 1, 1, 8, 8), (2,)])
def test_another_shape_is_refused_in_words(network: str, shape: tuple[int, ...]) -> None:
    net = build(NetworkConfig(network, "small", (1, 8, 8), 3), IndexMap(UNEVEN)).eval()
    with pytest.raises(UsageError) as error:
        net(torch.zeros(shape))
    assert str(error.value) == (f"this network takes samples of shape (1, 8, 8), got {shape[1:]}; resize them first")


@pytest.mark.parametrize("channels", [1, 3])
def test_an_axis_that_is_missing_or_last_is_no_other_size(channels: int) -> None:
    net = build(NetworkConfig("single", "small", (channels, 8, 6), 3), IndexMap(UNEVEN)).eval()
    images = np.zeros((2, 8, 6) if channels == 1 else (2, 8, 6, 3), np.float32)
    with pytest.raises(UsageError) as error:
        net(torch.from_numpy(images))
    way = "images[:, None]" if channels == 1 else "numpy.moveaxis(images, -1, 1)"
    assert str(error.value).endswith(f": {way}")
    net(torch.from_numpy(images[:, None] if channels == 1 else np.moveaxis(images, -1, 1)))  # what it says


@cases(
    ("settings", "said"),
    [
        ({"mean": (0.0, 0.0)}, "need one value or 3, got 2"),
        ({"mean": (0.0, 0.0, 0.0)}, "mean and std need one value or 3"),
        ({"std": (0.0,)}, "std and scale above 0"),
        ({"std": (float("nan"),)}, "must be finite"),
        ({"scale": 0.0}, "std and scale above 0"),
        ({"scale": float("inf")}, "must be finite"),
        ({"alpha": 1.5}, "alpha must lie in"),
        ({"alpha": float("nan")}, "alpha must lie in"),
        ({"alpha": None}, "alpha must be a number, got None; leave it out"),
        ({"alpha": "x"}, "alpha must be a number, got 'x'"),
        ({"level": "x"}, "level must be a whole number, got 'x'"),
        ({"key_width": 2.5}, "key_width must be a whole number, got 2.5"),
        ({"key_scale": "x"}, "key_scale must be a number, got 'x'"),
        ({"classes": 0}, "classes must be 1 or more, got 0"),
        ({"input_shape": (3, 0, 4)}, "positive sizes"),
        ({"input_shape": (3, 4)}, "input_shape must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NetworkConfig(**{"network": "single", "backbone": "small", "input_shape": (3, 4, 4), "classes": 2, **settings})  # type: ignore[arg-type]
