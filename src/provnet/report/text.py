"""Text for reports: foreign names made visible, shares and counts as people read them."""

from __future__ import annotations

import math
import unicodedata


def visible(text: str) -> str:
    r"""Replace what a page or a terminal would obey rather than show; everything printable stays as it is.

    Control characters, and bytes of a file name that were no UTF-8, are written as Python writes them.

    >>> print(visible("a\x1b[31m\nß"))
    a\x1b[31m\nß
    >>> print(visible("caf\udce9.png"))
    caf\xe9.png
    """
    if text.isprintable():  # nearly always
        return text
    return "".join(_shown(character) for character in text)


def percent(share: float, digits: int = 1) -> str:
    """Write a share as a percentage that never rounds up to all or down to none; the page of the app writes it alike.

    Two more digits are shown where they are needed; beyond them stands only that it is not quite all, or not none.

    >>> percent(0.974), percent(1.0), percent(0.99996), percent(0.00002), percent(float("nan"))
    ('97.4 %', '100 %', '99.996 %', '0.002 %', 'n/a')
    >>> percent(0.9999999), percent(1e-8), percent(0.0)
    ('> 99.999 %', '< 0.001 %', '0 %')
    """
    if not math.isfinite(share):
        return "n/a"
    if min(abs(share), abs(share - 1)) < FLOAT:
        return f"{abs(share) * 100:.0f} %"
    for places in range(digits, digits + 3):
        written = f"{share * 100:.{places}f}"
        if float(written) not in (0.0, 100.0):
            return f"{written} %"
    least = 10.0 ** -(digits + 2)
    return f"< {least:.{digits + 2}f} %" if share < 0.5 else f"> {100 - least:.{digits + 2}f} %"


def width(share: float) -> str:
    """Give a share as a CSS length between 0 and 100 %.

    >>> width(0.25), width(1.7), width(float("nan"))
    ('25.00%', '100.00%', '0.00%')
    """
    return f"{min(max(share, 0.0), 1.0) * 100 if math.isfinite(share) else 0.0:.2f}%"


def count(number: int) -> str:
    """Write a count with thousands separated.

    >>> count(60000)
    '60,000'
    """
    return f"{number:,}"


def seconds(value: float) -> str:
    """Write a duration.

    >>> seconds(0.42), seconds(21.43), seconds(75), seconds(7260)
    ('0.4 s', '21.4 s', '1 min 15 s', '2 h 1 min')
    """
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return _SHORT.get(character, f"\\x{code:02x}")
    if 0xDC80 <= code <= 0xDCFF:  # what os.fsdecode makes of a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    # lone surrogates, C1 controls, non-characters, and characters that re-order or break up the text around them
    hidden = unicodedata.category(character) in ("Cs", "Cc") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    if hidden or character in _REORDERING:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


FLOAT = 1e-9  # nearer to all or to none than this is an error of float arithmetic
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
