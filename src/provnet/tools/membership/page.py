"""The page of `provnet audit`: ROC curves, histograms and figures with intervals, out of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provnet.base.errors import UsageError
from provnet.report.charts import Curve, Plot, figure_bytes, figure_for_print, histogram_plot, roc_plot
from provnet.report.page import render
from provnet.report.records import percent
from provnet.tools.membership.shadows import ATTACKS

# name -> words, class of colour and dash, words of the histogram's axis; entropies are drawn as they are, not negated
SCORES = {
    "index_confidence": ("index branch, largest confidence", "k0", "largest confidence"),
    "index_entropy": ("index branch, entropy", "k0 dash", "entropy, nats"),
    "class_confidence": ("class branch, largest confidence", "k1", "largest confidence"),
    "class_entropy": ("class branch, entropy", "k1 dash", "entropy, nats"),
    "contrast": ("best match against the next nine", "k2", "contrast"),
    "similarity": ("best match, similarity", "k2 dash", "similarity"),
}
NEGATED = "_entropy"


@dataclass(frozen=True, eq=False)
class AuditReport:
    """Everything that the page of `provnet audit` shows.

    Attributes:
        run: the run folder.
        network: what it is, in words.
        sources: where members and nonmembers come from.
        values: what audit.json holds; see `provnet.tools.membership.compute`.
        copies: distortion -> words.
        facts: more `(name, value)` lines.
    """

    run: str
    network: str
    sources: tuple[str, str]
    values: Mapping[str, Any]
    copies: Mapping[str, str]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """A figure as text, with its interval, and the longer words that stand behind it."""

    value: str
    ends: str = ""
    words: str = ""


def audit_html(report: AuditReport) -> str:
    """Draw the page of `provnet audit` as one self-contained HTML file."""
    values = report.values
    best = max(values["scores"], key=lambda name: values["scores"][name]["auc"]["value"])
    return render(
        "audit.html.j2",
        title="Membership audit",
        report=report,
        plots=roc_plots(values),
        histograms=histograms(values),
        rows=[(SCORES[name][0], name == best, score_cells(values["scores"][name])) for name in SCORES],
        lookup=[
            (kind, [interval_cell(of[side]) for side in ("members", "nonmembers")]) for kind, of in _lookup(values)
        ],
        null=[(SCORES[name][0], auc_cell(one), holds_half(one)) for name, one in _ordered(values["null"]["auc"])],
        stored=_stored(values),
        rates=[words for words, _ in _rates(values["scores"][best])],
        columns=[SCORES[name][0] for name in SCORES],
        distorted=[
            (report.copies.get(kind, kind), [auc_cell(of[name]["auc"]) for name in SCORES], _best(of))
            for kind, of in sorted(
                values["distorted"].items(), key=lambda item: [*report.copies, item[0]].index(item[0])
            )
        ],
        tiles=_tiles(values, best),
    )


def roc_plots(values: Mapping[str, Any]) -> tuple[Plot, Plot]:
    """The ROC curves of all scores, on linear and on log axes."""
    curves = [
        Curve(SCORES[name][0], SCORES[name][1], auc_cell(one["auc"]).value, tuple((x, y) for x, y in one["roc"]))
        for name, one in ((name, values["scores"][name]) for name in SCORES)
    ]
    least = 10.0 ** -max(len(str(int(values["nonmembers"]))) - 1, 1)
    return roc_plot(curves), roc_plot(curves, log=True, least=least)


def histograms(values: Mapping[str, Any]) -> list[Plot]:
    """Members and nonmembers by each score."""
    found = []
    for name, (words, _, label) in SCORES.items():
        edges, members, others = (values["scores"][name]["histogram"][part] for part in ("edges", *SIDES))
        if name.endswith(NEGATED):
            edges, members, others = [-edge for edge in reversed(edges)], members[::-1], others[::-1]
        found.append(histogram_plot(words[0].upper() + words[1:], label, edges, members, others))
    return found


def score_cells(one: Mapping[str, Any]) -> list[Cell]:
    """AUC and the rates found at few false alarms."""
    return [auc_cell(one["auc"]), *(tpr_cell(found) for _, found in _rates(one))]


def auc_cell(auc: Mapping[str, Any]) -> Cell:
    """An AUC to four digits, never rounded up to 1.

    >>> auc_cell({"value": 0.99996, "low": 0.9975, "high": 1.0})
    Cell(value='>0.9999', ends='0.9975 to 1', words='')
    """
    texts = [_share(auc[part]) for part in ("value", "low", "high")]
    return Cell(texts[0], f"{texts[1]} to {texts[2]}")


def tpr_cell(found: Mapping[str, Any]) -> Cell:
    """A rate found, or that too few samples decide it."""
    if found["tpr"]["value"] is None:
        return Cell("-", "too few nonmembers", found["tpr"].get("why", ""))
    cell = interval_cell(found["tpr"])
    return Cell(cell.value, cell.ends, f"at a false-positive rate of {percent(found['fpr']['value'], 2)}")


def interval_cell(rate: Mapping[str, Any]) -> Cell:
    """A rate in per cent with its interval.

    >>> interval_cell({"value": 0.5, "low": 0.4, "high": 0.6, "n": 100}).ends
    '40.0 to 60.0'
    """
    ends = (percent(rate[part]).removesuffix(" %") for part in ("low", "high"))
    return Cell(percent(rate["value"]), " to ".join(ends), f"n = {rate['n']:,}")


def holds_half(auc: Mapping[str, Any]) -> bool:
    """Whether an interval holds .5, as guessing would.

    >>> holds_half({"low": 0.48, "high": 0.51})
    True
    """
    return bool(auc["low"] <= 0.5 <= auc["high"])


def _lookup(values: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [(f"{kind} equal", of) for kind, of in values["lookup"].items()]


def _stored(values: Mapping[str, Any]) -> list[tuple[str, Cell, Cell]]:
    """AUC by keys alone, beside that of the run; an output layer stores nothing, and the class branch uses no keys."""
    found = values.get("null_keys")
    if not found:
        return []
    names = [name for name in SCORES if not name.startswith("class_")]
    return [(SCORES[name][0], auc_cell(found["auc"][name]), auc_cell(values["scores"][name]["auc"])) for name in names]


def _ordered(of: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, of[name]) for name in SCORES]


def _rates(one: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(allowed rate in words, what is found), the largest rate first."""
    ordered = sorted(one["tpr_at_fpr"].items(), key=lambda item: -float(item[0]))
    return [(f"{float(rate) * 100:g} %", found) for rate, found in ordered]


def _best(of: Mapping[str, Any]) -> int:
    """The column with the largest AUC."""
    return max(range(len(SCORES)), key=lambda number: of[list(SCORES)[number]]["auc"]["value"])


def _share(value: float) -> str:
    text = f"{value:.4f}"
    return text if text != "1.0000" else "1" if value == 1 else ">0.9999"


def _tiles(values: Mapping[str, Any], best: str) -> list[tuple[str, Cell, str]]:
    scores = values["scores"]
    index = max(("index_confidence", "index_entropy"), key=lambda name: scores[name]["auc"]["value"])
    both = max(("class_confidence", "class_entropy"), key=lambda name: scores[name]["auc"]["value"])
    tiles = [
        ("Index branch, AUC", auc_cell(scores[index]["auc"]), SCORES[index][0]),
        ("Class branch, AUC", auc_cell(scores[both]["auc"]), SCORES[both][0]),
        ("Best score, AUC", auc_cell(scores[best]["auc"]), SCORES[best][0]),
    ]
    for rate, found in _rates(scores[best]):
        tiles.append((f"Found at {rate} FPR", tpr_cell(found), SCORES[best][0]))
    return tiles


def shadow_html(values: Mapping[str, Any], model: str, source: str) -> str:
    """Draw the page of an audit with shadow models as one self-contained HTML file."""
    columns, rows = shadow_rows(values)
    lines = ("k0", "k0 dash", "k2", "k2 dash", "k1", "k1 dash")
    order = ["lira", "lira_offline", "rmia", "rmia_offline", "attack_p"]
    drawn = [name for name in order if name in values["found"]]
    drawn += [name for name in values["found"] if name not in ATTACKS][:1]
    curves = [
        Curve(_attack(name), kind, auc_cell(one["auc"]).value, tuple((x, y) for x, y in one["roc"]))
        for name, kind in zip(drawn, lines, strict=False)
        for one in [values["found"][name]]
    ]
    least = 10.0 ** -max(len(str(values["others"])) - 1, 1)
    return render(
        "shadows.html.j2",
        title="Membership audit",
        values=values,
        model=model,
        source=source,
        plots=(roc_plot(curves), roc_plot(curves, log=True, least=least)),
        columns=columns,
        rows=rows,
        claims=shadow_claims(values),
        decides=_attack(values["decides"]),
    )


def shadow_rows(values: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, bool, list[Cell]]]]:
    """The columns of the table, and a row for each attack: words, whether claims rest on it, cells."""
    rates = [words for words, _ in _rates(values["found"][values["decides"]])]
    rows = [(_attack(name), name == values["decides"], score_cells(one)) for name, one in values["found"].items()]
    return ["AUC", *(f"found at {rate} FPR" for rate in rates)], rows


def shadow_claims(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What follows for samples and for training: words, figure, what it means."""
    said = values["vulnerable"]
    rate = None if said["claimed_at"] is None else percent(said["claimed_at"], 2)
    found = [
        (
            "Vulnerable members",
            "cannot tell" if rate is None else f"{said['count']:,} of {values['members']:,}",
            "At least 1,000 known others are needed"
            if rate is None
            else f"A claim about each of them errs for at most {rate} of the others",
        )
    ]
    if (used := values["share_of_candidates_used"]) is not None:
        cell = Cell("cannot tell", used.get("why", "")) if used["value"] is None else interval_cell(used)
        found.append((f"Candidates that were trained on, of {used['n']:,}", cell.value, f"95 % interval: {cell.ends}"))
    least = values["epsilon_at_least"]
    words = "No training with (ε, 1e-5)-differential privacy for a smaller ε lets an attack find so many"
    found.append(("Differential privacy, ε at least", "cannot tell" if least is None else f"{least:.2f}", words))
    return found


def _attack(name: str) -> str:
    return ATTACKS.get(name, f"score of its own: {name.replace('_', ' ')}")


SIDES = ("members", "nonmembers")


COLOURS = {"k0": "#2f5bb7", "k1": "#b0560f", "k2": "#00705a"}  # told apart without colour vision, and by dashes
FORMATS = ("png", "pdf", "svg")
SHOWN = ("index_confidence", "class_confidence", "index_entropy", "class_entropy")  # those of the paper


def audit_figure(report: AuditReport, kind: str = "png") -> bytes:
    """ROC curves on linear and log axes, and the paper's four histograms, as `png`, `pdf` or `svg`."""
    if kind not in FORMATS:
        raise UsageError(f'a figure is written as {", ".join(FORMATS)}, not "{kind}"; change the end of its name')
    with figure_for_print(10, 6.2) as drawing:
        every = drawing.subplots(2, 3)
        _curves(every[0][0], report, log=False)
        _curves(every[1][0], report, log=True)
        places = [every[0][1], every[1][1], every[0][2], every[1][2]]
        for axes, name in zip(places, SHOWN, strict=True):
            _histogram(axes, report, name)
        handles, labels = every[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        return figure_bytes(drawing, kind, dpi=200)


def _curves(axes: Any, report: AuditReport, *, log: bool) -> None:
    least = 10.0 ** -max(len(str(report.values["nonmembers"])) - 1, 1)
    axes.plot([least, 1], [least, 1], color="#777777", linewidth=0.8, linestyle=":")
    for name, (words, kind, _) in SCORES.items():
        one = report.values["scores"][name]
        rates = [(max(x, least), max(y, least)) if log else (x, y) for x, y in one["roc"]]
        style = {"color": COLOURS[kind[:2]], "linestyle": "--" if "dash" in kind else "-", "linewidth": 1.4}
        axes.plot(*zip(*rates, strict=True), label=f"{words}, AUC {auc_cell(one['auc']).value}", **style)
    axes.set(xlabel="nonmembers taken for members", ylabel="members found")
    if log:
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.15))


def _histogram(axes: Any, report: AuditReport, name: str) -> None:
    found = report.values["scores"][name]["histogram"]
    edges, members, others = found["edges"], found["members"], found["nonmembers"]
    if name.endswith(NEGATED):
        edges, members, others = [-edge for edge in reversed(edges)], members[::-1], others[::-1]
    for label, counts, colour, style in (
        ("nonmembers", others, COLOURS["k1"], "--"),
        ("members", members, COLOURS["k0"], "-"),
    ):
        shares = [count / max(sum(counts), 1) * 100 for count in counts]
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(shares, edges, color=colour, linestyle=style, label=label)
    axes.set(title=SCORES[name][0], xlabel=SCORES[name][2], ylabel="share of its kind, %")
    axes.legend(frameon=False, fontsize=8)
