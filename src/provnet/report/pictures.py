"""Pictures for reports: pixels in, a data URI or a picture of a wanted size out."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, features

from provnet.base.errors import UsageError
from provnet.data.dataset import Dataset
from provnet.data.evidence import Evidence, evidence
from provnet.report.records import Passage, Picture, passage
from provnet.samples.identity import SampleTable

LONGEST = 720  # pixels of a picture on a page that is looked at in full size


def to_image(picture: Picture) -> Image.Image:
    """Turn pixels into a Pillow image, grey or RGB.

    >>> to_image(np.zeros((2, 3), np.uint8)).size
    (3, 2)
    """
    pixels = np.asarray(picture)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    good = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not good or pixels.size == 0:
        raise UsageError(
            f"a picture of shape {pixels.shape} and type {pixels.dtype}; allowed: uint8 (H, W) or (H, W, 3), not empty"
        )
    return Image.fromarray(np.ascontiguousarray(pixels))


def data_uri(picture: Picture, longest: int = 320) -> str:
    """Encode pixels as a data URI, a photograph as JPEG; larger pictures are scaled down to keep the page small.

    >>> data_uri(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    image = to_image(picture)
    if max(image.size) > longest:
        image = scale_to_box(image, longest)
    buffer, kind = io.BytesIO(), "PNG" if is_small(picture) else "JPEG"
    image.save(buffer, kind, optimize=True, **({} if kind == "PNG" else {"quality": 82}))
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def pictures_of(
    samples: SampleTable,
    data: Dataset | Sequence[Dataset] | None,
    index: Iterable[int] | np.ndarray,
    longest: int = LONGEST,
) -> list[Evidence]:
    """The evidence of some training samples, with pictures as large as a page shows them: read one by one, then shrunk.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> pictures_of(data.samples, data, [3])[0].picture.shape
    (28, 28)
    """
    found = []
    for one in np.asarray(index, dtype=np.int64).reshape(-1).tolist():
        (seen,) = evidence(samples, data, [one])
        found.append(seen if seen.picture is None else Evidence(no_larger(seen.picture, longest), seen.note, seen.text))
    return found


def sight(seen: Evidence, longest: int = LONGEST, beside: Sequence[str] = ()) -> Picture | Passage | None:
    """What a page shows of a sample: its picture, or its text with the words marked that stand in others, too."""
    if seen.picture is not None:
        return no_larger(seen.picture, longest)
    return passage(seen.text, beside) if seen.text else None


def no_larger(picture: Picture, longest: int = LONGEST) -> Picture:
    """The picture, its longer side at most `longest`.

    >>> no_larger(np.zeros((2000, 1000), np.uint8)).shape
    (720, 360)
    """
    if max(picture.shape[:2]) <= longest:
        return picture
    return np.asarray(scale_to_box(to_image(picture), longest))


def is_small(picture: Picture) -> bool:
    """Whether a picture has so few pixels that they should stay visible as squares when it is enlarged.

    >>> is_small(np.zeros((28, 28), np.uint8)), is_small(np.zeros((250, 250, 3), np.uint8))
    (True, False)
    """
    return max(int(side) for side in picture.shape[:2]) <= SMALL


def scale_to_box(image: Image.Image, box: int) -> Image.Image:
    """Scale an image so that its longer side is `box`: few pixels stay crisp squares, many are averaged.

    >>> scale_to_box(Image.new("L", (14, 28)), 56).size
    (28, 56)
    """
    width, height = image.size
    scale = box / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    crisp = scale > 1 and max(width, height) <= SMALL
    return image.resize(size, Image.Resampling.NEAREST if crisp else Image.Resampling.LANCZOS)


SMALL = 96  # longest side, in pixels, of a picture that is shown pixel by pixel


ACROSS = 24  # thumbnails in a row of a sheet; a sheet of 576 is unpacked in a few milliseconds
PER_SHEET = ACROSS * ACROSS
SIDES = (64, 48, 32, 28, 20, 14)
QUALITIES = (85, 60, 35, 15)
TRIED = 4  # sheets that a size is estimated from


@dataclass(frozen=True)
class Sheets:
    """Sheets as data URIs; thumbnail i is number i % PER_SHEET of sheet i // PER_SHEET, row by row."""

    uris: tuple[str, ...]
    side: int
    quality: int

    @property
    def bytes(self) -> int:
        """What they add to a page."""
        return sum(map(len, self.uris))


def sprite_sheets(pictures: np.ndarray, budget: int) -> Sheets | None:
    """Thumbnails of uint8 pictures (n, H, W) or (n, H, W, 3) within a budget of bytes; None where none fits.

    Larger is tried before finer: first the picture's own size (at most 64 pixels), then smaller ones.

    >>> made = sprite_sheets(np.zeros((3, 28, 28), np.uint8), 100_000)
    >>> made.side, len(made.uris)
    (28, 1)
    """
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4) or len(pictures) == 0:
        raise UsageError(
            f"thumbnails are made of uint8 (n, H, W) or (n, H, W, 3), got {pictures.dtype} {pictures.shape}"
        )
    longest = max(pictures.shape[1:3])
    sides = [min(longest, SIDES[0]), *(side for side in SIDES[1:] if side < min(longest, SIDES[0]))]
    sheets = -(-len(pictures) // PER_SHEET)
    probe = np.unique(np.linspace(0, sheets - 1, min(TRIED, sheets)).round().astype(int))
    for side in sides:
        for quality in QUALITIES if _WEBP else (100,):
            tried = sum(len(_encoded(_part(pictures, int(i)), side, quality)) for i in probe)
            if tried * sheets / len(probe) > budget * 0.97:
                continue
            made = tuple(_encoded(_part(pictures, i), side, quality) for i in range(sheets))
            if sum(map(len, made)) <= budget:
                return Sheets(made, side, quality)
    return None


def z_order(xy: np.ndarray) -> np.ndarray:
    """An order in which points that are near each other on the plane mostly stand near each other.

    >>> z_order(np.array([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0]])).tolist()
    [0, 2, 1]
    """
    low, high = xy.min(0), xy.max(0)
    cells = ((xy - low) / np.where(high > low, high - low, 1) * 1023).astype(np.int64)
    code = np.zeros(len(xy), dtype=np.int64)
    for bit in range(10):
        code |= ((cells[:, 0] >> bit) & 1) << (2 * bit) | ((cells[:, 1] >> bit) & 1) << (2 * bit + 1)
    return np.argsort(code, kind="stable")


def _part(pictures: np.ndarray, number: int) -> np.ndarray:
    return pictures[number * PER_SHEET : (number + 1) * PER_SHEET]


def _encoded(pictures: np.ndarray, side: int, quality: int) -> str:
    small = _resized(pictures, side)
    rows = -(-len(small) // ACROSS)
    room = np.zeros((rows * ACROSS, *small.shape[1:]), dtype=np.uint8)
    room[: len(small)] = small
    grid = room.reshape(rows, ACROSS, *small.shape[1:]).swapaxes(1, 2)
    sheet = Image.fromarray(np.ascontiguousarray(grid.reshape(rows * side, ACROSS * side, *small.shape[3:])))
    buffer = io.BytesIO()
    if _WEBP:
        sheet.save(buffer, "WEBP", quality=quality, method=4)
    else:
        sheet.save(buffer, "PNG", optimize=True)
    kind = "webp" if _WEBP else "png"
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _resized(pictures: np.ndarray, side: int) -> np.ndarray:
    """Squares of `side`: the whole picture in the middle, black around it."""
    height, width = pictures.shape[1:3]
    if (height, width) == (side, side):
        return pictures
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    how = Image.Resampling.NEAREST if scale > 1 and max(height, width) <= SMALL else Image.Resampling.BOX
    out = np.zeros((len(pictures), side, side, *pictures.shape[3:]), dtype=np.uint8)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    for row, picture in enumerate(pictures):
        made = np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize(size, how))
        out[row, top : top + size[1], left : left + size[0]] = made
    return out


def strip(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures of one size side by side, a dark pixel around each.

    >>> strip([np.zeros((28, 28), np.uint8)] * 4).shape
    (30, 120)
    """
    edge = [np.pad(one, ((1, 1), (1, 1), *(((0, 0),) if one.ndim == 3 else ()))) for one in pictures]
    return np.concatenate(edge, axis=1)


_WEBP = features.check("webp")
