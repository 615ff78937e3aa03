"""Whether one picture was made of another, told by their pixels: written again, resized, mirrored, cut or painted over.

Both whole pictures are compared, block by block, at the size of the original (256 pixels at most). Blocks without
structure agree by chance, such as those of a white background, and count for nothing. A part of a picture is searched
for in all places, by correlation, and then compared in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

LONGEST = 256  # of the original, in pixels, as it is compared
BLOCK = 8
SMALLEST = 64  # pixels of the shorter side of an original; blocks of smaller ones, as of digits, agree by chance
STRUCTURE = 8.0  # grey levels of standard deviation, below which a block is plain
CLOSE, NEAR = 0.5, 4.0  # a block agrees within so much of its own spread, or so many grey levels
LEAST, SHARE = 16, 0.15  # blocks with structure, and the share of them that agree in a picture made of another
CHANGED, WHOLE = 12.0, 0.98  # grey levels by which a block is another, and the share of others in an unchanged picture
SEARCHED = 128  # longest side of the original where a part of it is searched
SCALES = tuple(1.02**step for step in range(-20, 36))  # pixels of the part for each pixel of the original
FOUND, AGREED = 0.8, 0.5  # correlation of a part that is looked at closely, and the share of its blocks that agree


@dataclass(frozen=True)
class Likeness:
    """What was done to a picture.

    Attributes:
        kind: `re-encoded`, `resized`, `mirrored`, `cropped` or `painted`.
        share: how much of the original it shows unchanged, 0..1.
    """

    kind: str
    share: float

    @property
    def words(self) -> str:
        """What is said of it, as the end of a sentence.

        >>> Likeness("painted", 0.35).words
        'that picture with about 65 % of it changed'
        """
        gone = f"about {100 * (1 - self.share):.0f} %"
        return {
            "re-encoded": "that picture, saved again with small changes of its values",
            "resized": "that picture in another size",
            "mirrored": "that picture, mirrored" + (f", with {gone} of it changed" if self.share < WHOLE else ""),
            "cropped": f"a part of that picture, {gone} of which is cut away",
            "painted": f"that picture with {gone} of it changed",
        }[self.kind]


def likeness(picture: np.ndarray, original: np.ndarray) -> Likeness | None:
    """What a picture (H, W) or (H, W, 3) is of an original; None where their pixels do not tell that it was made of it.

    >>> original = np.random.default_rng(0).integers(0, 256, (32, 40)).repeat(4, 0).repeat(4, 1).astype(np.uint8)
    >>> likeness(original[:, ::-1], original).kind, likeness(original[::2, ::2], original).kind
    ('mirrored', 'resized')
    """
    if min(original.shape[:2]) < SMALLEST:
        return None
    wanted = _reduced(original, LONGEST)
    straight, turned = (_fit(each, wanted) for each in (picture, picture[:, ::-1]))
    agreeing, mirrored = _agreeing(straight, wanted), _agreeing(turned, wanted)
    if max(agreeing, mirrored) < SHARE:
        return _part(picture, original)
    if mirrored > agreeing:
        return Likeness("mirrored", _kept(turned, wanted))
    same_size, kept = picture.shape[:2] == original.shape[:2], _kept(straight, wanted)
    if kept >= WHOLE:
        return Likeness("re-encoded" if same_size else "resized", kept)
    part = _part(picture, original)
    return part if part is not None and part.kind == "cropped" else Likeness("painted", kept)


def can_tell(original: np.ndarray) -> bool:
    """Whether a picture has enough structure for copies of it to be known by their pixels; a digit of 28 x 28 has not.

    >>> can_tell(np.zeros((64, 64), np.uint8)), can_tell(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8))
    (False, True)
    """
    if min(original.shape[:2]) < SMALLEST:
        return False
    spread = _blocks(_reduced(original, LONGEST)).std(1)
    return int((spread > STRUCTURE).sum()) >= min(LEAST, len(spread))


def _grey(picture: np.ndarray) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture))
    return image if image.mode == "L" else image.convert("L")


def _reduced(picture: np.ndarray, longest: int) -> np.ndarray:
    """Grey values, no side above `longest`."""
    image = _grey(picture)
    scale = min(1.0, longest / max(image.size))
    size = tuple(max(1, round(side * scale)) for side in image.size)
    return np.asarray(image.resize((size[0], size[1]), Image.Resampling.BOX), dtype=np.float32)


def _fit(picture: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.asarray(_grey(picture).resize(like.shape[::-1], Image.Resampling.BOX), dtype=np.float32)


def _agreeing(picture: np.ndarray, original: np.ndarray) -> float:
    """The share of the blocks with structure that agree, 0..1; 0 where there are too few to tell."""
    one, other = _blocks(picture), _blocks(original)
    spread = np.maximum(one.std(1), other.std(1))
    told = spread > STRUCTURE
    if int(told.sum()) < min(LEAST, len(told)):
        return 0.0
    close = np.abs(one - other).mean(1) < np.maximum(NEAR, CLOSE * np.minimum(one.std(1), other.std(1)))
    return float(close[told].mean())


def _kept(picture: np.ndarray, original: np.ndarray) -> float:
    """The share of all blocks that are not clearly others, 0..1."""
    one, other = _blocks(picture), _blocks(original)
    return float((np.abs(one - other).mean(1) < np.maximum(CHANGED, other.std(1))).mean())


def _blocks(values: np.ndarray) -> np.ndarray:
    """(n, 64) blocks of 8 x 8, those at the lower and right edge left out."""
    rows, columns = (max(1, side // BLOCK) for side in values.shape)
    size = [min(BLOCK, side) for side in values.shape]
    part = values[: rows * size[0], : columns * size[1]]
    return part.reshape(rows, size[0], columns, size[1]).transpose(0, 2, 1, 3).reshape(rows * columns, -1)


def _part(picture: np.ndarray, original: np.ndarray) -> Likeness | None:
    """The part of an original that a picture is, as it is or enlarged; None where it is none."""
    height, width = original.shape[:2]
    coarse = _reduced(original, SEARCHED)
    own = coarse.shape[0] / height
    best, at, scale = 0.0, (0, 0), 1.0
    search = _Search(coarse)
    for each in SCALES:
        rows, columns = (round(side / each * own) for side in picture.shape[:2])
        if rows > coarse.shape[0] or columns > coarse.shape[1] or min(rows, columns) < 2 * BLOCK:
            continue
        value, place = search.place_of(_resized(picture, rows, columns))
        if value > best:
            best, at, scale = value, place, each
    if best < FOUND:
        return None
    share, agreeing = 0.0, 0.0
    for each in (scale * step for step in (0.985, 0.99, 0.995, 1.0, 1.005, 1.01, 1.015)):
        rows, columns = round(picture.shape[0] / each), round(picture.shape[1] / each)
        for top, left in _near(at, own, (height - rows, width - columns)):
            there = original[top : top + rows, left : left + columns]
            wanted = _reduced(there, LONGEST)
            found = _agreeing(_fit(picture, wanted), wanted)
            if found > agreeing:
                share, agreeing = rows * columns / (height * width), found
    if agreeing < AGREED:
        return None
    return Likeness("cropped" if share < WHOLE else "resized", share)


def _near(at: tuple[int, int], own: float, room: tuple[int, int]) -> list[tuple[int, int]]:
    """Places around the one that was found, in pixels of the original."""
    reach = max(1, round(1 / own))
    if min(room) < 0:
        return []
    steps = range(-reach, reach + 1)
    tops, lefts = (
        sorted({min(max(round(place / own) + step, 0), most) for step in steps})
        for place, most in zip(at, room, strict=True)
    )
    return [(top, left) for top in tops for left in lefts]


def _resized(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.asarray(_grey(picture).resize((columns, rows), Image.Resampling.BOX), dtype=np.float32)


class _Search:
    """Places of a picture that look like a part."""

    def __init__(self, whole: np.ndarray) -> None:
        self.shape = whole.shape
        self.spectrum = np.fft.rfft2(whole)
        values = whole.astype(np.float64)
        self.sums, self.squares = (np.pad(each.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for each in (values, values**2))

    def place_of(self, part: np.ndarray) -> tuple[float, tuple[int, int]]:
        """The highest correlation of a part with a place, and that place."""
        rows, columns = part.shape
        centred = part - part.mean()
        norm = float(np.sqrt((centred**2).sum()))
        if norm == 0:
            return 0.0, (0, 0)
        product = np.fft.irfft2(self.spectrum * np.conj(np.fft.rfft2(centred, self.shape)), self.shape)
        sums, squares = (_windows(each, rows, columns) for each in (self.sums, self.squares))
        spread = np.sqrt(np.maximum(squares - sums**2 / (rows * columns), 1.0))
        values = product[: sums.shape[0], : sums.shape[1]] / (norm * spread)
        place = np.unravel_index(int(values.argmax()), values.shape)
        return float(values[place]), (int(place[0]), int(place[1]))


def _windows(total: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The sum over a window at each place, of sums from the corner."""
    below, above = total[rows:], total[:-rows]
    return np.asarray(below[:, columns:] - above[:, columns:] - below[:, :-columns] + above[:, :-columns])
