"""Transparent and large pictures: the same pixels in every band, little memory, and no more work than allowed."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from provnet.base.errors import DataError
from provnet.data.modalities import decode as images
from provnet.data.modalities.decode import _inflated_size, decode, picture_array
from provnet.data.rules import DecodeRule
from tests.cases import cases
from tests.data.made import encode, noise, png


@cases("shape", [(7, 5), (7, 5, 3), (1, 1), (3, 300), (300, 2, 3)])
@cases("background", [(0, 0, 0), (255, 255, 255), (10, 200, 255)])
def test_blending_is_exact(shape: tuple[int, ...], background: tuple[int, int, int]) -> None:
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


PICTURES = {
    "1": Image.fromarray(noise((9, 7))).convert("1"),
    "P": Image.fromarray(noise((9, 7, 3))).quantize(9),
    "LA": Image.fromarray(noise((9, 7, 2)), "LA"),
    "RGB": Image.fromarray(noise((9, 7, 3))),
    "RGBA": Image.fromarray(noise((9, 7, 4))),
    "CMYK": Image.fromarray(noise((9, 7, 4)), "CMYK"),
    "I;16": Image.fromarray(noise((9, 7)).astype(np.uint16) * 257),
    "F": Image.fromarray(noise((9, 7)).astype(np.float32)),
}
CLEAR: dict[str, Any] = {"P": bytes(range(0, 180, 20)), "RGB": (1, 2, 3), "I;16": 514}


@cases("clear", [False, True])
@cases("mode", PICTURES)
def test_bands_are_converted_as_the_whole_is(mode: str, clear: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = PICTURES[mode].copy()
    if clear and mode in CLEAR:
        picture.info["transparency"] = CLEAR[mode]
    rule = DecodeRule(background=(10, 200, 255), value_range=(0, 65535))
    whole = picture_array(picture, "a", rule)
    monkeypatch.setattr(images, "_BAND", 20)  # two rows at a time, the last one alone
    assert picture_array(picture, "a", rule).tolist() == whole.tolist()


@pytest.mark.parametrize(("channels", "dtype", "most"), [(4, np.uint8, 4), (1, np.uint16, 2)])
def test_a_large_picture_takes_little_more_memory_than_its_pixels(channels: int, dtype: Any, most: int) -> None:
    pixels = np.zeros((1500, 1500, channels), dtype)
    pixels[::2, :, -1] = 200
    blob = encode(pixels.squeeze())
    decode(blob, "a.png", rule=DecodeRule())
    tracemalloc.start()
    try:
        decode(blob, "a.png", rule=DecodeRule())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bands = 40 * images._BAND  # bytes: a band as it is converted
    assert peak < most * 1500 * 1500 + bands


def test_a_picture_of_too_many_bytes_is_refused_before_it_is_decoded() -> None:
    """40 million pixels of 16-bit RGBA would hold a decoder for long, and take gigabytes."""
    with pytest.raises(DataError, match="8000 x 5000 pixels of 64 bits are 320,000,000 bytes, at most 160,000,000 are"):
        decode(png(8000, 5000, depth=16, colour=6), "a.png", rule=DecodeRule())
    for kind, deep in (("PNG", np.uint16), ("TIFF", np.uint16), ("TIFF", np.float32), ("PPM", np.uint8)):
        picture = noise((6, 5)).astype(deep)
        room = picture.nbytes
        assert decode(encode(picture, kind), "a", rule=DecodeRule(value_range=(0, 255), max_decoded=room)).shape == (
            6,
            5,
        )
        with pytest.raises(DataError, match=f"are {room} bytes, at most {room - 1} are allowed"):
            decode(encode(picture, kind), "a", rule=DecodeRule(value_range=(0, 255), max_decoded=room - 1))


def test_no_more_is_unpacked_than_the_header_asks_for() -> None:
    """A few bytes that unpack to gigabytes: of those that a picture needs few are looked at."""
    assert 10 < _inflated_size(zlib.compress(bytes(2**26)), "a.png", 10) < 2**25
