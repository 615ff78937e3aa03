"""The page of `provnet credit`: ranking with intervals, Lorenz curve, the samples behind it. Plain records in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provnet.data.dataset import ImageData
from provnet.report.charts import Plot, line, square_plot
from provnet.report.page import render
from provnet.report.pictures import pictures_of
from provnet.report.records import ExemplarCard, count, percent
from provnet.runs.run import Run
from provnet.samples.csvfile import csv_text, quoted
from provnet.tools.credit.compute import Credit

SHOWN = 100  # contributors in the ranking of the page; the CSV has all


@dataclass(frozen=True, eq=False)
class Leader:
    """A leading contributor and their samples with the most credit; a card's weight is its share of their credit."""

    name: str
    share: str
    samples: tuple[ExemplarCard, ...]


@dataclass(frozen=True, eq=False)
class CreditReport:
    """Everything that the page shows.

    Attributes:
        run, network: the run folder, and its network in words.
        queries: where the queries come from.
        by: where the contributors come from.
        values: what credit.json holds; see `provnet.tools.credit.compute`.
        leaders: the first contributors with their samples.
        notes: remarks on samples and ids that do not fit together.
        facts: more `(name, value)` lines.
    """

    run: str
    network: str
    queries: str
    by: str
    values: Mapping[str, Any]
    leaders: tuple[Leader, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the ranking; `width`, `low` and `high` are lengths, the longest bar is 1."""

    name: str
    listed: bool
    rank: str
    share: str
    ends: str
    width: float
    low: float
    high: float
    samples: str
    lift: str
    words: str


def credit_html(report: CreditReport) -> str:
    """Draw the page of `provnet credit` as one self-contained HTML file."""
    people = report.values["contributors"]
    return render(
        "credit.html.j2",
        title="Credit",
        report=report,
        rows=[ranking_row(one, _longest(people)) for one in people[:SHOWN]],
        more=max(0, len(people) - SHOWN),
        tiles=tiles(report.values),
        plot=lorenz_plot(report.values),
    )


def ranking_row(one: Mapping[str, Any], longest: float) -> Row:
    """A contributor as text and lengths."""
    share = one["share"]
    name, listed, samples = one["name"], one["listed"], count(one["samples"])
    if share["value"] is None:
        return Row(name, listed, "-", "-", "", 0.0, 0.0, 0.0, samples, "-", share.get("why", ""))
    low, high = share["low"], share["high"]
    rank = str(one["rank"])
    words = f"rank {one['rank_low']} to {one['rank_high']} in 95 % of the draws, first in {percent(one['first'])}"
    ends = f"{percent(low).removesuffix(' %')} to {percent(high)}"
    width, start, end = (value / longest for value in (share["value"], low, high))
    lift = f"{one['lift']:.2f}"
    return Row(name, listed, rank, percent(share["value"]), ends, width, start, end, samples, lift, words)


def lorenz_plot(values: Mapping[str, Any]) -> Plot | None:
    """Shares of credit over shares of contributors, beside those of their samples."""
    if not values["lorenz"]:
        return None
    lines = [
        line("equal shares", "guess", ((0.0, 0.0), (1.0, 1.0))),
        line("number of samples", "k1 dash", _points(values["lorenz_samples"]), f"Gini {values['gini_samples']:.3f}"),
        line("credit", "k0", _points(values["lorenz"]), f"Gini {values['gini']['value']:.3f}"),
    ]
    words = f"Lorenz curve of credit, Gini {values['gini']['value']:.3f}"
    return square_plot("Lorenz curve", words, ("contributors, least first", "share of the credit"), lines)


def tiles(values: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(title, figure, interval, words) of the key figures."""
    total = values["queries"]
    found = [("Queries that credit somebody", count(values["supported"]), f"of {count(total)}", _counted(values))]
    first = values["contributors"][0] if values["contributors"] else None
    if first is not None and first["share"]["value"] is not None:
        row = ranking_row(first, 1.0)
        found.append(("Largest share", row.share, row.ends, first["name"]))
    if values["gini"]["value"] is not None:
        gini = values["gini"]
        ends = f"{gini['low']:.3f} to {gini['high']:.3f}"
        found.append(("Gini coefficient", f"{gini['value']:.3f}", ends, "0: all have the same; near 1: one has all"))
    return [*found, ("Withheld samples", count(values["withheld"]), "", "never credited")]


def _counted(values: Mapping[str, Any]) -> str:
    words = f"{count(values['unsupported'])} without a supporting sample credit nobody"
    return words + (f"; {count(values['unnamed'])} have only withheld samples" if values["unnamed"] else "")


def _points(points: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((x, y) for x, y in points)


def _longest(people: list[Mapping[str, Any]]) -> float:
    return max((one["share"]["high"] or 0.0 for one in people), default=0.0) or 1.0


SAMPLES = 5


def credit_report(
    run: Run,
    found: Credit,
    values: dict[str, Any],
    notes: Sequence[str],
    parts: Sequence[ImageData],
    top: int,
) -> bytes:
    """The page; `parts` are the training data as they are now, `top` is how many contributors are shown."""
    config, about = run.config.network, values["about"]
    page = credit_html(
        CreditReport(
            run=about["run"],
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            queries=about["queries"],
            by=about["by"],
            values=values,
            leaders=_leaders(run, found, parts, top),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _leaders(run: Run, found: Credit, parts: Sequence[ImageData], top: int) -> tuple[Leader, ...]:
    first = [(place, one) for place, one in enumerate(found.ranking) if one.share.value][:top]
    leaders = []
    for place, one in first:
        best = found.top(place, SAMPLES)
        whole = max(one.share.value or 0.0, 1e-12)
        cards = tuple(
            ExemplarCard(
                picture=seen.picture,
                sample_id=run.samples.sample_ids[i],
                sha256=run.samples.hex(i),
                label=run.samples.class_names[int(run.samples.labels[i])],
                weight=min(float(found.by_sample[i]) / whole, 1.0),
                note=seen.words,
            )
            for i, seen in zip(best.tolist(), pictures_of(run.samples, parts, best), strict=True)
        )
        leaders.append(Leader(one.name, f"{percent(one.share.value or 0.0)} of the credit", cards))
    return tuple(leaders)


def credit_csv(found: Credit) -> str:
    """The ranking as CSV, one line a contributor; a name that a spreadsheet would take for a formula gets a quote."""
    lines: list[list[object]] = [["rank", "contributor", "share", "low", "high", "queries", "samples", "lift", "first"]]
    for one in found.ranking:
        numbers = [one.share.value, one.share.low, one.share.high]
        cells = ["" if value is None else f"{value:.8f}" for value in numbers]
        lift = "" if one.lift is None else f"{one.lift:.6f}"
        lines.append([one.rank, quoted(one.name), *cells, one.share.n, one.samples, lift, f"{one.first:.4f}"])
    return csv_text(lines)
