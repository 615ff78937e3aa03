"""Pictures with an alpha channel, laid onto a background: the same bits in every band, and little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from provnet.data import images
from provnet.data.images import decode
from provnet.data.rules import DecodeRule
from tests.data.made import encode


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3), (1, 1), (3, 300), (300, 2, 3)])
@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255), (10, 200, 255)])
def test_blending_is_exact_in_every_band(
    shape: tuple[int, ...], background: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_BAND", 20)  # several bands, the last one shorter
    draw = np.random.default_rng(1)
    colours = draw.choice(np.array([0, 1, 127, 254, 255, *range(0, 256, 5)], np.uint8), shape)
    alpha = draw.choice(np.array([0, 1, 128, 254, 255], np.uint8), shape[:2])
    plain = len(shape) == 2 and len(set(background)) == 1
    front = colours if plain or len(shape) == 3 else np.repeat(colours[..., None], 3, axis=2)
    share = alpha.astype(np.int64) if plain else alpha.astype(np.int64)[..., None]
    behind = background[0] if plain else np.array(background)
    expected = (share * front + (255 - share) * behind + 127) // 255
    found = images._mix(colours, alpha, background)
    assert found.dtype == np.uint8
    assert found.tolist() == expected.tolist()


def test_a_large_transparent_picture_takes_little_memory() -> None:
    pixels = np.zeros((1500, 1500, 4), np.uint8)
    pixels[::2, :, 3] = 200
    blob = encode(pixels)
    tracemalloc.start()
    try:
        decode(blob, "a.png", rule=DecodeRule())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * 1500 * 1500  # bytes; eight for each number would take 72 a pixel
