"""docs/peers.md: its tables, written between markers from the JSON of `peers.py`, and its picture.

What `influence/lds.py` found stands in that JSON's `influence` while the page is made.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Result = Any  # parsed JSON
MARK = re.compile(r"(<!-- peers:(\w+) -->\n).*?(<!-- /peers -->)", re.DOTALL)
FOUND = {
    "class_top_1": "class of the best sample",
    "class_top_5": "class of the best five",
    "exact": "finds itself: as it is",
    "noise": "with noise σ .1",
    "shift": "moved by a pixel",
}
TIMES = {"ms_1": "ms a query, one at a time", "ms_256": "ms a query, 256 at a time"}


def cell(found: Result, scale: float = 100, form: str = ".1f") -> str:
    """A figure with its interval, shares in per cent.

    >>> cell({"value": 0.5, "low": 0.4, "high": 0.6123, "n": 100})
    '50.0 (40.0 to 61.2)'
    """
    value, low, high = (format(scale * found[part], form) for part in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def seconds(value: float) -> str:
    """Seconds; what takes next to none is not spelt out.

    >>> seconds(0.0), seconds(0.01), seconds(61.23)
    ('0', '< 0.1', '61.2')
    """
    return number(value) if value == 0 or value >= 0.05 else "< 0.1"


def number(value: float) -> str:
    """Three digits.

    >>> number(1234.5), number(0.01234), number(2.0)
    ('1,230', '0.0123', '2')
    """
    return f"{float(f'{value:.3g}'):,.10g}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def missing(name: str, row: Result, columns: int) -> list[str]:
    """The row of a library that was not there."""
    return [name, f"not installed: {row['not_installed']}", *[""] * (columns - 2)]


def results_table(result: Result) -> str:
    """Class and self-identification of every method."""
    rows = []
    for name, row in result["methods"].items():
        if "not_installed" in row:
            rows.append(missing(name, row, 1 + len(FOUND)))
        else:
            rows.append([bold(name), *(cell(row[part]) for part in FOUND)])
    return table(["method", *FOUND.values()], rows)


def times_table(result: Result) -> str:
    """Seconds and milliseconds of every method, and how many times as long as that ours takes."""
    rows = []
    for name, row in result["methods"].items():
        if "not_installed" in row:
            rows.append(missing(name, row, 6))
            continue
        ours = row["ours_over"]
        cells = [seconds(row["train_seconds"]), seconds(row["prepare_seconds"]), *(number(row[part]) for part in TIMES)]
        ratios = " / ".join(number(ours[part]) for part in ("fit", *TIMES))
        rows.append([bold(name), *cells, ratios])
    head = ["method", "s to train", "s to prepare", *TIMES.values(), "ours ÷ this: fit / one / 256"]
    return table(head, rows)


def wrong_table(result: Result) -> str:
    """Wrong labels, the best first."""
    scores = result["wrong_labels"]["scores"]
    known = sorted((name for name in scores if "ap" in scores[name]), key=lambda name: -scores[name]["ap"]["value"])
    rows = []
    for name in known:
        row = scores[name]
        apart = cell(row["ours_minus"], 1, "+.3f") if "ours_minus" in row else ""
        figures = [cell(row[part], 1, ".3f") for part in ("auroc", "ap")]
        rows.append([bold(name), *figures, apart, seconds(row["seconds"])])
    rows += [missing(name, row, 5) for name, row in scores.items() if "not_installed" in row]
    return table(["score", "AUROC", "AP", "AP of `provnet debug` minus this", "s with training"], rows)


def lds_table(result: Result) -> str:
    """The linear datamodeling score, the best first."""
    found = result["lds"]["methods"]
    order = sorted(found, key=lambda name: -found[name]["value"])
    return table(["method", "LDS"], [[bold(name), cell(found[name], 1, ".3f")] for name in order])


SETTINGS = {
    "small-mnist": "plain CNN, MNIST",
    "small-fashion": "plain CNN, FashionMNIST",
    "small-cifar10": "plain CNN, CIFAR-10",
    "resnet9": "ResNet-9, CIFAR-10",
    "gpt": "small GPT, tiny Shakespeare",
    "dattri-mlp": "dattri's MLP, MNIST",
    "dattri-regression": "logistic regression, MNIST",
    "dattri-cifar2": "dattri's ResNet-9, cats and dogs",
    "own": "provnet's class-conditional network, MNIST",
}


def influence_table(result: Result) -> str:
    """The same of influence weights and their rivals on every subject, the best of each first."""
    rows = []
    for name, found in result["influence"].items():
        head = f"{SETTINGS[name]}: {found['samples']:,} samples, {found['halves']} halves × {found['trainings_each']}"
        rows.append([head, "" if found["ceiling"] is None else f"at most {found['ceiling']:.3f}", ""])
        for method, row in sorted(found["methods"].items(), key=lambda item: -item[1]["value"]):
            apart = row.get("ours_minus")
            less = "" if apart is None else f"{apart['low']:+.3f} to {apart['high']:+.3f}"
            own = f"**{method}**" if method.startswith("influence") else method
            rows.append([own, cell(row, 1, ".3f"), less])
    return table(["method", "LDS", "whole influence keys of all snapshots minus this"], rows)


def bold(name: str) -> str:
    """Ours stand out."""
    return f"**{name}**" if name.startswith("provnet") else name


def about(result: Result) -> str:
    """What the figures were measured on."""
    machine, lds, wrong = result["machine"], result["lds"], result["wrong_labels"]
    packages = {row["package"]: row["version"] for row in result["methods"].values() if "version" in row}
    versions = ", ".join(f"{name} {found}" for name, found in (packages | wrong["packages"]).items())
    right = {name: f"{100 * found['value']:.1f} %" for name, found in result["class_accuracy"].items()}
    accuracy = f"{right['provnet']} of the unseen digits right"
    commit = str(machine["commit"])[:12] + (" with changes" if machine["dirty"] else "")
    text = f"""
        MNIST, {result["samples"]:,} training digits, the same number of each class, {result["test"]:,} unseen ones;
        seed {result["seed"]}; {machine["device"]} ({machine["processor"]}), {machine["threads"]} thread, load
        {machine["load"]} when it began; Python {machine["python"]}, torch {machine["torch"]}, provnet
        {machine["provnet"]} at {commit}; {versions}. provnet: class-independent, preset `robust`, exemplar head,
        {result["provnet_epochs"]} epochs, {accuracy}. The plain CNN: {result["cnn"]["parameters"]:,} parameters,
        {result["cnn"]["epochs"]} epochs, {right["cnn"]}. LDS: {lds["subsets"]} random halves,
        {lds["trainings_each"]} trainings on each, {lds["queries"]} unseen digits. Wrong labels: {wrong["flipped"]}
        flipped at random, of which the plain CNN fitted {wrong["fitted_by_the_cnn"]}. All of it took
        {result["seconds"] / 60:.0f} minutes. Intervals are 95 %: Wilson for shares, DeLong for AUROC, bootstrap for
        the rest."""
    words = textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)
    install = f"pip install -c constraints.txt {' '.join(packages | wrong['packages'])}"
    return f"{words}\n\n```bash\n{install}\npython benchmarks/peers.py --data-dir DIR --seed {result['seed']}\n```"


def again(result: Result) -> str:
    """How much of the margins training settles anew."""
    found = cell(result["lds"]["one_training_against_the_other"], 1, ".3f")
    return f"Two trainings on the same halves agree with each other by {found}."


BLOCKS = {
    "about": about,
    "results": results_table,
    "times": times_table,
    "wrong": wrong_table,
    "lds": lds_table,
    "again": again,
    "influence": influence_table,
}


def rewritten(text: str, result: Result) -> str:
    """The page with what stands between its markers made anew."""
    return MARK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]](result)}\n{found[3]}", text)


def rewrite(page: Path, result: Result) -> None:
    """The same, in its file."""
    page.write_text(rewritten(page.read_text("utf-8"), result), "utf-8")


def draw(result: Result, path: Path) -> None:
    """Found again after a shift, time of a query, and LDS, method below method."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    rows = {name: row for name, row in result["methods"].items() if "ms_1" in row}
    names = list(rows)[::-1]
    colours = ["#0072b2" if name.startswith("provnet") else "#9aa5b1" for name in names]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
    scores = result["lds"]["methods"]
    panels = (
        ([rows[name]["shift"] for name in names], 100, "moved by a pixel, finds itself, %", ".1f"),
        ([{"value": rows[name]["ms_256"]} for name in names], 1, "ms a query, 256 at a time (log)", ".2g"),
        ([scores[name] for name in names], 1, "linear datamodeling score", ".2f"),
    )
    for axis, (values, scale, words, form) in zip(axes, panels, strict=True):
        sizes = [scale * each["value"] for each in values]
        if axis is axes[1]:  # a bar has no foot on a logarithmic scale
            axis.scatter(sizes, names, color=colours, s=40)
        else:
            axis.barh(names, sizes, color=colours, height=0.7)
        for place, (size, each) in enumerate(zip(sizes, values, strict=True)):
            end = scale * each.get("high", each["value"])
            if "low" in each:
                axis.plot([scale * each["low"], end], [place, place], color="black", linewidth=0.9)
            axis.annotate(format(size, form), (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8)
        axis.set_title(words, fontsize=9)
    axes[0].set_xlim(0, 118)
    axes[1].set_xscale("log")
    axes[1].grid(axis="x", color="#dddddd", linewidth=0.6)
    axes[1].set_axisbelow(True)
    axes[1].set_xlim(right=4 * max(row["ms_256"] for row in rows.values()))
    axes[2].axvline(0, color="black", linewidth=0.8)
    axes[2].set_xlim(right=1.25 * max(scores[name]["high"] for name in names))
    figure.savefig(path, dpi=130)
