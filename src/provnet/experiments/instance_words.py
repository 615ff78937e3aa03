"""What indices alone teach, as Markdown and as a figure."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import Finding, apart, counts, judged, mean, percent_of, told
from provnet.experiments.markdown import ends, spread, table
from provnet.experiments.paper import standing
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Results

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
NETWORKS = {
    "index": "indices alone",
    "index-augmented": "indices alone, augmented",
    "class": "classes alone",
    "untrained": "untrained",
}
ASKED = {
    "plain_from_plain": "as they are",
    "turned_from_plain": "turned",
    "inverted_from_plain": "inverted",
    "thickened_from_plain": "thickened",
    "turned_from_same": "turned, probe too",
    "inverted_from_same": "inverted, probe too",
    "thickened_from_same": "thickened, probe too",
}
PROBES = {"probe": "linear probe", "knn": "nearest neighbour"}


def section(results: Results) -> list[str]:
    """The claim, then a table a data set and probe."""
    if not results.cells and not results.absent:
        return ["Not run yet; the paper has no numbers of this."]
    lines = told(findings(results), results)
    for data, words in PAIRS.items():
        there = [kind for kind in NETWORKS if f"{data}/{kind}" in results.cells]
        if not there:
            if results.scale == "full":
                lines += ["", f"### {words}", "", counts(results, data)]
            continue
        lines += ["", f"### {words}", "", counts(results, data)]
        for probe, name in PROBES.items():
            rows = []
            for kind in there:
                seeds = results.cells[f"{data}/{kind}"].values()
                found = [
                    standing(
                        None, [one.figures[f"{probe}_{asked}"] for one in seeds if f"{probe}_{asked}" in one.figures]
                    )
                    for asked in ASKED
                ]
                rows.append((NETWORKS[kind], *(f"{spread(one)} ({ends(one)})" for one in found), str(len(seeds))))
            lines += ["", f"Class by {name}:", "", *table(("supervision", *ASKED.values(), "seeds"), rows)]
    return lines


def findings(results: Results) -> list[Finding]:
    """Index supervision against none and against classes."""
    found = []
    for data, words in PAIRS.items():
        index, drawn, given = (
            mean(results, f"{data}/{kind}", "probe_plain_from_plain") for kind in ("index", "untrained", "class")
        )
        if index is None:
            continue
        if drawn is not None:
            gap = apart(index, drawn)
            text = f"linear probe {percent_of(index)} against {percent_of(drawn)} untrained, {gap}"
            near, blank = (mean(results, f"{data}/{kind}", "knn_plain_from_plain") for kind in ("index", "untrained"))
            signs = [gap.sign]
            if near is not None and blank is not None:
                other = apart(near, blank)
                signs.append(other.sign)
                text += f"; nearest neighbour {percent_of(near)} against {percent_of(blank)}, {other}"
            claim = f'{words}: "memorization tasks implicitly learn semantic structure" (indices alone against no '
            found.append(Finding(f"{claim}training; app. 7.6):", judged(signs), text))
        if given is not None:
            gap = apart(index, given)
            text = f"linear probe {percent_of(index)} against {percent_of(given)} with classes, {gap}"
            claim = f"{words}: indices are as good as class labels:"
            found.append(Finding(claim, judged([gap.no_worse]), text, ours=True))
        found += _transfer(results, data, words)
    return found


def _transfer(results: Results, data: str, words: str) -> list[Finding]:
    """Which supervision gives more to sets that are drawn differently, the probe fitted on the same drawing or not."""
    found = []
    for way, fitted in (("same", "drawn so, too"), ("plain", "as they are")):
        signs, parts = [], []
        for name in ("turned", "inverted", "thickened"):
            index, given = (mean(results, f"{data}/{kind}", f"probe_{name}_from_{way}") for kind in ("index", "class"))
            if index is not None and given is not None:
                gap = apart(index, given)
                signs.append(gap.sign)
                parts.append(f"{name} {percent_of(index)} against {percent_of(given)}, {gap}")
        claim = (
            f"{words}: indices carry over better than class labels to digits that are drawn differently, a probe "
            f"fitted on digits {fitted}:"
        )
        claim = claim.replace("digits", "clothes") if data == "fashion-mnist" else claim
        found += [Finding(claim, judged(signs), "; ".join(parts), ours=True)] if parts else []
    return found


def instance_figures(results: Results) -> dict[str, bytes]:
    """Bars of the linear probe, a panel a data set."""
    there = [data for data in PAIRS if any(cell.startswith(f"{data}/") for cell in results.cells)]
    if not there:
        return {}
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        len(there), 1, figsize=(9.5, 1.2 + 2.6 * len(there)), squeeze=False, layout="constrained", sharex=True
    )
    colours = {"index": BLUE, "index-augmented": "#3b9e8f", "class": ORANGE, "untrained": GREY}
    for axes, data in zip(every[:, 0], there, strict=True):
        kinds = [kind for kind in NETWORKS if f"{data}/{kind}" in results.cells]
        for place, kind in enumerate(kinds):
            values = [mean(results, f"{data}/{kind}", f"probe_{asked}") for asked in ASKED]
            at = [x + (place - (len(kinds) - 1) / 2) * 0.2 for x in range(len(ASKED))]
            heights = [100 * one[0] if one is not None else 0.0 for one in values]
            axes.bar(at, heights, width=0.19, color=colours[kind], label=NETWORKS[kind])
            for x, one in zip(at, values, strict=True):
                if one is not None:
                    axes.text(x, 100 * one[0] + 1, f"{100 * one[0]:.1f}", ha="center", va="bottom", fontsize=6.5)
        axes.set_xticks(range(len(ASKED)), [words.replace(", ", ",\n") for words in ASKED.values()], fontsize=9)
        n = next(one[1] for one in values if one is not None)
        axes.set_title(
            f"{PAIRS[data]}: class of {n:,} unseen samples by a linear probe, %; intervals below", fontsize=10
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    drawing.legend(*every[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return {"": png(drawing)}
