"""Strict decoding of picture files with Pillow: the same pixels every time, or an error that names the file.

The rules, in this order:
- PNG, JPEG, WEBP, BMP, TIFF, GIF and PPM, told by content; the name of the file does not matter.
- One picture a file; animations and several pages need `frame`. Of a JPEG with extra pictures (MPO) the first is taken.
- EXIF orientation is applied, once. Colour profiles are not.
- Transparency is blended onto the background: (a * colour + (255 - a) * background + 127) // 255.
- 1-bit becomes 0 and 255; palettes become RGB; CMYK becomes (255 - C) * (255 - K) / 255 and so on; YCbCr becomes RGB.
- 16- and 32-bit grey is scaled linearly from `value_range` (default 0..65535) to 0..255 and never clipped: a value
  outside the range is refused. Float pictures need `value_range`. Colour with 16 bits keeps its upper 8.
- `mode`: grey by ITU-R 601 (299 R + 587 G + 114 B), RGB by repeating grey.
- What the network sees is a view of the picture: `mode` and `size`, resized with antialiasing (bilinear, Pillow). `fit`
  says how another shape is reached: `stretch` and `pad` (with the picture's mean colour) keep the whole picture, `crop`
  cuts to the centre at the new aspect first.
"""

from __future__ import annotations

import io
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 - the last two register their formats

from provnet.base.batches import pieces
from provnet.base.errors import DataError
from provnet.data.rules import DecodeRule

BYTES = 255.0  # the scale of a network that was trained on bytes


def is_picture(shape: Sequence[int]) -> bool:
    """Whether samples of this shape are pictures (C, H, W).

    >>> is_picture((3, 32, 32)), is_picture((4,))
    (True, False)
    """
    return len(shape) == 3


def are_pictures(inputs: Any, least: int = 1) -> bool:
    """Whether samples (N, ...) are pictures (N, C, H, W), with no side below `least`.

    >>> are_pictures(np.zeros((2, 3, 8, 9))), are_pictures(np.zeros((2, 3, 8, 9)), least=9)
    (True, False)
    """
    return is_picture(inputs.shape[1:]) and min(inputs.shape[2:]) >= least


def picture_mode(shape: tuple[int, ...]) -> dict[str, str]:
    """The option `mode` by which picture files get the channels of some samples; none where those are no pictures.

    >>> picture_mode((1, 28, 28)), picture_mode((4,))
    ({'mode': 'grey'}, {})
    """
    mode = {1: "grey", 3: "rgb"}.get(shape[0]) if is_picture(shape) else None
    return {} if mode is None else {"mode": mode}


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
            "allowed; make it smaller, or save it with 8 bits per channel"
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
            text += length if length > MAX_TEXT else _text_size(kind, blob[at + 8 : at + 8 + length])
            if text > MAX_TEXT:
                raise DataError(f"{name}: carries more than {MAX_TEXT // 2**20} MiB of text; save it without metadata")
        if kind == b"IDAT":
            packed.append(blob[at + 8 : at + 8 + length])
        if kind == b"IEND":
            break
        at = end
    wanted = _png_bytes(blob)
    if wanted > _inflated_size(b"".join(packed), name, wanted):
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


def _inflated_size(packed: bytes, name: str, wanted: int) -> int:
    """How many bytes there are once unpacked; no more are unpacked than tells whether there are as many as wanted."""
    stream, total = zlib.decompressobj(), 0
    try:
        for part in pieces(len(packed), _PIECE):
            total += len(stream.decompress(packed[part]))
            if stream.eof or total > wanted:
                break
    except zlib.error as error:
        raise damaged(name, "its pixels cannot be unpacked") from error
    return total


def _text_size(kind: bytes, content: bytes) -> int:
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


class Decoded(NamedTuple):
    """Pixels of one picture, and how many pictures its file holds."""

    pixels: np.ndarray
    frames: int


def decode(blob: bytes, name: str, *, rule: DecodeRule) -> np.ndarray:
    """The view of a picture file by the rule, uint8 (H, W) or (H, W, 3); what is wrong with it is refused by name.

    >>> decode(b"P5 2 1 255 ab", "two.pgm", rule=DecodeRule()).tolist()
    [[97, 98]]
    """
    return fit(decode_whole(blob, name, rule).pixels, rule)


def decode_whole(blob: bytes, name: str, rule: DecodeRule) -> Decoded:
    """The whole picture as it was found, at its own size and mode, and the number of pictures that the file holds."""
    if not blob:
        raise DataError(f"{name}: the file is empty; leave it out or replace it")
    if len(blob) > rule.max_bytes:
        raise DataError(f"{name}: the file has {len(blob):,} bytes, at most {rule.max_bytes:,} are allowed")
    kind = sniff(blob)
    if kind is None:
        raise DataError(f"{name}: not a picture, or not in a supported format ({', '.join(FORMATS)})")
    check_container(blob, name, kind, rule)
    try:
        with _quiet(), Image.open(io.BytesIO(blob), formats=(kind,)) as image:
            frames = _choose_frame(image, name, rule)
            check_pixels(image.width, image.height, name, rule.max_pixels)
            check_depth(image.width, image.height, _bits(image), name, rule.max_decoded)
            image.load()
            return Decoded(whole_array(image, name, rule), frames)
    except (DataError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        limit = f"at most {rule.max_pixels:,} are allowed"
        raise DataError(f"{name}: far too many pixels, {limit}; make it smaller first") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: the {kind} file is damaged (its header cannot be read); replace it") from error
    except Exception as error:  # Pillow's plugins raise whatever their parser meets
        if "truncated" in str(error).lower():
            raise cut_short(name) from error
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{name}: the {kind} file is damaged ({reason}); replace it") from error


def picture_array(image: Image.Image, name: str, rule: DecodeRule) -> np.ndarray:
    """The view of a PIL image by the rule, uint8 (H, W) or (H, W, 3)."""
    return fit(whole_array(image, name, rule), rule)


def whole_array(image: Image.Image, name: str, rule: DecodeRule) -> np.ndarray:
    """Pixels of a PIL image at its own size and mode, uint8 (H, W) or (H, W, 3).

    An orientation that the image still carries is applied, so a photo opened with PIL is the one that its file is.
    """
    with suppress(SyntaxError):  # EXIF that is none, as in some photos, says nothing of an orientation
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied
            image = ImageOps.exif_transpose(image)
    if image.mode in _WIDE:
        pixels = _scaled(image, name, rule)
    elif image.mode in _ALPHA or "transparency" in image.info:
        pixels = _convert_bands(image, lambda band: _blend(band, rule.background))
    elif image.mode in _PLAIN:
        target = _PLAIN[image.mode]
        pixels = _convert_bands(image, lambda band: np.asarray(band if band.mode == target else band.convert(target)))
    else:
        raise DataError(f"{name}: pictures of mode {image.mode} are not supported; save it as 8-bit grey or RGB")
    return pixels


def fit(pixels: np.ndarray, rule: DecodeRule) -> np.ndarray:
    """What a network sees of uint8 pixels (H, W) or (H, W, 3): the mode, size and fit of the rule.

    >>> fit(np.zeros((4, 6), np.uint8), DecodeRule(mode="rgb", size=(2, 2))).shape
    (2, 2, 3)
    """
    target = {"grey": "L", "rgb": "RGB", None: "L" if pixels.ndim == 2 else "RGB"}[rule.mode]
    same_mode = (target == "L") == (pixels.ndim == 2)
    if same_mode and (rule.size is None or rule.size == pixels.shape[:2]):
        return pixels
    resized = rule.size is not None and rule.size != pixels.shape[:2]
    if resized and rule.fit in ("crop", None):
        left, top, right, bottom = _centre(pixels.shape[:2], rule.size or (1, 1))
        pixels = pixels[top:bottom, left:right]  # before the resizing, whose own box would mix in pixels from outside
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image = image if same_mode else image.convert(target)
    if rule.size is None or not resized:
        return np.asarray(image)
    return _padded(image, rule.size) if rule.fit == "pad" else _resized(image, rule.size)


def cut_away(shape: tuple[int, ...], size: tuple[int, int]) -> float:
    """The share of a picture (H, W) that lies outside the centre that `crop` keeps.

    >>> cut_away((100, 200), (64, 64))
    0.5
    """
    left, top, right, bottom = _centre(shape[:2], size)
    return 1 - (right - left) * (bottom - top) / (shape[0] * shape[1])


def _resized(image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def _padded(image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    """The whole picture at its own aspect in the middle of its mean colour."""
    scale = min(size[0] / image.height, size[1] / image.width)
    height, width = (max(1, min(most, round(side * scale))) for side, most in zip(image.size[::-1], size, strict=True))
    small = _resized(image, (height, width))
    whole = np.empty((*size, *small.shape[2:]), dtype=np.uint8)
    whole[:] = np.floor(small.mean((0, 1), dtype=np.float64) + 0.5).astype(np.uint8)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    whole[top : top + height, left : left + width] = small
    return whole


def _centre(shape: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The largest box of the new aspect in the middle of the picture: left, top, right, bottom."""
    height, width = shape
    rows, columns = size
    box_width = min(width, max(1, round(height * columns / rows)))
    box_height = min(height, max(1, round(width * rows / columns)))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def _choose_frame(image: Image.Image, name: str, rule: DecodeRule) -> int:
    frames = 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))
    if rule.frame is None and frames > 1:
        raise DataError(
            f"{name}: holds {frames} frames or pages; choose one of 0..{frames - 1} with frame (train --frame), or, "
            "for a trained run, save one of them as a picture"
        )
    if rule.frame is not None and 1 < frames <= rule.frame:  # a plain picture has no frames to choose from
        raise DataError(f"{name}: frame {rule.frame} asked for, the file holds {frames} (counted from 0)")
    if rule.frame is not None and frames > 1:
        image.seek(rule.frame)
    return frames


def _scaled(image: Image.Image, name: str, rule: DecodeRule) -> np.ndarray:
    ends = np.array([(part.min(), part.max()) for part in map(np.asarray, _bands(image))], dtype=np.float64)
    least, most = ends[:, 0].min(), ends[:, 1].max()  # NaN shows in both
    if not np.isfinite((least, most)).all():
        raise DataError(f"{name}: holds NaN or infinity; every pixel must be a finite number")
    if rule.value_range is None and image.mode == "F":
        raise DataError(f"{name}: a picture of floats ({least:g}..{most:g}) needs a declared range; {_DECLARE}")
    low, high = rule.value_range or (0.0, 65535.0)
    if least < low or most > high:
        raise DataError(f"{name}: values {least:g}..{most:g} lie outside {low:g}..{high:g}; {_DECLARE}")
    clear = image.info.get("transparency")

    def scaled(band: Image.Image) -> np.ndarray:
        values = np.asarray(band).astype(np.float64)
        pixels = np.floor((values - low) / (high - low) * 255 + 0.5).astype(np.uint8)
        if not isinstance(clear, int):
            return pixels
        return _mix(pixels, np.where(values == clear, np.uint8(0), np.uint8(255)), rule.background)

    return _convert_bands(image, scaled)


def _bits(image: Image.Image) -> int:
    """Bits of a pixel over all channels: those of a TIFF by its tags, else what Pillow keeps."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        depths = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))
        return int(max(depths) * image.tag_v2.get(TiffImagePlugin.SAMPLESPERPIXEL, 1))
    return {"I": 32, "F": 32}.get(image.mode, 16 if image.mode.startswith("I;16") else 8 * len(image.getbands()))


def _bands(image: Image.Image) -> Iterator[Image.Image]:
    """A picture from top to bottom in parts of some rows; a small one as it is."""
    rows = max(1, _BAND // max(1, image.width))
    if rows >= image.height:
        yield image
        return
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _convert_bands(image: Image.Image, convert: Callable[[Image.Image], np.ndarray]) -> np.ndarray:
    """The pixels that `convert` makes of each band: a large picture takes little more than its own room."""
    whole, top = np.empty(0, dtype=np.uint8), 0
    for band in _bands(image):
        part = convert(band)
        if band.height == image.height:
            return part
        if top == 0:
            whole = np.empty((image.height, *part.shape[1:]), dtype=np.uint8)
        whole[top : top + len(part)] = part
        top += len(part)
    return whole


def _blend(image: Image.Image, background: tuple[int, int, int]) -> np.ndarray:
    is_grey = image.mode in ("1", "L", "LA", "La")
    values = np.asarray(image.convert("LA" if is_grey else "RGBA"))
    return _mix(values[..., 0] if is_grey else values[..., :3], values[..., -1], background)


def _mix(colours: np.ndarray, alpha: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Blend grey (H, W) or colour (H, W, 3) onto the background; grey stays grey on a grey background."""
    grey = colours.ndim == 2 and len(set(background)) == 1
    behind = np.asarray(background[:1] if grey else background, dtype=np.uint16)
    front = colours[..., None] if colours.ndim == 2 else colours
    share = alpha[..., None].astype(np.uint16)  # 255 * 255 + 127 still fits
    mixed: np.ndarray = ((share * front + (255 - share) * behind + 127) // 255).astype(np.uint8)
    return mixed[..., 0] if grey else mixed


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Pillow's warnings from the user: what matters is refused. Threads share the filters, so they are counted."""
    with _QUIET.lock:
        if _QUIET.users == 0:
            _QUIET.saved = warnings.catch_warnings()
            _QUIET.saved.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\.")
        _QUIET.users += 1
    try:
        yield
    finally:
        with _QUIET.lock:
            _QUIET.users -= 1
            if _QUIET.users == 0 and _QUIET.saved is not None:
                _QUIET.saved.__exit__(None, None, None)
                _QUIET.saved = None


class _Quiet:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.saved: warnings.catch_warnings[None] | None = None


_QUIET = _Quiet()
_BAND = 2**18  # pixels that are converted at a time
_DECLARE = "pass value_range (train --value-range)"
_WIDE = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_PLAIN = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBX": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}
