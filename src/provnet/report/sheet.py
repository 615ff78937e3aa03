"""Explained inputs outside of a page: a contact sheet as one picture, and a piece of HTML for notebooks.

The sheet is drawn with Pillow alone. The HTML loads nothing, runs no script, and trusts no name.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from provnet.base.errors import UsageError
from provnet.report.pictures import data_uri, is_small, scale_to_box, to_image
from provnet.report.records import ExemplarCard, ExplanationCard, Passage, Picture, count, percent, visible, width

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


def count_undrawable(names: Iterable[str]) -> int:
    """How many names have signs that drawn pictures show as a question mark.

    >>> count_undrawable(["plain", "Gr\u00f6\u00dfe"])
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


def explanation_png(cards: Sequence[ExplanationCard]) -> Image.Image:
    """Draw each input with its answer, and its exemplars with weight bars, one row an input.

    >>> explanation_png([ExplanationCard(None, "a.png", "7", 0.9, True)]).mode
    'RGB'
    """
    if not 1 <= len(cards) <= MOST_CARDS:
        raise UsageError(
            f"{len(cards)} inputs for one picture; allowed: 1 to {MOST_CARDS}. Write a page (--html) instead"
        )
    columns = max(1, min(PER_LINE, max(len(_drawn(card)) for card in cards)))
    width = max(EXEMPLARS_AT + columns * (EXEMPLAR + COLUMN_GAP) - COLUMN_GAP, NARROWEST) + 2 * MARGIN
    tops = list(accumulate((_height(card) + GAP for card in cards), initial=MARGIN))
    sheet = Image.new("RGB", (width, tops[-1] - GAP + MARGIN), PAGE)
    draw = ImageDraw.Draw(sheet)
    for card, top in zip(cards, tops, strict=False):
        if top > MARGIN:
            draw.line((MARGIN, top - GAP // 2, width - MARGIN, top - GAP // 2), fill=LINE, width=2)
        _draw_card(sheet, draw, card, top, width)
    return sheet


def weight_words(weights: Sequence[float]) -> str:
    """What exemplars carry of an explanation, and all other samples: small weights of a large run are no fault.

    >>> weight_words([0.04, 0.03])
    'Together these carry 7.0 %, all other samples 93.0 %.'
    """
    if not weights:
        return ""
    total = sum(weights)
    rest = max(1 - total, 0.0) if math.isfinite(total) else total
    if len(weights) == 1:
        return f"This one carries {percent(total)}, all other samples together {percent(rest)}."
    return f"Together these carry {percent(total)}, all other samples {percent(rest)}."


HEADINGS = ("Recognised by these training samples", "Depends on these training samples")


def _drawn(card: ExplanationCard) -> tuple[ExemplarCard, ...]:
    """The samples that a picture has room for: those that the answer depends on, if that was asked."""
    return card.exemplars if card.depends_on is None else card.depends_on


def _height(card: ExplanationCard) -> int:
    lines = -(-len(_drawn(card)) // PER_LINE)
    left = QUERY + NAME + (0 if card.rebuilt is None else REBUILT + ROW_GAP)
    return max(left, ANSWER + HEADING + lines * LINE_HEIGHT - (ROW_GAP - CARRIED if lines else 0)) + GAP // 2


def _draw_card(sheet: Image.Image, draw: ImageDraw.ImageDraw, card: ExplanationCard, top: int, width: int) -> None:
    top += GAP // 4
    _paste(sheet, draw, card.query, (MARGIN, top), QUERY, "input not shown")
    mono = face(19, "mono")
    draw.text((MARGIN, top + QUERY + 14), mono.shorten(card.name, QUERY, middle=True), fill=SOFT, font=mono.font)

    if card.rebuilt is not None:
        below = top + QUERY + NAME + ROW_GAP // 2
        _paste(sheet, draw, card.rebuilt, (MARGIN, below), REBUILT, "")
        draw.text((MARGIN + REBUILT + 14, below), "rebuilt", fill=SOFT, font=face(20).font)

    left = MARGIN + EXEMPLARS_AT
    room = width - MARGIN - left
    bold, mark = face(40, "bold"), face(24, "bold")
    predicted = bold.shorten(card.predicted, room if card.truth is None else room * 0.62)
    baseline = top + 34
    draw.text((left, baseline), predicted, fill=INK, font=bold.font, anchor="ls")
    if card.truth is not None:
        right = card.truth == card.predicted
        at = left + bold.width(predicted) + 24
        words = mark.shorten("right" if right else f"wrong, it is {card.truth}", left + room - at)
        draw.text((at, baseline), words, fill=GOOD if right else BAD, font=mark.font, anchor="ls")
    _bar(draw, (left, top + 62), CONFIDENCE, 12, card.confidence, ACCENT)
    words = f"{percent(card.confidence)} confidence"
    draw.text((left + CONFIDENCE + 18, top + 68), words, fill=SOFT, font=face(22).font, anchor="lm")

    if card.supported:
        seen = "" if card.over == "Predicted" else f"{card.over[:1].upper()}{card.over[1:]} {card.predicted}. "
        words, colour = seen + (HEADINGS[card.depends_on is not None] if _drawn(card) else "Supported"), SOFT
    else:
        words = "No supporting training sample" + (": only nearest ones" if _drawn(card) else "")
        colour = WARN
    heading = face(23, "regular" if card.supported else "bold")
    draw.text((left, top + ANSWER), heading.shorten(words, room), fill=colour, font=heading.font)
    for number, item in enumerate(_drawn(card)):
        x = left + number % PER_LINE * (EXEMPLAR + COLUMN_GAP)
        y = top + ANSWER + HEADING + number // PER_LINE * LINE_HEIGHT
        _draw_exemplar(sheet, draw, item, (x, y), faded=not card.supported)
    if _drawn(card):
        small, below = face(20), top + ANSWER + HEADING - (-len(_drawn(card)) // PER_LINE) * LINE_HEIGHT - ROW_GAP
        whole = (
            card.depends_words
            if card.depends_on is not None
            else weight_words([item.weight for item in card.exemplars])
        )
        line = small.shorten(whole, room)
        draw.text((left, below + CARRIED // 4), line, fill=SOFT, font=small.font)


def _draw_exemplar(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, item: ExemplarCard, at: tuple[int, int], *, faded: bool
) -> None:
    x, y = at
    _paste(sheet, draw, item.picture, at, EXEMPLAR, item.note or "no picture", faded=faded)
    y += EXEMPLAR + 10
    label = face(24, "regular" if faded else "bold")
    draw.text((x, y), label.shorten(item.label, EXEMPLAR), fill=SOFT if faded else INK, font=label.font)
    y += 38
    share, number = item.words, face(20)
    _bar(draw, (x, y + 6), BAR, 12, item.weight, SOFT if faded else ACCENT)
    draw.text((x + EXEMPLAR - number.width(share), y), share, fill=INK, font=number.font)
    y += 32
    mono = face(17, "mono")
    draw.text((x, y), mono.shorten(item.sample_id, EXEMPLAR, middle=True), fill=INK, font=mono.font)
    draw.text((x, y + 24), mono.shorten(item.sha256[:12], EXEMPLAR), fill=SOFT, font=mono.font)


def _paste(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    picture: Picture | Passage | None,
    at: tuple[int, int],
    box: int,
    why: str,
    *,
    faded: bool = False,
) -> None:
    """A picture in the middle of its box, a text in a frame, or a frame with the reason why there is neither."""
    x, y = at
    if picture is None or isinstance(picture, tuple):
        draw.rectangle((x, y, x + box - 1, y + box - 1), outline=LINE, width=3)
        words, text = face(20), why if picture is None else "".join(piece for piece, _ in picture)
        for number, line in enumerate(words.lines(text, box - 32, 4 if picture is None else (box - 32) // 27)):
            draw.text((x + 16, y + 16 + number * 27), line, fill=SOFT, font=words.font)
        return
    image = scale_to_box(to_image(picture), box)
    if faded:
        image = Image.blend(image.convert("L").convert("RGB"), Image.new("RGB", image.size, PAGE), 0.45)
    draw.rectangle((x, y, x + box - 1, y + box - 1), fill=SUNK)
    sheet.paste(image.convert("RGB"), (x + (box - image.width) // 2, y + (box - image.height) // 2))


def _bar(draw: ImageDraw.ImageDraw, at: tuple[int, int], width: int, height: int, share: float, colour: str) -> None:
    x, y = at
    filled = round(width * min(max(share, 0.0), 1.0)) if math.isfinite(share) else 0
    draw.rectangle((x, y, x + width - 1, y + height - 1), fill=TRACK)
    if filled:
        draw.rectangle((x, y, x + filled - 1, y + height - 1), fill=colour)


# all lengths in pixels, for a screen of twice the usual density; 252 and 196 enlarge 28 pixels by whole numbers
MARGIN, GAP, ROW_GAP, COLUMN_GAP = 48, 64, 28, 28
QUERY, NAME, EXEMPLAR, BAR, REBUILT = 252, 40, 196, 104, 140
CONFIDENCE, ANSWER, HEADING, CAPTION, CARRIED = 392, 104, 44, 132, 40
LINE_HEIGHT = EXEMPLAR + CAPTION + ROW_GAP
EXEMPLARS_AT = QUERY + 56
NARROWEST = 1000
PER_LINE = 5
MOST_CARDS = 100

PAGE, SUNK, LINE, TRACK = "#ffffff", "#f1efea", "#d9d5cc", "#e7e4dd"
INK, SOFT, ACCENT, GOOD, BAD, WARN = "#1c2028", "#575e6b", "#2f5bb7", "#17693f", "#a82f27", "#7a4f00"


@dataclass(frozen=True)
class Shown:
    """HTML that a notebook draws where it is the last value of a cell; `html` is its text."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def cards_html(cards: Sequence[ExplanationCard], notes: Sequence[str] = ()) -> str:
    """Draw each input with its answer and its exemplars, then `notes` on what is not shown.

    Colours are those of the notebook, light or dark; every name is made visible and escaped.

    >>> card = ExplanationCard(None, "0", "<b>", 0.9, True, (ExemplarCard(None, "train/7", "ab" * 32, "7", 0.5),))
    >>> page = cards_html([card])
    >>> "&lt;b&gt;" in page, "<b>" in page, "train/7" in page
    (True, False, True)
    """
    lines = [f'<div style="{_SMALL}">{_text(note)}</div>' for note in notes]
    return f'<div style="{_PAGE}">{"".join(map(_card, cards))}{"".join(lines)}</div>'


def _card(card: ExplanationCard) -> str:
    """One input: its picture, the answer, and a column for each exemplar; pale where they are no evidence."""
    faded = "" if card.supported else "opacity:.55;"
    support = "" if card.supported else f'<div style="{_WARN}">no supporting sample: those shown are nearest only</div>'
    none = "" if card.exemplars else f'<div style="{_SMALL}">no sample to name</div>'
    head = (
        f'<div style="{_SMALL}">input {_text(card.name)}</div>{_picture(card.query, 96, "picture of the input")}'
        f'<div><strong dir="auto">{_text(card.predicted)}</strong> {percent(card.confidence)}</div>{support}'
    )
    columns = "".join(map(_exemplar, card.exemplars))
    return (
        f'<div style="{_ROW}"><div style="width:9em">{head}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:.8em;{faded}">{columns}{none}</div></div>'
    )


def _exemplar(item: ExemplarCard) -> str:
    note = f'<div style="{_SMALL}">{_text(item.note)}</div>' if item.note else ""
    bar = f'<div style="height:4px;width:{width(item.weight)};background:#0072b2"></div>'
    return (
        f'<div style="width:8em;overflow-wrap:anywhere">{_picture(item.picture, 72, "picture of the sample")}'
        f'<div><strong dir="auto">{_text(item.label)}</strong> {item.words}</div>{bar}'
        f'<div dir="auto">{_text(item.sample_id)}</div>'
        f'<code style="{_SMALL}" title="SHA-256 {_text(item.sha256)}">{_text(item.sha256[:12])}</code>{note}</div>'
    )


def _picture(pixels: Picture | Passage | None, box: int, words: str) -> str:
    if pixels is None:
        return ""
    if isinstance(pixels, tuple):
        said = "".join(f"<mark>{_text(piece)}</mark>" if marked else _text(piece) for piece, marked in pixels)
        return f'<div dir="auto" style="{_PASSAGE}">{said}</div>'
    crisp = "image-rendering:pixelated;" if is_small(pixels) else ""
    style = f"width:{box}px;height:{box}px;object-fit:contain;{crisp}"
    return f'<img alt="{words}" src="{data_uri(pixels)}" style="{style}">'


def _text(value: str) -> str:
    return escape(visible(value))


def omission_notes(inputs: int, exemplars: int, withheld: int) -> list[str]:
    """What a page says of inputs and exemplars that it does not show.

    >>> omission_notes(1_200, 0, 1)
    ['1,200 more inputs, not shown: slice the explanation', '1 withheld, not shown']
    """
    told = [
        (inputs, "more inputs, not shown: slice the explanation"),
        (exemplars, "more exemplars of those inputs, not shown"),
        (withheld, "withheld, not shown"),
    ]
    return [f"{count(number)} {words}" for number, words in told if number]


_PAGE = "font-size:13px;line-height:1.35;color:inherit"
_ROW = "display:flex;gap:1.2em;padding:.6em 0;border-bottom:1px solid rgba(128,128,128,.35)"
_PASSAGE = "max-height:9em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere"
_SMALL = "font-size:11px;opacity:.75"
_WARN = "font-size:11px;font-weight:bold;color:#d55e00"
