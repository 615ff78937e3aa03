"""Explained inputs as a piece of HTML for notebooks: it loads nothing, runs no script, and trusts no name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from provnet.report.pictures import data_uri, is_small
from provnet.report.records import ExemplarCard, ExplanationCard, Picture
from provnet.report.text import count, percent, visible, width


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
        f'<div><strong dir="auto">{_text(item.label)}</strong> {percent(item.weight)}</div>{bar}'
        f'<div dir="auto">{_text(item.sample_id)}</div>'
        f'<code style="{_SMALL}" title="SHA-256 {_text(item.sha256)}">{_text(item.sha256[:12])}</code>{note}</div>'
    )


def _picture(pixels: Picture | None, box: int, words: str) -> str:
    if pixels is None:
        return ""
    crisp = "image-rendering:pixelated;" if is_small(pixels) else ""
    style = f"width:{box}px;height:{box}px;object-fit:contain;{crisp}"
    return f'<img alt="{words}" src="{data_uri(pixels)}" style="{style}">'


def _text(value: str) -> str:
    return escape(visible(value))


def left_out(inputs: int, exemplars: int, withheld: int) -> list[str]:
    """What a page says of inputs and exemplars that it does not show.

    >>> left_out(1_200, 0, 1)
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
_SMALL = "font-size:11px;opacity:.75"
_WARN = "font-size:11px;font-weight:bold;color:#d55e00"
