"""The figure of a membership audit for print, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from typing import Any

from provnet.errors import UsageError
from provnet.report.audit import NEGATED, SCORES, AuditReport, auc_cell

COLOURS = {"k0": "#2f5bb7", "k1": "#b0560f", "k2": "#00705a"}  # told apart without colour vision, and by dashes
FORMATS = ("png", "pdf", "svg")
SHOWN = ("index_confidence", "class_confidence", "index_entropy", "class_entropy")  # those of the paper


def audit_figure(report: AuditReport, kind: str = "png") -> bytes:
    """ROC curves on linear and log axes, and the paper's four histograms, as `png`, `pdf` or `svg`."""
    if kind not in FORMATS:
        raise UsageError(f'a figure is written as {", ".join(FORMATS)}, not "{kind}"; change the end of its name')
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise UsageError("figures need matplotlib; install it with: pip install '.[plots]'") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}):
        drawing = Figure(figsize=(10, 6.2), layout="constrained")
        FigureCanvasAgg(drawing)
        every = drawing.subplots(2, 3)
        _curves(every[0][0], report, log=False)
        _curves(every[1][0], report, log=True)
        places = [every[0][1], every[1][1], every[0][2], every[1][2]]
        for axes, name in zip(places, SHOWN, strict=True):
            _histogram(axes, report, name)
        handles, labels = every[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        buffer = io.BytesIO()
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        drawing.savefig(buffer, format=kind, dpi=200, metadata=dates.get(kind))
    return buffer.getvalue()


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
