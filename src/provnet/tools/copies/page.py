"""The page of `provnet attribute`: near-copies side by side, sources of each image, totals. Plain records in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from provnet.report.charts import Path, Plot, histogram_plot
from provnet.report.page import render
from provnet.report.records import ExemplarCard, ExplanationCard, Picture
from provnet.report.text import count, percent

BINS, WIDEST = 36, 1.2


@dataclass(frozen=True, eq=False)
class CopyCard:
    """A near-copy beside the training sample that it copies.

    Attributes:
        picture, difference: the image, and where it differs; None where it cannot be shown.
        name: what the image is called.
        sample: the training sample; its weight is the likeness.
        ratio, p_value: what the verdict rests on; `exact` says that the pixels are equal.
    """

    picture: Picture | None
    difference: Picture | None
    name: str
    sample: ExemplarCard
    ratio: float
    p_value: float
    exact: bool

    @property
    def times(self) -> int:
        """How many times brighter the difference may be drawn; 0 where there is none."""
        largest = 0 if self.difference is None else int(self.difference.max())
        return 255 // largest if largest else 0

    @property
    def brightened(self) -> Picture | None:
        """The difference, as many times brighter: that of a near-copy is black to the eye."""
        return None if self.difference is None else self.difference * np.uint8(max(self.times, 1))


@dataclass(frozen=True, eq=False)
class SourceCard:
    """A training sample behind the images: its card (weight: share of all), first exemplar of how many, copied."""

    sample: ExemplarCard
    first: int
    copies: int


@dataclass(frozen=True, eq=False)
class AttributionReport:
    """Everything that the page shows.

    Attributes:
        run, network: the run folder, and its network in words.
        images: where the images come from.
        values: what attribution.json holds; see `provnet.tools.copies.compute`.
        ratios, reference: copy ratios of the images, and of the pictures of the calibration.
        copies: near-copies, the nearest first.
        cards: explained images; of near-copies too.
        sources: the training samples used most.
        notes: remarks; facts: more `(name, value)` lines.
        hidden: near-copies and images that are not on the page.
    """

    run: str
    network: str
    images: str
    values: Mapping[str, Any]
    ratios: Sequence[float]
    reference: Sequence[float]
    copies: tuple[CopyCard, ...] = ()
    cards: tuple[ExplanationCard, ...] = ()
    sources: tuple[SourceCard, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    hidden: tuple[int, int] = (0, 0)


def attribution_html(report: AttributionReport) -> str:
    """Draw the page of `provnet attribute` as one self-contained HTML file."""
    return render(
        "attribution.html.j2",
        title="Attribution of generated images",
        report=report,
        tiles=tiles(report.values),
        plot=ratio_plot(report),
        controls=controls(report.values),
        largest=max((one.sample.weight for one in report.sources), default=0.0) or 1.0,
    )


def tiles(values: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(title, figure, interval, words) of the key figures."""
    total, calibration = values["images"], values["calibration"]
    words = {
        "supported": "training samples stand behind them",
        "abstained": "no training sample supports them",
        "near_copies": f"of {count(values['copied_samples'])} training samples",
    }
    found = [("Images", count(total), "", f"compared with {count(values['compared'])} training pictures")]
    for name, title in (("supported", "Supported"), ("abstained", "Abstained"), ("near_copies", "Near-copies")):
        rate = values[name]
        ends = f"{percent(rate['low']).removesuffix(' %')} to {percent(rate['high'])}"
        number = round(rate["value"] * total)
        found.append((title, count(number), f"{percent(rate['value'])} ({ends})", words[name]))
    if calibration["threshold"] is None:
        cannot = "only equal pixels are flagged: too few pictures to set a threshold"
        found[-1] = (*found[-1][:3], cannot)
    return found


def ratio_plot(report: AttributionReport) -> Plot:
    """Copy ratios of the images against those of the calibration, with the threshold."""
    edges = np.linspace(0.0, WIDEST, BINS + 1)
    counts = [
        np.histogram(np.clip([value for value in values if np.isfinite(value)], 0.0, WIDEST), edges)[0].tolist()
        for values in (report.ratios, report.reference)  # infinite: unlike any training picture
    ]
    plot = histogram_plot("Copy ratio", "copy ratio", edges.tolist(), counts[0], counts[1])
    threshold = report.values["calibration"]["threshold"]
    paths = [
        replace(plot.paths[0], name="no copies", words="no copies"),
        replace(plot.paths[1], name="these images", words="these images"),
    ]
    if threshold is not None:
        cut = f"M{plot.frame.x(threshold / WIDEST):g} {plot.frame.top}V{plot.frame.bottom}"
        paths.append(Path("threshold", cut, "cut", f"{threshold:.3f}", words=f"threshold, {threshold:.3f}"))
    words = f"Copy ratios of {len(report.ratios):,} images and of {len(report.reference):,} pictures that are no copies"
    return replace(plot, paths=tuple(paths), words=words)


def controls(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(space, median of the images, median of pictures that are no copies)."""
    return [
        (SPACES.get(name, name), f"{one['median']:.3f}", f"{one['reference_median']:.3f}")
        for name, one in values["control"].items()
    ]


def difference(one: Picture | None, other: Picture | None) -> Picture | None:
    """How far two pictures differ at each pixel, as a picture; None where they cannot be laid over each other.

    >>> difference(np.full((1, 1), 9, np.uint8), np.full((1, 1), 12, np.uint8)).tolist()
    [[3]]
    """
    if one is None or other is None or one.shape != other.shape:
        return None
    return np.abs(one.astype(np.int16) - other.astype(np.int16)).astype(np.uint8)


SPACES = {
    "pixels": "pixels (root mean square, 0 to 1)",
    "features": "the run's features (length one, 0 to 2)",
}
