"""Rows 1 to 18: single pictures, by their bytes."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image

from provnet.runs.run import read_samples
from tests.data.made import encode, noise, png

from .entry import Entry, Place, Said
from .made import SIDE, accepted, folder, has_pixels, has_samples, little_memory, refused, text_chunk, train

GREY = noise((SIDE, SIDE), 1)
FOREIGN = {
    "FITS": b"SIMPLE  =                    T".ljust(2880),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "PSD": b"8BPS\0\1" + bytes(6) + b"\0\3\0\0\0\x09\0\0\0\x09\0\x08\0\3" + bytes(64),
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="12" height="12"/>',
    "PDF": b"%PDF-1.7\n1 0 obj <<>> endobj\n",
}


def filled(mode: str, colour: object, kind: str = "PNG", **options: object) -> bytes:
    """A picture of one colour."""
    return encode(Image.new(mode, (SIDE, SIDE), colour), kind, **options)  # type: ignore[arg-type]


def with_palette(**options: object) -> bytes:
    """A palette picture, all of it red."""
    image = Image.new("P", (SIDE, SIDE))
    image.putpalette([255, 0, 0, 0, 255, 0])
    return encode(image, **options)


def frames(kind: str) -> bytes:
    """A file of three pictures, grey 10, 20 and 30."""
    pages = [Image.new("L", (SIDE, SIDE), shade) for shade in (10, 20, 30)]
    return encode(pages[0], kind, save_all=True, append_images=pages[1:])


def bounded(row: int, words: str, blob: bytes, *says: str) -> Entry:
    """Refused, and the peak of memory stays within 64 MiB."""

    def given(place: Place) -> list[object]:
        data = folder(place, {"a/bomb.png": blob})
        place.stack.enter_context(little_memory(64 << 20))
        return train(place, data)

    return Entry(row, f"{words}, memory bounded", given, 3, ("a/bomb.png: ", *says))


def framed(row: int, words: str, name: str, blob: bytes) -> list[Entry]:
    """Refused without a choice; with --frame that picture is taken, and the sample's id tells which."""

    def given(place: Place, *options: object) -> list[object]:
        return train(place, folder(place, {f"a/{name}": blob}), "--mode", "grey", *options)

    def after(place: Place, _: Said) -> None:
        has_pixels(place, f"a/{name}#1", np.full((1, SIDE, SIDE), 20, np.uint8))

    return [
        Entry(row, words, given, 3, (f"a/{name}: ", "3 frames", "0..2")),
        Entry(row, f"{words}, --frame 1", lambda place: given(place, "--frame", 1), after=after),
        Entry(row, f"{words}, --frame 3", lambda place: given(place, "--frame", 3), 3, ("frame 3", "holds 3")),
    ]


def turned(place: Place) -> list[object]:
    """All pictures 12 high and 16 wide on disk, to be turned clockwise."""
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = noise((12, 16), 5)
    for label in "ab":
        for number in range(2):
            path = place.tmp / "data" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture + number).save(path, exif=exif)
    return train(place, place.tmp / "data")


def upright(place: Place, said: Said) -> None:
    has_pixels(place, "a/0.png", np.rot90(noise((12, 16), 5), -1)[None])
    assert "1 x 16 x 12" in said.out


def one_pixel(place: Place, *options: object) -> list[object]:
    """A data set of pictures of one pixel each."""
    for number in range(4):
        place.write(f"data/{'ab'[number % 2]}/{number}.png", encode(np.full((1, 1), 50 * number, np.uint8)))
    return ["train", place.tmp / "data", "--out", place.out, "--epochs", 1, *options]


def cut(blob: bytes, keep: float) -> bytes:
    return blob[: int(len(blob) * keep)]


def ones(place: Place, _: Said) -> None:
    has_samples(place, 4)
    has_pixels(place, "b/3.png", np.full((1, 1, 1), 150, np.uint8))


def skipped_are_counted(place: Place, said: Said) -> None:
    assert said.json["samples"] == 6 == len(read_samples(place.out)[1])


def many_bad(place: Place) -> list[object]:
    blobs: dict[str, bytes | np.ndarray] = {f"a/bad{i}.png": b"" for i in range(5)}
    return train(place, folder(place, blobs), "--skip-bad", "--json")


def all_bad(place: Place) -> list[object]:
    for label in "ab":
        place.write(f"data/{label}/x.png", b"")
    return train(place, place.tmp / "data", "--skip-bad")


PHOTO = encode(noise((64, 64, 3), 2), "JPEG")
ROWS = [
    *refused(1, "zero-byte picture", "bad.png", b"", "the file is empty"),
    Entry(1, "five of them, --skip-bad --json", many_bad, 0, ("5 bad files left out",), skipped_are_counted),
    Entry(1, "all pictures are bad, --skip-bad", all_bad, 3, ("all 2 pictures are bad", "a/x.png")),
    *refused(2, "random bytes named .png", "bad.png", random.Random(2).randbytes(500), "not a picture"),
    *refused(3, "PNG cut 20 bytes short", "bad.png", encode(GREY)[:-20], "truncated"),
    *refused(4, "JPEG cut in half", "bad.jpg", cut(PHOTO, 0.5), "truncated"),
    *refused(4, "JPEG cut in its header", "bad.jpg", cut(PHOTO, 0.05), "truncated"),
    *refused(
        5,
        "40000 x 40000 in a small file",
        "bad.png",
        png(40_000, 40_000)[:1024],
        "1,600,000,000 pixels",
        "at most 40,000,000",
    ),
    bounded(5, "40000 x 40000 in a small file", png(40_000, 40_000)[:1024], "1,600,000,000 pixels"),
    *refused(6, "10000 x 9500", "bad.png", png(10_000, 9_500), "95,000,000 pixels", "at most 40,000,000"),
    *refused(7, "PNG with 100 MB of zTXt", "bad.png", text_chunk(b"zTXt", 100 << 20), "more than 1 MiB of text"),
    bounded(7, "PNG with 100 MB of zTXt", text_chunk(b"zTXt", 100 << 20), "text"),
    *refused(7, "PNG with 100 MB of iTXt", "bad.png", text_chunk(b"iTXt", 100 << 20), "more than 1 MiB of text"),
    *(
        entry
        for kind, blob in FOREIGN.items()
        for entry in refused(8, f"{kind} named .png", "bad.png", blob, "PNG, JPEG")
    ),
    *refused(9, "picture without columns", "bad.png", png(0, 5), "no pixels (0 x 5)"),
    *refused(9, "picture without rows", "bad.png", png(5, 0), "no pixels (5 x 0)"),
    Entry(10, "pictures of one pixel", one_pixel, after=ones),
    Entry(10, "one pixel, backbone of the paper", lambda place: one_pixel(place, "--backbone", "paper"), after=ones),
    accepted(
        10, "one pixel among others, --size", "one.png", encode(np.full((1, 1), 77, np.uint8)), 77, "--size", SIDE
    ),
    Entry(
        10,
        "one pixel to be explained",
        lambda place: ["explain", place.kit.run, place.write("one.png", png(1, 1))],
        3,
        ("one.png", "1 x 1", "12 x 12", "resize"),
    ),
    accepted(11, "transparent red", "x.png", filled("RGBA", (255, 0, 0, 0)), 255, colour=True),
    accepted(11, "half-transparent red", "x.png", filled("RGBA", (255, 0, 0, 128)), [[[255, 127, 127]]], colour=True),
    accepted(
        11, "transparent red on black", "x.png", filled("RGBA", (255, 0, 0, 0)), 0, "--background", "black", colour=True
    ),
    accepted(12, "palette with a clear colour", "x.png", with_palette(transparency=0), 255, colour=True),
    accepted(
        12,
        "palette with a half-clear colour",
        "x.png",
        with_palette(transparency=b"\x80"),
        [[[255, 127, 127]]],
        colour=True,
    ),
    accepted(
        12, "palette, clear on black", "x.png", with_palette(transparency=0), 0, "--background", "#000000", colour=True
    ),
    accepted(13, "grey with alpha", "x.png", filled("LA", (100, 128)), 177),
    accepted(13, "grey with alpha on black", "x.png", filled("LA", (100, 128)), 50, "--background", "black"),
    accepted(13, "1-bit white", "x.png", filled("1", 1), 255),
    accepted(13, "1-bit black", "x.png", filled("1", 0), 0),
    accepted(14, "16-bit grey PNG", "x.png", encode(np.full((SIDE, SIDE), 40_000, np.uint16)), 156),
    accepted(14, "16-bit grey TIFF", "x.tif", encode(np.full((SIDE, SIDE), 40_000, np.uint16), "TIFF"), 156),
    accepted(
        14,
        "16-bit grey, range given",
        "x.png",
        encode(np.full((SIDE, SIDE), 4_095, np.uint16)),
        255,
        "--value-range",
        0,
        4095,
    ),
    Entry(
        14,
        "16-bit grey outside the range given",
        lambda place: train(
            place, folder(place, {"a/x.png": np.full((SIDE, SIDE), 40_000, np.uint16)}), "--value-range", 0, 4095
        ),
        3,
        ("a/x.png", "40000..40000", "outside 0..4095"),
    ),
    *refused(
        15, "float TIFF", "x.tif", encode(np.full((SIDE, SIDE), 0.5, np.float32), "TIFF"), "0.5..0.5", "value_range"
    ),
    accepted(
        15,
        "float TIFF, range given",
        "x.tif",
        encode(np.full((SIDE, SIDE), 0.5, np.float32), "TIFF"),
        128,
        "--value-range",
        0,
        1,
    ),
    Entry(
        15,
        "float TIFF with NaN",
        lambda place: train(
            place,
            folder(place, {"a/x.tif": encode(np.full((SIDE, SIDE), np.nan, np.float32), "TIFF")}),
            *("--value-range", 0, 1),
        ),
        3,
        ("a/x.tif", "NaN"),
    ),
    accepted(
        16,
        "CMYK JPEG",
        "x.jpg",
        filled("CMYK", (255, 0, 0, 0), "JPEG", quality=100),
        [[[0, 255, 255]]],
        colour=True,
    ),
    accepted(16, "CMYK TIFF, key alone", "x.tif", filled("CMYK", (0, 0, 0, 155), "TIFF"), 100, colour=True),
    *framed(17, "animated GIF", "x.gif", frames("GIF")),
    *framed(17, "animated PNG", "x.png", frames("PNG")),
    *framed(17, "TIFF of three pages", "x.tif", frames("TIFF")),
    Entry(18, "EXIF rotation is applied once", turned, 0, (), upright),
]
