"""The page of `provnet map`: an interactive map on a canvas, groups inside classes, misattributed test samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from provnet.report.page import render
from provnet.report.records import ExplanationCard, Picture
from provnet.report.scripted import json_block, packed, with_script
from provnet.report.sprites import ACROSS, Sheets, sprite_sheets, z_order
from provnet.report.text import visible

BUDGET = 14_500_000  # bytes of the whole page
GRID = 65_535  # places are rounded to so many steps: finer than any screen


@dataclass(frozen=True, eq=False)
class ClusterCard:
    """A group of a class: its number from 1, how many it has, and its nearest samples, as pictures in a row or none."""

    number: int
    size: int
    ids: Sequence[str]
    strip: Picture | None = None


@dataclass(frozen=True, eq=False)
class MapReport:
    """Everything that the page shows. Entries are training samples, then misattributed test samples, then others.

    Attributes:
        title, data: what is shown.
        class_names: one a class.
        xy: (p, 2) places of the first p entries.
        train: how many of those are training samples; the others are misattributed test samples.
        labels: (e,) class of every entry, the true one for test samples.
        cluster: (train,) number of its group within its class, from 0.
        ids: (e,) of every entry.
        near: (p, K) entries named for each place, -1 where there are fewer.
        pictures: (e, H, W) or (e, H, W, 3) uint8, or None where there are no pictures.
        groups: (class name, its groups).
        cards: explained misattributed test samples.
        missed, tested: how many test samples were misattributed, of how many; tested 0 means none was looked at.
        facts: (name, value) lines.
    """

    title: str
    data: str
    class_names: Sequence[str]
    xy: np.ndarray
    train: int
    labels: np.ndarray
    cluster: np.ndarray
    ids: Sequence[str]
    near: np.ndarray
    pictures: np.ndarray | None
    groups: Sequence[tuple[str, Sequence[ClusterCard]]] = ()
    cards: Sequence[ExplanationCard] = ()
    missed: int = 0
    tested: int = 0
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)


@dataclass(frozen=True)
class MapPage:
    """The page, and what became of the thumbnails: their side and quality, or None where they did not fit."""

    html: str
    sheets: Sheets | None


def map_html(report: MapReport, budget: int = BUDGET) -> MapPage:
    """Draw the page as one self-contained HTML file; thumbnails get what the rest leaves of `budget` bytes."""
    report = _ordered(report)
    bare = len(_rendered(report, None).encode("utf-8", "replace")) + _WORDS
    sheets = None
    if report.pictures is not None:
        sheets = sprite_sheets(report.pictures, budget - bare) if budget > bare else None
    return MapPage(_rendered(report, sheets), sheets)


def _rendered(report: MapReport, sheets: Sheets | None) -> str:
    payload = json_block(_payload(report, sheets))
    page = render("map.html.j2", title=report.title, report=report, sheets=sheets, payload=payload, most=_GROUPS)
    return with_script(page, "map_marks.js", "map_pictures.js", "map_find.js", "map.js")


def _ordered(report: MapReport) -> MapReport:
    """Training samples in an order along the map: neighbours then share a sheet, which loads and packs better."""
    order = np.arange(len(report.ids))
    order[: report.train] = z_order(report.xy[: report.train])
    places = len(report.xy)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    near = report.near[order[:places]]
    return replace(
        report,
        xy=report.xy[order[:places]],
        labels=report.labels[order],
        cluster=report.cluster[order[: report.train]],
        ids=[report.ids[i] for i in order.tolist()],
        near=np.where(near >= 0, back[near], -1),
        pictures=None if report.pictures is None else report.pictures[order],
    )


def _payload(report: MapReport, sheets: Sheets | None) -> dict[str, object]:
    low, high = report.xy.min(0), report.xy.max(0)
    span = float(max(high - low)) or 1.0
    steps = np.round((report.xy - (low + high) / 2) / span * (GRID - 1) + GRID / 2).clip(0, GRID)
    return {
        "places": len(report.xy),
        "train": report.train,
        "xy": packed(steps, "<u2"),
        "label": packed(report.labels, "<i4"),
        "cluster": packed(report.cluster, "<u2"),
        "near": packed(report.near, "<i4"),
        "k": int(report.near.shape[1]),
        "names": [visible(name) for name in report.class_names],
        "ids": [visible(name) for name in report.ids],
        "side": sheets.side if sheets else 0,
        "across": ACROSS,
        "sheets": list(sheets.uris) if sheets else [],
    }


_GROUPS = 30  # classes whose groups are shown
_WORDS = 2_000  # quotes and commas between sheets, and a remark on their size
