"""Generators as Markdown; their curves, and generated pictures before their five sources."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import Finding, apart, judged, mean, told
from provnet.experiments.markdown import ends, spread, table
from provnet.experiments.paper import standing
from provnet.experiments.pictures import draw, unpacked
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Figure, Results

CELLS = {
    "mnist/paper": "MNIST, the paper's VAE",
    "mnist/modern": "MNIST, ours with keys",
    "fashion-mnist/paper": "FashionMNIST, the paper's VAE",
    "fashion-mnist/modern": "FashionMNIST, ours with keys",
    "lfw/faces": "LFW, the paper's VAE for faces",
}
FIGURES = {
    "class_at_mean": "class at the mean",
    "index_at_mean": "index at the mean",
    "class_at_sample": "class, drawn latents",
    "index_at_sample": "index, drawn latents",
    "index_at_mean_2_to_25": "index at the mean, people with 2 to 25",
    "class_accuracy": "class, unseen",
    "agreement": "generated: judge sees the class of the first source",
    "nearer_than_another": "generated: first source nearer than another of its class",
    "different_first_sources": "generated: different first sources, of all pictures",
}
HIGH = 0.9  # what "high performance" is taken to mean


def section(results: Results) -> list[str]:
    """The claims, then a row a generator and number."""
    if not results.cells and not results.absent:
        return ["Not run yet; the paper shows curves without numbers."]
    rows = []
    for cell, words in CELLS.items():
        seeds = list(results.cells.get(cell, {}).values())
        if not seeds:
            if results.scale == "full":
                rows.append((words, results.absent.get(cell, "not run"), *[""] * 4))
            continue
        for name, text in FIGURES.items():
            one = standing(None, [result.figures[name] for result in seeds if name in result.figures])
            if one.mean is not None:
                interval = "" if name == "different_first_sources" else ends(one)  # no share of independent samples
                rows.append((words, text, spread(one), interval, f"{one.n:,}", str(one.seeds)))
    head = ("generator", "number", "per cent", "95 % interval", "n", "seeds")
    lines = [*told(findings(results), results), "", *table(head, rows, left=2), *_people(results)]
    text = "The paper has no skips where it speaks of a U-Net; BCE and KL are sums over pixels and latents, means over"
    return [*lines, "", f"{text} the batch (guide, 11)."]


def _people(results: Results) -> list[str]:
    for one in results.cells.get("lfw/faces", {}).values():
        people = one.told["people"]
        text = f"LFW: {one.told['samples']['train']:,} pictures of {people['all']:,} people with at most 25 each;"
        return ["", f"{text} {people['with_2_to_25']:,} of them have 2 or more, the others are right by construction."]
    return []


def findings(results: Results) -> list[Finding]:
    """High accuracy of both heads, and whether sources are like what was made."""
    found = []
    for name, words in (("class_at_mean", "Class"), ("index_at_mean", "Index")):
        signs, parts = [], []
        for cell, text in CELLS.items():
            one = mean(results, cell, f"{name}_2_to_25" if cell.startswith("lfw") else name)
            if one is not None and not cell.endswith("modern"):
                gap = apart(one, (HIGH, 10**9))
                signs.append(gap.sign)
                parts.append(f"{text} {_with_ends(one)}")
        claim = f"{words} prediction reaches high performance (at least {HIGH:.0%} of training samples):"
        found.append(Finding(claim, judged(signs), "; ".join(parts) or "not run"))
    signs, parts = [], []
    for cell, text in CELLS.items():
        one = mean(results, cell, "nearer_than_another")
        if one is not None and not cell.endswith("modern"):
            signs.append(apart(one, (0.5, 10**9)).sign)
            parts.append(f"{text} {_with_ends(one)} of pictures")
    claim = "Generated samples resemble the samples that are named (nearer in pixels than another of the class):"
    return [*found, Finding(claim, judged(signs), "; ".join(parts) or "not run")]


def _with_ends(one: Figure) -> str:
    found = standing(None, [one])
    return f"{spread(found)} ({ends(found)})"


def vae_figures(results: Results) -> dict[str, bytes]:
    """Curves of all generators; pictures with their sources where they may be kept."""
    there = {cell: next(iter(seeds.values())) for cell, seeds in results.cells.items() if cell in CELLS}
    courses = {cell: one.told["course"] for cell, one in there.items() if one.told["course"]}
    found = {"": png(_curves(courses))} if courses else {}
    pictures = {cell: one.told["pictures"] for cell, one in there.items() if "pictures" in one.told}
    return {**found, **({"pictures": png(_sheets(pictures))} if pictures else {})}


LOSSES = {
    "reconstruction": (BLUE, "-", "reconstruction"),
    "divergence": (ORANGE, "--", "divergence"),
    "task_loss": ("#3b9e8f", "-.", "class"),
    "index_loss": (GREY, ":", "index"),
}
SHARES = {
    "class_at_mean": (BLUE, "-", "class, mean"),
    "class_at_sample": (BLUE, "--", "class, drawn"),
    "index_at_mean": (ORANGE, "-", "index, mean"),
    "index_at_sample": (ORANGE, "--", "index, drawn"),
}


def _curves(courses: dict[str, Any]) -> Any:
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        2, len(courses), figsize=(1.6 + 2.9 * len(courses), 5.6), squeeze=False, layout="constrained"
    )
    for column, (cell, course) in enumerate(courses.items()):
        epochs = [row["epoch"] for row in course]
        alone = "o" if len(epochs) == 1 else None  # one point has no line
        for axes, lines, factor in ((every[0][column], LOSSES, 1.0), (every[1][column], SHARES, 100.0)):
            for name, (colour, style, words) in lines.items():
                if all(name in row for row in course):
                    values = [factor * row[name] for row in course]
                    axes.plot(epochs, values, color=colour, ls=style, lw=1.5, marker=alone, ms=4, label=words)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        every[0][column].set_yscale("log")
        every[0][column].set_title(CELLS[cell].replace(", ", ",\n"), fontsize=9)
        every[1][column].set_ylim(-3, 103)
        every[1][column].set_xlabel("epoch")
    every[0][0].set_ylabel("loss of a picture")
    every[1][0].set_ylabel("training samples, %")
    for axes in (every[0][0], every[1][0]):
        axes.legend(fontsize=7.5, frameon=False)
    return drawing


def _sheets(found: dict[str, Any]) -> Any:
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        1, len(found), figsize=(0.6 + 2.9 * len(found), 4.6), squeeze=False, layout="constrained"
    )
    for axes, (cell, value) in zip(every[0], found.items(), strict=True):
        pictures = unpacked(value)
        draw(axes, pictures, 6, CELLS[cell].replace(", ", ",\n"))
        axes.axvline(pictures.shape[3], color=ORANGE, lw=1.5)
    drawing.suptitle("left of the line: generated; right: five training samples", fontsize=10)
    return drawing
