"""HTML pages from plain records: one file that loads nothing, runs no script and trusts no name."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from provnet.base.errors import UsageError
from provnet.base.files import file_size
from provnet.report import pictures
from provnet.report.records import ExplanationCard, Picture, count, percent, seconds, visible, width
from provnet.report.sheet import weight_words


def explanation_html(cards: Sequence[ExplanationCard], *, title: str, subtitle: str = "") -> str:
    """Draw explained inputs as one self-contained HTML page.

    >>> page = explanation_html([ExplanationCard(None, "a.png", "<u>", 0.9, True)], title="One digit")
    >>> "&lt;u&gt;" in page, "<u>" in page
    (True, False)
    """
    return render("explanation.html.j2", title=title, subtitle=subtitle, cards=cards, summary=_summary(cards))


def render(template: str, **values: Any) -> str:
    """Fill one of the templates in this folder; every value is made visible and escaped, and its size is bounded.

    >>> render("explanation.html.j2", title="A & B", subtitle="", cards=[], summary=[])[:15]
    '<!doctype html>'
    """
    page, part = "", _environment().get_template(template)
    for longest in SIDES:
        with _longest(longest):
            page = part.render(**values) + "\n"
        if len(page) <= LARGEST:
            break
    return page


LARGEST = 12_000_000  # characters of a page; where it has more, its pictures are made smaller
SIDES = (pictures.LONGEST, 400, 240, 128, 64)
_SIDE: ContextVar[int] = ContextVar("side", default=SIDES[0])


@contextmanager
def _longest(side: int) -> Iterator[None]:
    """Meanwhile pictures have at most this many pixels a side."""
    before = _SIDE.set(side)
    try:
        yield
    finally:
        _SIDE.reset(before)


def _data_uri(picture: Picture, longest: int | None = None) -> str:
    return pictures.data_uri(picture, _SIDE.get() if longest is None else longest)


def _summary(cards: Sequence[ExplanationCard]) -> list[tuple[str, str]]:
    """Counts for the head of the page, as (number, words)."""
    known = [card for card in cards if card.truth is not None]
    right = sum(card.predicted == card.truth for card in known)
    supported = sum(card.supported for card in cards)
    lines = [(count(len(cards)), "input" if len(cards) == 1 else "inputs"), (count(supported), "supported")]
    if supported < len(cards):
        lines.append((count(len(cards) - supported), "without support"))
    if known:
        lines.append((count(right), "right"))
        lines.append((count(len(known) - right), "wrong"))
    return lines


def _finalize(value: Any) -> Any:
    """Make foreign text visible just before it is escaped; markup of our own macros passes."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value


def _exact(value: Any) -> str:
    """Names for the page's script as they are, character by character: ASCII that nothing makes visible or changes."""
    return json.dumps(value)


def _ends(name: str) -> tuple[str, str]:
    """Split a long name so that a narrow column can cut its middle: the end of a path tells most."""
    if len(name) <= 16 or any(_must_not_cut(character) for character in name):
        return name, ""
    start, columns = len(name), 0
    while (columns := columns + 1 + (unicodedata.east_asian_width(name[start - 1]) in "WF")) <= 9:  # as in style.css
        start -= 1
    return name[:start], name[start:]


def _must_not_cut(character: str) -> bool:
    """Whether a cut could tear it from its letter (accents), or swap the halves (letters from right to left)."""
    if unicodedata.bidirectional(character) in ("R", "AL", "AN", "RLE", "RLO", "RLI"):
        return True
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf") or unicodedata.combining(character) > 0


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        carried=weight_words,
        count=count,
        data_uri=_data_uri,
        ends=_ends,
        exact=_exact,
        percent=percent,
        seconds=seconds,
        size=file_size,
        width=width,
    )
    environment.tests["small"] = pictures.is_small
    environment.tests["passage"] = lambda seen: isinstance(seen, tuple)
    return environment


POLICY = "default-src 'none';"


def with_script(page: str, *names: str) -> str:
    """Put the scripts of these names (files beside the templates), as one, at the end of a rendered page.

    >>> page = with_script(f"<meta content=\\"{POLICY}\\"><body></body>", "map.js")
    >>> page.count("<script>"), "script-src 'sha256-" in page
    (1, True)
    """
    script = "".join((Path(__file__).parent / "templates" / name).read_text("utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    if page.count(POLICY) != 1 or page.count("</body>") != 1 or "</script" in script:
        raise UsageError("a page with a script needs one policy and one end of its body, the script no end tag")
    page = page.replace(POLICY, f"{POLICY} script-src 'sha256-{digest}';")
    return page.replace("</body>", f"<script>{script}</script>\n</body>")


def json_block(value: Any) -> Markup:
    """JSON that can stand inside a script element: no character of it can end the element.

    >>> "<" in json_block("</script>"), json.loads(json_block("</script>"))
    (False, '</script>')
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def base64_numbers(values: np.ndarray, kind: str) -> str:
    """Numbers as base64, little-endian, of a type such as `<u2`; those that it cannot hold are refused.

    >>> base64_numbers(np.array([1, 2]), "<u2")
    'AQACAA=='
    """
    made = np.ascontiguousarray(values).astype(kind)
    if not np.array_equal(made, values):
        raise UsageError(f"a page holds numbers as {kind}, {values.min()}..{values.max()} do not fit; show fewer")
    return base64.b64encode(made.tobytes()).decode("ascii")
