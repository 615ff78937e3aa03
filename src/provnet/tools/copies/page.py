"""The page of `provnet attribute`: near-copies side by side, sources of each image, totals. Plain records in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from provnet.answers.explanation import exemplar_card
from provnet.answers.queries import Query, explanation_cards
from provnet.data.dataset import ImageData
from provnet.data.evidence import Evidence, evidence
from provnet.data.modalities.image import picture_of
from provnet.report.charts import Path, Plot, histogram_plot
from provnet.report.page import render
from provnet.report.pictures import no_larger, pictures_of
from provnet.report.records import ExemplarCard, ExplanationCard, Picture, count, percent
from provnet.runs.run import Run
from provnet.samples.csvfile import csv_text, quoted
from provnet.samples.identity import Exemplar
from provnet.tools.copies.compute import Traced

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


def attribute_report(
    run: Run,
    found: Traced,
    queries: list[Query],
    values: dict[str, Any],
    notes: Sequence[str],
    parts: Sequence[ImageData],
    top: int,
) -> bytes:
    """The page; `parts` are the training data as they are now, `top` limits what is shown of each kind."""
    order = np.lexsort((found.ratio, ~found.near_copy))[:top]
    flagged = order[found.near_copy[order]]
    sources = found.sources(min(top, 24))
    index = found.explanation.index[order]
    wanted = np.unique(
        np.concatenate([index[index >= 0], found.copy_index[flagged], [one.sample.index for one in sources]])
    ).astype(np.int64)
    pictures = dict(zip(wanted.tolist(), pictures_of(run.samples, parts, wanted), strict=True))
    config, about, nearest = run.config.network, values["about"], found.copies
    copies = []
    for row in flagged.tolist():
        image, sample = picture_of(queries[row].image), _card(nearest[row], pictures)
        view = evidence(run.samples, parts, [nearest[row].index])[0].view  # the network's views lie over each other
        shown = queries[row].shown
        copies.append(
            CopyCard(
                picture=None if shown is None else no_larger(shown),
                difference=difference(image if queries[row].image.dtype == np.uint8 else None, view),
                name=queries[row].name,
                sample=sample,
                ratio=float(found.ratio[row]),
                p_value=float(found.p_value[row]),
                exact=bool(found.exact[row]),
            )
        )
    chosen = [queries[row] for row in order.tolist()]
    page = attribution_html(
        AttributionReport(
            run=about["run"],
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            images="; ".join(about["images"][:5]) + ("; and more" if len(about["images"]) > 5 else ""),
            values=values,
            ratios=found.ratio.tolist(),
            reference=found.calibration.scores.tolist(),
            copies=tuple(copies),
            cards=tuple(explanation_cards(found.explanation[order], chosen, pictures)),
            sources=tuple(SourceCard(_card(one.sample, pictures), one.first, one.copies) for one in sources),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
            hidden=(int(found.near_copy.sum()) - len(flagged), len(found) - len(order)),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _card(sample: Exemplar, pictures: dict[int, Evidence]) -> ExemplarCard:

    return exemplar_card(sample, pictures[sample.index])


def images_csv(records: list[dict[str, Any]]) -> str:
    """One line an image; a name that a spreadsheet would take for a formula gets a quote."""
    head = ["input", "near_copy", "equal_pixels", "copy_of", "copy_sha256", "ratio", "p_value", "predicted"]
    head += ["confidence", "supported", "first_exemplar", "first_sha256", "first_weight", "pixel_distance"]
    rows = []
    for one in records:
        copy, first = one["near_copy"], next(iter(one["exemplars"]), None)
        rows.append([
            quoted(one["input"]), copy["verdict"], copy["equal_pixels"], quoted(copy["of"]["sample_id"]),
            copy["of"]["sha256"], f"{copy['ratio']:.6f}", f"{copy['p_value']:.6g}", quoted(one["predicted"]),
            f"{one['confidence']:.6f}", one["supported"], quoted(first["sample_id"]) if first else "",
            first["sha256"] if first else "", f"{first['weight']:.6f}" if first else "",
            f"{one['control']['pixels']['distance']:.6f}", f"{one['control']['features']['distance']:.6f}",
        ])  # fmt: skip
    return csv_text([[*head, "feature_distance"], *rows])


def sources_csv(found: Traced) -> str:
    """One line a training sample behind the images."""
    head = ["sample_id", "sha256", "label", "share", "first_of_images", "near_copies"]
    rows: list[list[Any]] = []
    for one in found.sources():
        sample = one.sample
        names = [quoted(sample.sample_id), sample.sha256, quoted(sample.label)]
        rows.append([*names, f"{sample.weight:.8f}", one.first, one.copies])
    return csv_text([head, *rows])
