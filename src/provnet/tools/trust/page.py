"""The page of `provnet check`: what passes, what fails, and the figures behind it, out of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provnet.report.charts import Mark, Plot, line, square_plot
from provnet.report.page import render
from provnet.report.records import percent
from provnet.runs.run import Run
from provnet.runs.safe import write_json
from provnet.tools.trust.compute import Trust

_WEIGHTS = (
    "Training samples are ranked for unseen pictures by the trained network, and by the same network with weights "
    "drawn anew. Where both rankings agree, the samples shown explain the data, not the network."
)
_CONFIDENCE = (
    "Of the answers given with 80 % confidence, 80 % should be right. Copies are noisy, one pixel aside, "
    "JPEG-compressed and cropped."
)
_ABSTENTION = (
    "Strangers should get the answer that no training sample supports; unseen pictures of the run's own kind should "
    "not."
)
GROUPS = {
    "weights": ("Does the attribution depend on the learned weights?", _WEIGHTS),
    "confidence": ("Is the confidence calibrated on distorted copies?", _CONFIDENCE),
    "abstention": ("Does it abstain where it should?", _ABSTENTION),
}


@dataclass(frozen=True, eq=False)
class TrustReport:
    """Everything that the page shows; `values` is what check.json holds, `facts` are `(name, value)` lines."""

    run: str
    network: str
    values: Mapping[str, Any]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """One outcome as text."""

    words: str
    state: str
    value: str
    ends: str
    n: str
    bar: str
    note: str


@dataclass(frozen=True)
class Rank:
    """Agreement of a ranking as a bar: width in 0..1 and its interval."""

    words: str
    value: str
    ends: str
    overlap: str
    width: float
    kind: str = ""


@dataclass(frozen=True)
class Strip:
    """A histogram of support: bars as (x, height) in 0..1, and the share beyond the threshold."""

    words: str
    bars: tuple[tuple[float, float], ...]
    abstained: str
    auroc: str


def trust_html(report: TrustReport) -> str:
    """Draw the page of `provnet check` as one self-contained HTML file."""
    values = report.values
    outcomes = values["outcomes"]
    counts = {word: sum(state(one) == word for one in outcomes) for word in ("pass", "fail", "not measured")}
    return render(
        "trust.html.j2",
        title="Trust checks",
        report=report,
        counts=counts,
        groups=[
            (GROUPS[name], name, [outcome_row(one) for one in outcomes if one["group"] == name]) for name in GROUPS
        ],
        ranks=ranks(values["dependence"]),
        chance=percent(values["dependence"]["chance"], 2) if values["dependence"] else "",
        diagrams=[diagram for name in DIAGRAMS if (diagram := reliability(name, values[name])) is not None],
        strips=strips(values["abstention"]),
        threshold=round(2 / 3 * 100, 3),
    )


def state(outcome: Mapping[str, Any]) -> str:
    """`pass`, `fail` or `not measured`.

    >>> state({"passed": None})
    'not measured'
    """
    return {True: "pass", False: "fail", None: "not measured"}[outcome["passed"]]


def outcome_row(one: Mapping[str, Any]) -> Row:
    """An outcome as text; a rate in per cent, a correlation or an area to three digits."""
    figure = one["figure"]
    if figure is None or figure["value"] is None:
        return Row(one["words"], state(one), "", "", "", one["bar"], one["note"])
    texts = [figure_text(figure[part], one["percent"]) for part in ("value", "low", "high")]
    return Row(
        one["words"], state(one), texts[0], f"{texts[1]} to {texts[2]}", f"{figure['n']:,}", one["bar"], one["note"]
    )


def figure_text(value: float, rate: bool) -> str:
    """A rate in per cent, anything else to three digits; never rounded up to 1.

    >>> figure_text(0.05, True), figure_text(0.99996, False), figure_text(-0.0004, False)
    ('5.0 %', '>0.999', '0.000')
    """
    if rate:
        return percent(value)
    text = f"{value:.3f}".replace("-0.000", "0.000")
    return ">0.999" if text == "1.000" and value < 1 else text


def ranks(depends: Mapping[str, Any] | None) -> list[Rank]:
    """From the head alone to the whole network, then what they are compared with."""
    if depends is None:
        return []
    parts = [(one, "") for one in depends["steps"]]
    parts += [(depends[name], kind) for name, kind in (("fresh", "near"), ("pixels", "near"), ("control", "control"))]
    found = []
    for one, kind in parts:
        if one is None or one["spearman"]["value"] is None:
            continue
        figure, overlap = one["spearman"], one["overlap"]
        texts = [figure_text(figure[part], False) for part in ("value", "low", "high")]
        ends, shared = f"{texts[1]} to {texts[2]}", percent(overlap["value"])
        found.append(Rank(one["words"], texts[0], ends, shared, abs(figure["value"]), kind))
    return found


def reliability(name: str, one: Mapping[str, Any] | None) -> Plot | None:
    """A reliability diagram: how many are right, over how sure the run was."""
    if one is None:
        return None
    most = max(part["n"] for part in one["bins"])
    marks = [
        Mark(
            part["confidence"],
            part["right"]["value"],
            f"{percent(part['confidence'])} sure, {percent(part['right']['value'])} right, n = {part['n']:,}",
            part["right"]["low"],
            part["right"]["high"],
            round(2.5 + 5 * (part["n"] / most) ** 0.5, 2),
        )
        for part in one["bins"]
    ]
    course = line("measured", "k0", tuple((p["confidence"], p["right"]["value"]) for p in one["bins"]))
    even = line("perfect", "guess", ((0.0, 0.0), (1.0, 1.0)))
    title = f"{DIAGRAMS[name]}: ECE {percent(one['ece']['value'])}"
    words = f"{title} ({percent(one['ece']['low'])} to {percent(one['ece']['high'])}, n = {one['ece']['n']:,})"
    return square_plot(title, words, ("confidence", "share that is right"), [even, course], marks)


def strips(abstains: Mapping[str, Any]) -> list[Strip]:
    """Histograms of support, own pictures first."""
    drawn, found = abstains["histogram"], []
    rates = {"own": abstains["own"], **{name: one["abstained"] for name, one in abstains["kinds"].items()}}
    for name, counts in drawn.items():
        if name == "edges":
            continue
        highest = max(*counts, 1)
        bars = tuple((i / len(counts), c / highest) for i, c in enumerate(counts) if c)
        auroc = (abstains["kinds"].get(name) or {}).get("auroc")
        area = "" if auroc is None else figure_text(auroc["value"], False)
        words = "own unseen pictures" if name == "own" else KINDS.get(name, name)
        rate = rates[name]
        ends = f"{percent(rate['low']).removesuffix(' %')} to {percent(rate['high'])}, n = {rate['n']:,}"
        found.append(Strip(words, bars, f"{percent(rate['value'])} ({ends})", area))
    return found


DIAGRAMS = {"class_confidence": "Class", "index_confidence": "Sample named first"}
KINDS = {"noise": "uniform noise", "constant": "one colour", "letters": "drawn letters", "shapes": "drawn shapes"}


def trust_files(run: Run, found: Trust, about: Mapping[str, Any]) -> dict[str, bytes | str]:
    """The page and the figures; `about` says which run, which weights and which unseen data."""
    config = run.config.network
    network = f"{config.network}, {config.backbone}, head {config.head}, {len(run.samples):,} training samples"
    facts = [
        ("Unseen data", about["test"] or "none"),
        ("Pictures of each kind", f"{found.about['counts']['strangers']:,} at most"),
        ("Seed", str(found.about["seed"])),
        ("Weights, SHA-256", about["model_sha256"]),
        ("Data fingerprint", run.samples.fingerprint),
    ]
    if found.about["withheld"]:
        facts.insert(0, ("Withheld samples, left out", f"{found.about['withheld']:,}"))
    values = found.to_json()
    page = trust_html(TrustReport(about["run"], network, values, tuple(facts)))
    return {
        "check.json": write_json({**values, "about": {**values["about"], **about}}, "check.json"),
        "report.html": page,
    }
