"""What a picture file's own bytes say before any decoder sees it: its format, its size, and that it is whole.

Pillow takes a PNG whose end is missing, and allocates for some formats when it opens them; these checks come first.
"""

from __future__ import annotations

import zlib

from provnet.data.rules import DecodeRule
from provnet.errors import DataError


def sniff(blob: bytes) -> str | None:
    """The format of a picture file, told by its first bytes, or None where it is not in the list.

    >>> sniff(b"GIF89a"), sniff(b"SIMPLE  =")
    ('GIF', None)
    """
    if blob[:4] == b"RIFF" and blob[8:12] == b"WEBP":
        return "WEBP"
    if blob[:1] == b"P" and blob[1:2] in b"123456" and blob[2:3] in (b" ", b"\t", b"\n", b"\r", b"#"):
        return "PPM"
    return next((name for start, name in _MAGIC if blob.startswith(start)), None)


def check_container(blob: bytes, name: str, kind: str, rule: DecodeRule) -> None:
    """Refuse a file that is cut short, empty of pixels, too large or hides a large text, by its structure alone."""
    if kind == "PNG":
        _check_png(blob, name, rule)
    elif kind == "JPEG":
        _check_jpeg(blob, name)
    elif kind == "WEBP":
        _check_webp(blob, name, rule.max_pixels)
    elif (kind == "GIF" and not blob.rstrip(b"\x00").endswith(b";")) or (
        kind == "BMP" and int.from_bytes(blob[2:6], "little") > len(blob)
    ):
        raise cut_short(name)


def check_pixels(width: int, height: int, name: str, max_pixels: int) -> None:
    """Refuse a picture without pixels, or with more than the limit."""
    if width < 1 or height < 1:
        raise DataError(f"{name}: the picture has no pixels ({width} x {height}); leave it out or replace it")
    if width * height > max_pixels:
        raise DataError(
            f"{name}: {width} x {height} are {width * height:,} pixels, at most {max_pixels:,} are allowed; "
            "make it smaller first"
        )


def check_depth(width: int, height: int, bits: int, name: str, max_decoded: int) -> None:
    """Refuse a picture whose pixels, of so many bits over all channels, take more bytes than the limit.

    >>> check_depth(8000, 5000, 64, "a.png", 160_000_000)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: a.png: 8000 x 5000 pixels of 64 bits are 320,000,000 bytes, at most 160,000,000 are allowed; ...
    """
    needed = width * height * bits // 8
    if needed > max_decoded:
        raise DataError(
            f"{name}: {width} x {height} pixels of {bits} bits are {needed:,} bytes, at most {max_decoded:,} are "
            "allowed; make it smaller, or save it with 8 bits a channel, first"
        )


def cut_short(name: str) -> DataError:
    """The error for a file that ends too early."""
    return DataError(f"{name}: the file is truncated (its end is missing); copy or download it again")


def damaged(name: str, why: str) -> DataError:
    """The error for a file whose end is there, but whose content is not what was saved."""
    return DataError(f"{name}: the file is damaged ({why}); copy or download it again")


def _check_png(blob: bytes, name: str, rule: DecodeRule) -> None:
    if len(blob) < 33 or blob[12:16] != b"IHDR":
        raise cut_short(name)
    width, height = int.from_bytes(blob[16:20], "big"), int.from_bytes(blob[20:24], "big")
    check_pixels(width, height, name, rule.max_pixels)
    check_depth(width, height, _png_bits(blob), name, rule.max_decoded)
    at, text = 8, 0
    packed: list[bytes] = []
    while True:
        length, kind = int.from_bytes(blob[at : at + 4], "big"), blob[at + 4 : at + 8]
        end = at + 12 + length
        if len(kind) < 4 or end > len(blob):
            raise cut_short(name)
        if kind in _CRITICAL and zlib.crc32(blob[at + 4 : end - 4]) != int.from_bytes(blob[end - 4 : end], "big"):
            raise damaged(name, f"the checksum of its part {kind.decode()} does not fit")
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            text += length if length > MAX_TEXT else _unpacked(kind, blob[at + 8 : at + 8 + length])
            if text > MAX_TEXT:
                raise DataError(f"{name}: carries more than {MAX_TEXT // 2**20} MiB of text; save it without metadata")
        if kind == b"IDAT":
            packed.append(blob[at + 8 : at + 8 + length])
        if kind == b"IEND":
            break
        at = end
    wanted = _png_bytes(blob)
    if wanted > _inflated(b"".join(packed), name, wanted):
        raise cut_short(name)


def _png_bits(blob: bytes) -> int:
    """Bits of a pixel over all channels."""
    return blob[24] * {2: 3, 4: 2, 6: 4}.get(blob[25], 1)


def _png_bytes(blob: bytes) -> int:
    """How many bytes the header promises once unpacked; a decoder would fill in what is missing."""
    width, height = int.from_bytes(blob[16:20], "big"), int.from_bytes(blob[20:24], "big")
    bits = _png_bits(blob)
    passes = _INTERLACED if blob[28] else ((0, 0, 1, 1),)
    total = 0
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


def _inflated(packed: bytes, name: str, wanted: int) -> int:
    """How many bytes there are once unpacked; no more are unpacked than tells whether there are as many as wanted."""
    stream, total = zlib.decompressobj(), 0
    try:
        for start in range(0, len(packed), _PIECE):
            total += len(stream.decompress(packed[start : start + _PIECE]))
            if stream.eof or total > wanted:
                break
    except zlib.error as error:
        raise damaged(name, "its pixels cannot be unpacked") from error
    return total


def _unpacked(kind: bytes, content: bytes) -> int:
    """How long a text chunk gets when it is unpacked; unpacking stops at the limit."""
    _, _, rest = content.partition(b"\x00")
    if kind == b"tEXt" or (kind == b"iTXt" and rest[:1] == b"\x00"):
        return len(content)
    packed = rest[2:].split(b"\x00", 2)[-1] if kind == b"iTXt" else rest[1:]
    try:
        return len(zlib.decompressobj().decompress(packed, MAX_TEXT + 1))
    except zlib.error:
        return len(content)


def _check_jpeg(blob: bytes, name: str) -> None:
    at = 2
    while at + 4 <= len(blob):
        if blob[at] != 0xFF:
            at += 1  # stray bytes between segments are passed over, as decoders do
        elif blob[at + 1] == 0xDA:  # start of scan: the end marker must come after it
            if blob.find(b"\xff\xd9", at) < 0:
                raise cut_short(name)
            return
        elif blob[at + 1] in _ALONE:
            at += 1 if blob[at + 1] == 0xFF else 2
        else:
            at += 2 + int.from_bytes(blob[at + 2 : at + 4], "big")
    raise cut_short(name)


def _check_webp(blob: bytes, name: str, max_pixels: int) -> None:
    if len(blob) < 30 or 8 + int.from_bytes(blob[4:8], "little") > len(blob):
        raise cut_short(name)
    if blob[12:16] == b"VP8X":
        sides = [int.from_bytes(blob[at : at + 3], "little") + 1 for at in (24, 27)]
    elif blob[12:16] == b"VP8L":
        bits = int.from_bytes(blob[21:25], "little")
        sides = [(bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1]
    else:
        sides = [int.from_bytes(blob[at : at + 2], "little") & 0x3FFF for at in (26, 28)]
    check_pixels(sides[0], sides[1], name, max_pixels)


MAX_TEXT = 2**20
_CRITICAL = (b"IHDR", b"PLTE", b"tRNS", b"IDAT")  # parts of a PNG that pixels are made of
_INTERLACED = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_PIECE = 2**12  # bytes that are unpacked at a time, to 4 MiB at most
_ALONE = frozenset({0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})  # markers without a length
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
)
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
