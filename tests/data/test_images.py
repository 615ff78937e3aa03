"""Strict decoding: golden pixels for each kind of picture, and what is refused."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile

from provnet.base.errors import DataError, UsageError
from provnet.data.modalities.decode import check_pixels, decode, decode_whole
from provnet.data.rules import DecodeRule, make_options
from tests.cases import cases
from tests.data.made import chunk, encode, noise, png

RULE = DecodeRule()


def first(blob: bytes, rule: DecodeRule = RULE) -> list[int]:
    pixel = decode(blob, "x", rule=rule)[0, 0]
    return pixel.tolist() if pixel.ndim else [int(pixel)]


def palette(**options: object) -> bytes:
    image = Image.new("P", (2, 2))
    image.putpalette([255, 0, 0, 0, 255, 0])
    return encode(image, **options)


GOLDEN = {
    "grey": (encode(np.full((2, 2), 7, np.uint8)), [7]),
    "colour": (encode(np.full((2, 2, 3), (1, 2, 3), np.uint8)), [1, 2, 3]),
    "1-bit white": (encode(Image.new("1", (9, 2), 1)), [255]),
    "1-bit black": (encode(Image.new("1", (9, 2), 0)), [0]),
    "transparent red": (encode(Image.new("RGBA", (2, 2), (255, 0, 0, 0))), [255, 255, 255]),
    "half red": (encode(Image.new("RGBA", (2, 2), (255, 0, 0, 128))), [255, 127, 127]),
    "opaque red": (encode(Image.new("RGBA", (2, 2), (255, 0, 0, 255))), [255, 0, 0]),
    "grey with alpha": (encode(Image.new("LA", (2, 2), (100, 128))), [177]),
    "palette": (palette(), [255, 0, 0]),
    "palette, one clear": (palette(transparency=0), [255, 255, 255]),
    "palette, half clear": (palette(transparency=b"\x80\xff"), [255, 127, 127]),
    "grey, one clear": (encode(Image.new("L", (2, 2), 7), transparency=7), [255]),
    "colour, one clear": (encode(Image.new("RGB", (2, 2), (7, 8, 9)), transparency=(7, 8, 9)), [255, 255, 255]),
    "16-bit PNG": (encode(np.full((2, 2), 40000, np.uint16)), [156]),
    "16-bit TIFF": (encode(np.full((2, 2), 40000, np.uint16), "TIFF"), [156]),
    "16-bit PGM": (b"P5 1 1 65535 \x9c\x40", [156]),
    "16-bit white": (encode(np.full((2, 2), 65535, np.uint16)), [255]),
    "16-bit, one clear": (png(1, 1, rows=b"\x00\x9c\x40", before=chunk(b"tRNS", b"\x9c\x40"), depth=16), [255]),
    "16-bit colour": (png(1, 1, rows=b"\x00\x80\x00\x40\x00\x20\x00", depth=16, colour=2), [128, 64, 32]),
    "CMYK JPEG": (encode(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG", quality=100), [0, 255, 255]),
    "CMYK TIFF": (encode(Image.new("CMYK", (2, 2), (255, 0, 0, 0)), "TIFF"), [0, 255, 255]),
    "CMYK key": (encode(Image.new("CMYK", (2, 2), (0, 0, 0, 155)), "TIFF"), [100, 100, 100]),
    "BMP": (encode(np.full((2, 2, 3), (1, 2, 3), np.uint8), "BMP"), [1, 2, 3]),
    "GIF": (encode(np.full((2, 2), 9, np.uint8), "GIF"), [9, 9, 9]),
    "WEBP": (encode(np.full((2, 2, 3), (1, 2, 3), np.uint8), "WEBP", lossless=True), [1, 2, 3]),
    "PPM": (encode(np.full((2, 2, 3), (1, 2, 3), np.uint8), "PPM"), [1, 2, 3]),
    "one pixel": (png(1, 1), [16]),
}


@cases(("blob", "pixel"), GOLDEN.values(), ids=GOLDEN)
def test_golden_pixels(blob: bytes, pixel: list[int]) -> None:
    assert first(blob) == pixel


def test_background_and_mode_are_as_declared() -> None:
    half = encode(Image.new("RGBA", (2, 2), (255, 0, 0, 128)))
    assert first(half, make_options({"background": "black"}).rule) == [128, 0, 0]
    clear_grey = encode(Image.new("LA", (2, 2), (100, 0)))
    assert first(clear_grey, make_options({"background": "#010203"}).rule) == [1, 2, 3]
    assert first(encode(Image.new("RGB", (2, 2), (255, 0, 0))), DecodeRule(mode="grey")) == [76]
    assert first(encode(Image.new("L", (2, 2), 9)), DecodeRule(mode="rgb")) == [9, 9, 9]


def test_declared_range_is_linear_and_never_clips() -> None:
    values = np.array([[0, 1000, 2048, 4095]], np.uint16)
    pixels = decode(encode(values), "x", rule=DecodeRule(value_range=(0, 4095)))
    assert pixels.tolist() == [[0, 62, 128, 255]]
    with pytest.raises(DataError, match=r"lie outside 0\.\.4095"):
        decode(encode(values + 1), "x", rule=DecodeRule(value_range=(0, 4095)))


def test_float_pictures_need_a_range() -> None:
    blob = encode(np.full((2, 2), 0.5, np.float32), "TIFF")
    with pytest.raises(DataError, match="needs a declared range"):
        decode(blob, "x", rule=RULE)
    assert first(blob, DecodeRule(value_range=(0, 1))) == [128]
    with pytest.raises(DataError, match="NaN"):
        decode(encode(np.full((2, 2), np.nan, np.float32), "TIFF"), "x", rule=DecodeRule(value_range=(0, 1)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_orientation_is_applied_once(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to see it upright
    picture = np.zeros((8, 16, 3), np.uint8)
    picture[:, :8] = 200
    lossless = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100}}.get(kind, {})
    pixels = decode(encode(picture, kind, exif=exif, **lossless), "x", rule=RULE)
    assert pixels.shape == (16, 8, 3)
    assert pixels[:7].min() > 190
    assert pixels[9:].max() < 10


def test_size_cuts_to_the_centre_then_resizes() -> None:
    picture = np.zeros((4, 8), np.uint8)
    picture[:, 2:6] = 100
    assert decode(encode(picture), "x", rule=DecodeRule(size=(2, 2))).tolist() == [[100, 100], [100, 100]]
    steps = np.repeat(np.repeat(np.array([[0, 255], [255, 0]], np.uint8), 8, 0), 8, 1)
    small = decode(encode(steps), "x", rule=DecodeRule(size=(1, 1)))
    assert 126 <= int(small[0, 0]) <= 129  # antialiased: the mean of the picture, not one of its pixels
    assert decode(encode(steps), "x", rule=DecodeRule(size=(5, 3), mode="rgb")).shape == (5, 3, 3)


def test_interlaced_png_is_read_and_checked_for_length() -> None:
    picture = noise((9, 11))
    steps = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    rows = b"".join(b"\x00" + row.tobytes() for x, y, dx, dy in steps for row in picture[y::dy, x::dx] if len(row))
    assert (decode(png(11, 9, rows=rows, interlaced=1), "x", rule=RULE) == picture).all()
    with pytest.raises(DataError, match="truncated"):
        decode(png(11, 9, rows=rows[:-1], interlaced=1), "x", rule=RULE)


FRAMES = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF"])
def test_animations_and_pages_need_a_frame(kind: str) -> None:
    blob = encode(FRAMES[0], kind, save_all=True, append_images=FRAMES[1:])
    with pytest.raises(DataError, match="holds 3 frames"):
        decode(blob, "x", rule=RULE)
    found = decode_whole(blob, "x", DecodeRule(frame=1))
    assert found.frames == 3
    assert found.pixels[0, 0].tolist() == [0, 255, 0]
    with pytest.raises(DataError, match="frame 3 asked for"):
        decode(blob, "x", rule=DecodeRule(frame=3))


def test_of_a_jpeg_with_extra_pictures_the_first_is_taken() -> None:
    blob = encode(FRAMES[0], "MPO", save_all=True, append_images=FRAMES[1:])
    assert first(blob) == [254, 0, 0]


WHOLE = {
    "PNG": encode(noise((40, 50, 3))),
    "JPEG": encode(noise((40, 50, 3)), "JPEG"),
    "progressive JPEG": encode(noise((40, 50, 3)), "JPEG", progressive=True),
    "WEBP": encode(noise((40, 50, 3)), "WEBP"),
    "BMP": encode(noise((40, 50, 3)), "BMP"),
    "TIFF": encode(noise((40, 50, 3)), "TIFF"),
    "LZW TIFF": encode(noise((40, 50, 3)), "TIFF", compression="tiff_lzw"),
    "GIF": encode(noise((40, 50)), "GIF"),
    "PPM": encode(noise((40, 50, 3)), "PPM"),
}


@cases("blob", WHOLE.values(), ids=WHOLE)
def test_a_file_cut_anywhere_is_refused(blob: bytes) -> None:
    decode(blob, "whole", rule=RULE)
    for cut in (1, 2, 4, 20, len(blob) // 2, len(blob) - 5):
        with pytest.raises(DataError, match=r"^cut\.png: "):
            decode(blob[:-cut], "cut.png", rule=RULE)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_rows_that_are_missing_inside_a_whole_file_are_noticed() -> None:
    with pytest.raises(DataError, match="truncated"):
        decode(png(10, 200), "x", rule=RULE)


FOREIGN = {
    "nothing": b"",
    "noise": noise((999,), 4).tobytes(),
    "FITS": b"SIMPLE  =                    T" + bytes(2850),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "PSD": b"8BPS\x00\x01" + bytes(99),
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "PDF": b"%PDF-1.4\n" + bytes(99),
}


@cases(("name", "blob"), FOREIGN.items(), ids=FOREIGN)
def test_other_formats_are_refused_whatever_their_name(name: str, blob: bytes) -> None:
    words = "is empty" if name == "nothing" else "not in a supported format"
    with pytest.raises(DataError, match=words):
        decode(blob, "x.png", rule=RULE)


def test_large_pictures_are_refused_from_the_header() -> None:
    for width, height in ((40000, 40000), (10000, 9500)):
        blob = png(width, height, rows=b"")
        tracemalloc.start()
        with pytest.raises(DataError, match="at most 40,000,000"):
            decode(blob, "x", rule=RULE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20
    for large, kinds in (((20000, 20000), ("BMP",)), ((8000, 6000), ("TIFF", "BMP"))):
        for kind in kinds:
            with pytest.raises(DataError, match="at most 40,000,000"):
                decode(encode(Image.new("1", large), kind), "x", rule=RULE)
    webp = bytearray(encode(noise((4, 4, 3)), "WEBP", lossless=True))
    webp[21:25] = (0x3FFF | 0x3FFF << 14).to_bytes(4, "little")
    with pytest.raises(DataError, match="at most 40,000,000"):
        decode(bytes(webp), "x", rule=RULE)


def test_files_of_too_many_bytes_are_refused() -> None:
    with pytest.raises(DataError, match="at most 10 are allowed"):
        decode(png(5, 5), "x", rule=DecodeRule(max_bytes=10))


def test_no_pixels() -> None:
    for blob in (png(0, 5), png(5, 0)):
        with pytest.raises(DataError, match="no pixels"):
            decode(blob, "x", rule=RULE)


BOMB = zlib.compress(bytes(100_000_000))


@cases(
    "text",
    [
        chunk(b"zTXt", b"k\x00\x00" + BOMB),
        chunk(b"iTXt", b"k\x00\x01\x00en\x00kk\x00" + BOMB),
        chunk(b"iCCP", b"k\x00\x00" + BOMB),
        chunk(b"tEXt", b"k\x00" + bytes(2_000_000)),
        chunk(b"iTXt", b"k\x00\x00\x00en\x00kk\x00" + bytes(2_000_000)),
    ],
    ids=["zTXt", "packed iTXt", "iCCP", "tEXt", "iTXt"],
)
@cases("place", ["before", "after"])
def test_large_texts_in_a_png_are_refused(text: bytes, place: str) -> None:
    with pytest.raises(DataError, match="more than 1 MiB of text"):
        decode(png(5, 5, **{place: text}), "x", rule=RULE)


def test_small_texts_are_fine() -> None:
    small = chunk(b"zTXt", b"k\x00\x00" + zlib.compress(bytes(1000)))
    assert first(png(5, 5, before=small)) == [16]


def test_unsupported_modes_are_named() -> None:
    with pytest.raises(DataError, match="mode LAB"):
        decode(encode(Image.new("LAB", (2, 2)), "TIFF"), "x", rule=RULE)


@cases(
    "options",
    [
        {"size": 0},
        {"size": (1, 2, 3)},
        {"size": "big"},
        {"mode": "gray"},
        {"background": "no such colour"},
        {"frame": -1},
        {"limit": 0},
        {"value_range": (1, 1)},
        {"value_range": (0, float("inf"))},
        {"value_range": 3},
        {"colour": 1},
    ],
)
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make_options(options)


@pytest.mark.parametrize("part", [b"IHDR", b"IDAT"])
def test_a_damaged_png_is_not_called_truncated(part: bytes) -> None:
    blob = bytearray(encode(noise((9, 9))))
    start = blob.index(part)
    end = start + 4 + int.from_bytes(blob[start - 4 : start], "big")
    blob[end] ^= 1  # the first byte of the checksum
    with pytest.raises(DataError, match=f"damaged .*{part.decode()} does not fit"):
        decode(bytes(blob), "a.png", rule=RULE)
    rest = zlib.crc32(blob[start : start + 4] + bytes(end - start - 4)).to_bytes(4, "big")
    if part == b"IDAT":  # pixels that fit their checksum, but cannot be unpacked
        blob[start + 4 : end + 4] = bytes(end - start - 4) + rest
        with pytest.raises(DataError, match=r"damaged .its pixels cannot be unpacked"):
            decode(bytes(blob), "a.png", rule=RULE)


def test_one_pixel_too_many_is_told_from_the_limit() -> None:
    with pytest.raises(DataError, match="40000001 x 1 are 40,000,001 pixels, at most 40,000,000 are allowed"):
        check_pixels(40_000_001, 1, "a.png", RULE.max_pixels)
    check_pixels(40_000_000, 1, "a.png", RULE.max_pixels)
