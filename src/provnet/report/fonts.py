"""Fonts for drawn pictures: the best one found, and text reduced to the characters that it has."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from PIL import ImageFont

from provnet.report.text import visible

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, eq=False)
class Face:
    """One font at one size; text goes through `clean` before it is measured or drawn."""

    font: Font
    known: dict[str, bool] = field(default_factory=dict)

    def clean(self, text: str) -> str:
        """Text that this font can draw: unknown letters lose their accents, unknown signs become a question mark."""
        return "".join(self._drawable(character) for character in unicodedata.normalize("NFC", visible(text)))

    def width(self, text: str) -> float:
        """Width of cleaned text in pixels."""
        return float(self.font.getlength(text))

    def shorten(self, text: str, width: float, *, middle: bool = False) -> str:
        """Cleaned text cut to a width, at its end or in its middle (for paths), with three dots for what is missing."""
        whole = self.clean(text)
        if self.width(whole) <= width:
            return whole
        low, high = 0, len(whole)
        while low < high:  # the most characters that fit
            kept = (low + high + 1) // 2
            low, high = (kept, high) if self.width(_cut(whole, kept, middle)) <= width else (low, kept - 1)
        return _cut(whole, low, middle)

    def lines(self, text: str, width: float, most: int) -> list[str]:
        """Cleaned text broken into at most `most` lines of a width; the last one is shortened."""
        found: list[str] = []
        rest = self.clean(text)
        while rest and len(found) < most - 1 and self.width(rest) > width:
            fits = max(1, len(self.shorten(rest, width)) - len(_DOTS))
            space = rest.rfind(" ", 1, fits + 1)
            end = space if space > 0 else fits
            found.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        return [*found, self.shorten(rest, width)] if rest or not found else found

    def _drawable(self, character: str) -> str:
        if self._has(character):
            return character
        plain = "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))
        plain = _PLAIN.get(character, plain)
        if plain and all(self._has(part) for part in plain):
            return plain
        invisible = unicodedata.category(character) in ("Mn", "Me", "Cf")  # accents, joiners, variation selectors
        return "" if invisible else "?"

    def _has(self, character: str) -> bool:
        if character not in self.known:
            self.known[character] = character == " " or self._glyph(character) not in (None, self._glyph(_NOBODY))
        return self.known[character]

    def _glyph(self, character: str) -> tuple[tuple[int, int], bytes] | None:
        try:
            mask = self.font.getmask(character)
        except (OSError, ValueError, UnicodeError):
            return None
        return mask.size, bytes(mask)


@cache
def face(size: int, style: str = "regular") -> Face:
    """Find a font at a size; style is `regular`, `bold` or `mono`.

    >>> face(20).clean("plain text")
    'plain text'
    """
    for name in FILES[style]:
        for place in (*_folders(), None):  # None: wherever the system keeps its fonts
            try:
                return Face(ImageFont.truetype(name if place is None else str(place / name), size))
            except OSError:
                continue
    return Face(ImageFont.load_default(size))


def undrawn(names: Iterable[str]) -> int:
    """How many names have signs that drawn pictures show as a question mark.

    >>> undrawn(["plain", "Gr\u00f6\u00dfe"])
    0
    """
    plain = face(24)
    return sum(plain.clean(name).count("?") > name.count("?") for name in names)


@cache
def _folders() -> tuple[Path, ...]:
    try:
        import matplotlib
    except ImportError:  # an extra; its fonts are only nicer
        return ()
    return (Path(matplotlib.get_data_path()) / "fonts" / "ttf",)


def _cut(text: str, kept: int, middle: bool) -> str:
    tail = kept // 2 if middle else 0
    return text[: kept - tail].rstrip() + _DOTS + (text[len(text) - tail :] if tail else "")


FILES = {
    "regular": ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "NotoSans-Regular.ttf", "Arial.ttf"),
    "bold": ("DejaVuSans-Bold.ttf", "LiberationSans-Bold.ttf", "NotoSans-Bold.ttf", "Arial Bold.ttf"),
    "mono": ("DejaVuSansMono.ttf", "LiberationMono-Regular.ttf", "NotoSansMono-Regular.ttf", "Courier New.ttf"),
}

_DOTS = "..."
_NOBODY = "\U0010fffe"  # a code that no font has: shows what the font draws for unknown characters
_PLAIN = {
    "ß": "ss",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "æ": "ae",
    "Æ": "AE",
    "œ": "oe",
    "–": "-",
    "—": "-",
    "×": "x",
}
