"""The page of `provnet map`: an interactive map on a canvas, groups inside classes, misattributed test samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from provnet.answers.queries import Query, exemplar_evidence, explanation_cards
from provnet.data.apply import spec_name
from provnet.data.dataset import ImageData
from provnet.data.modalities.decode import are_pictures
from provnet.data.modalities.image import as_bytes, picture_of
from provnet.report.charts import figure_bytes, figure_for_print
from provnet.report.page import base64_numbers, json_block, render, with_script
from provnet.report.pictures import ACROSS, Sheets, sprite_sheets, strip, z_order
from provnet.report.records import ExplanationCard, Picture, visible
from provnet.report.sheet import face
from provnet.runs.data import Kept
from provnet.runs.run import Run
from provnet.tools.map.compute import SampleMap

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
        "xy": base64_numbers(steps, "<u2"),
        "label": base64_numbers(report.labels, "<i4"),
        "cluster": base64_numbers(report.cluster, "<u2"),
        "near": base64_numbers(report.near, "<i4"),
        "k": int(report.near.shape[1]),
        "names": [visible(name) for name in report.class_names],
        "ids": [visible(name) for name in report.ids],
        "side": sheets.side if sheets else 0,
        "across": ACROSS,
        "sheets": list(sheets.uris) if sheets else [],
    }


_GROUPS = 30  # classes whose groups are shown
_WORDS = 2_000  # quotes and commas between sheets, and a remark on their size


# ten colours for a white ground, as on the page: told apart also without full colour vision
COLOURS = (
    *("#0099dd", "#772200", "#227700", "#ff33bb", "#0000dd"),
    *("#bb8811", "#660099", "#aa5577", "#004455", "#7755ff"),
)
SHAPES = "os^D"  # one for each round of colours
NAMED = 40  # classes that are named on the picture
LONGEST = 22  # characters of a name, as on the page
EDGE = 6.0  # pixels between a name and the edge of the picture


def map_png(report: MapReport) -> bytes:
    """Training samples by class, the misattributed test samples as crosses."""
    with figure_for_print(9, 9) as drawing:
        axes = drawing.subplots()
        labels, xy = report.labels[: report.train], report.xy[: report.train]
        colours = np.array(COLOURS)[labels % len(COLOURS)]
        order = np.random.default_rng(0).permutation(report.train)  # no class on top of all others
        size = float(np.clip(30_000 / report.train, 1.2, 20))
        rounds = labels[order] // len(COLOURS) % len(SHAPES)
        for number, shape in enumerate(SHAPES):
            rows = order[rounds == number]
            if len(rows):
                axes.scatter(xy[rows, 0], xy[rows, 1], s=size, c=colours[rows], marker=shape, lw=0, rasterized=True)
        missed = report.xy[report.train :]
        if len(missed):
            axes.scatter(
                missed[:, 0], missed[:, 1], marker="x", s=26, c="black", lw=1, label="misattributed test samples"
            )
            axes.legend(loc="lower right", frameon=False)
        letters = face(12, "bold")
        sizes = np.bincount(labels, minlength=len(report.class_names))
        written = []
        for label in np.argsort(-sizes, kind="stable")[:NAMED].tolist():
            if not sizes[label]:
                break
            name = shortened(letters.clean(report.class_names[label]))
            middle = np.median(xy[labels == label], axis=0)
            words = axes.annotate(name, middle, ha="center", va="center", weight="bold", fontsize=12, parse_math=False)
            words.set_in_layout(False)  # a long name at the edge must not make the map small
            words.set_bbox({"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1.5})
            written.append(words)
        axes.set_axis_off()
        axes.set_aspect("equal")
        title = f"{report.train:,} training samples by the last hidden layer of the index branch (t-SNE)"
        if len(report.class_names) > len(COLOURS) * len(SHAPES):
            title += f"\nsigns repeat after {len(COLOURS) * len(SHAPES)} of {len(report.class_names):,} classes"
        axes.set_title(title)
        make_room(drawing, written)
        return figure_bytes(drawing)


def shortened(name: str) -> str:
    """A long name less its middle: its end tells it from others.

    >>> shortened("n02085782-Japanese_spaniel"), shortened("dog")
    ('n02085782-J…e_spaniel', 'dog')
    """
    return f"{name[:11]}…{name[-9:]}" if len(name) > LONGEST else name


def make_room(drawing: Any, written: list[Any]) -> None:
    """Move names that reach over the edge inside, and leave those out that would lie on one that stands before them."""
    drawing.canvas.draw()  # places are known only now
    frame, taken = drawing.bbox, list[Any]()
    for words in written:
        box = words.get_window_extent()
        aside = max(EDGE - box.x0, 0.0) - max(box.x1 - frame.x1 + EDGE, 0.0)
        up = max(EDGE - box.y0, 0.0) - max(box.y1 - frame.y1 + EDGE, 0.0)
        if aside or up:
            words.set_position(words.axes.transData.inverted().transform(_shifted(words, aside, up)))
            box = words.get_window_extent()
        words.set_visible(not any(box.overlaps(other) for other in taken))
        if words.get_visible():
            taken.append(box)


def _shifted(words: Any, aside: float, up: float) -> tuple[float, float]:
    x, y = words.axes.transData.transform(words.get_position())
    return x + aside, y + up


def map_report(
    run: Run, found: SampleMap, training: Kept, tests: ImageData | None, about: Mapping[str, Any], cards: int
) -> MapReport:
    """Entries: samples on the map, misattributed test samples, then exemplars that a limit left off the map."""
    missed_named = np.full((len(found.test_rows), found.exemplars.shape[1]), -1, dtype=np.int64)
    if found.misattributed is not None:  # fewer columns where all classes are small
        missed_named[:, : found.misattributed.index.shape[1]] = found.misattributed.index
    named = [found.exemplars, missed_named]
    wanted = np.unique(np.concatenate([part.reshape(-1) for part in named]))
    extra = np.setdiff1d(wanted[wanted >= 0], found.index)
    places = len(found.index) + len(found.test_rows)
    entry = np.full(len(run.samples) + 1, -1, dtype=np.int64)  # the last stands for "none"
    entry[found.index] = np.arange(len(found.index))
    entry[extra] = places + np.arange(len(extra))
    members = np.concatenate([found.index, extra])
    ids = [run.samples.sample_ids[i] for i in found.index.tolist()]
    labels = [run.samples.labels[found.index]]
    if tests is not None:
        ids += [tests.samples.sample_ids[i] for i in found.test_rows.tolist()]
        labels.append(tests.samples.labels[found.test_rows])
    ids += [run.samples.sample_ids[i] for i in extra.tolist()]
    labels.append(run.samples.labels[extra])
    pictures = _pictures(training, members, tests, found.test_rows, len(found.index))
    missed = about["misattributed"]
    words = "" if missed is None else f"{len(found.test_rows):,} of {missed['n']:,}"
    words += "" if missed is None or missed["low"] is None else f" ({missed['low']:.2%} to {missed['high']:.2%})"
    words += f"; for {found.unnamed:,} more no sample may be named" if found.unnamed else ""
    facts = [
        ("Made by", f"{about['engine']} in {about['embedding_seconds']:.1f} s, perplexity {about['perplexity']:g}"),
        ("Seed", str(about["seed"])),
        ("Samples not shown", f"{about['withheld']:,} withheld, {about['left_out']:,} left out"),
        *([("Misattributed", words)] if words else []),
        ("Model SHA-256", str(about["model_sha256"])),
        ("Data fingerprint", run.samples.fingerprint),
    ]
    return MapReport(
        title="Map of the training samples",
        data=spec_name(run.config.data),
        class_names=run.samples.class_names,
        xy=np.concatenate([found.xy, found.test_xy]),
        train=len(found.index),
        labels=np.concatenate(labels),
        cluster=found.cluster,
        ids=ids,
        near=entry[np.concatenate(named)],
        pictures=pictures,
        groups=_groups(run, found, training),
        cards=_cards(found, training, tests, cards),
        missed=len(found.test_rows),
        tested=found.tested,
        facts=facts,
    )


def _pictures(
    training: Kept, members: np.ndarray, tests: ImageData | None, test_rows: np.ndarray, before: int
) -> np.ndarray | None:
    """(e, H, W) or (e, H, W, 3) in the order of the entries; None where samples are no pictures."""
    images = training.there.images.numpy()
    if not are_pictures(images) or images.shape[1] not in (1, 3):
        return None
    row = np.zeros(int(training.index.max()) + 1, dtype=np.int64)
    row[training.index] = np.arange(len(training.index))
    there = np.isin(members, training.index)  # an exemplar whose file is gone has no picture: it stays black
    chosen = as_bytes(images[row[np.where(there, members, training.index[0])]])
    chosen = chosen * there[:, None, None, None].astype(np.uint8)
    parts = [chosen[:before], chosen[before:]]
    if tests is not None:
        parts.insert(1, as_bytes(tests.images.numpy()[test_rows]))
    every = np.concatenate(parts)
    return every[:, 0] if every.shape[1] == 1 else np.ascontiguousarray(every.transpose(0, 2, 3, 1))


def _groups(run: Run, found: SampleMap, training: Kept) -> list[tuple[str, list[ClusterCard]]]:

    rows = {int(index): row for row, index in enumerate(training.index)}
    groups: dict[int, list[ClusterCard]] = {}
    for one in found.clusters:
        images = [training.there.images[rows[i]].numpy() for i in one.nearest.tolist()]
        pictures = [picture for image in images if (picture := picture_of(image)) is not None]
        ids = [run.samples.sample_ids[i] for i in one.nearest.tolist()]
        card = ClusterCard(one.number + 1, len(one.members), ids, strip(pictures) if pictures else None)
        groups.setdefault(one.label, []).append(card)
    return [(run.samples.class_names[label], cards) for label, cards in groups.items()]


def _cards(found: SampleMap, training: Kept, tests: ImageData | None, most: int) -> list[ExplanationCard]:
    """The first misattributed test samples with their exemplars."""
    if tests is None or found.misattributed is None or not len(found.test_rows[:most]):
        return []
    few = found.misattributed[slice(0, most)]
    queries = [
        Query(
            tests.samples.sample_ids[i],
            tests.images[i].numpy(),
            tests.samples.hex(i),
            tests.class_names[int(tests.samples.labels[i])],
        )
        for i in found.test_rows[:most].tolist()
    ]
    return explanation_cards(few, queries, exemplar_evidence(few, training.there))
