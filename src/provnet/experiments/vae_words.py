"""Generators as Markdown; their curves, and generated pictures before their five sources."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import BAR, NOT_TESTED, Finding, beyond, counted, judged, mean, told
from provnet.experiments.markdown import ends, spread, table
from provnet.experiments.paper import Standing, standing
from provnet.experiments.pictures import draw, unpacked
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Figure, Results

CELLS = {
    "mnist/paper": "MNIST, the paper's VAE",
    "mnist/paper-mean": "MNIST, the paper's VAE, losses as means",
    "mnist/modern": "MNIST, ours with keys",
    "fashion-mnist/paper": "FashionMNIST, the paper's VAE",
    "fashion-mnist/paper-mean": "FashionMNIST, the paper's VAE, losses as means",
    "fashion-mnist/modern": "FashionMNIST, ours with keys",
    "lfw/faces": "LFW, the paper's VAE for faces",
}
FIGURES = {
    "class_at_mean": "class at the mean",
    "index_at_mean": "index at the mean",
    "class_at_sample": "class, drawn latents",
    "index_at_sample": "index, drawn latents",
    "index_learned": "index, with keys as training left them",
    "class_at_mean_2_to_25": "class at the mean, people with 2 to 25",
    "index_at_mean_2_to_25": "index at the mean, people with 2 to 25",
    "index_at_sample_2_to_25": "index, drawn latents, people with 2 to 25",
    "class_accuracy": "class, unseen",
    "judge_accuracy": "class that the judge sees, unseen",
    "agreement": "generated: judge sees the class of the first source",
    "nearer_than_another": "generated: first source nearer than one of its class drawn at random",
    "nearer_than_any": "generated: first source nearer than one sample drawn at random",
    "five_nearer_than_any": "generated: five sources nearer, on average, than five drawn at random",
    "different_first_sources": "generated: different first sources, of all pictures",
}
READINGS = {
    "paper": "The paper's VAE with losses as sums",
    "paper-mean": "The paper's VAE with losses as means",
    "modern": "Our generator with keys",
}
AT_ONCE = {
    "class_at_mean": "class",
    "index_at_mean": "index",
    "class_at_sample": "drawn class",
    "index_at_sample": "drawn index",
    "agreement": "class of the first source",
}
FIDELITY = '"the generated faces exhibit reasonable fidelity" (sec. 5.5):'
HIGH = 0.9  # what "high performance" is taken to mean
TEXTS = """*All at once*: class and index of training samples, at the mean and with drawn latents, and the class of the
first source, as a judge sees it. The paper has no skips where it speaks of a U-Net. It does not say whether
cross-entropy and divergence are sums over pixels and latents or means: both were trained (guide, 11). Keys of *ours*
are set to the samples' latents when training ends, so that their index is right by construction; what was learned
before stands beside it. The paper speaks of 4,000 to 5,000 people; with at most 25 pictures each there are more in the
data at hand."""


def section(results: Results) -> list[str]:
    """The claims, then a table a data set: a row a number, a column a generator."""
    if not results.cells and not results.absent:
        return ["Not run yet; the paper shows curves without numbers."]
    lines = told(findings(results), results)
    for data in dict.fromkeys(cell.split("/")[0] for cell in CELLS):
        lines += _table(results, [cell for cell in CELLS if cell.startswith(f"{data}/")])
    return [*lines, *_people(results), "", TEXTS]


def _table(results: Results, cells: list[str]) -> list[str]:
    """The generators of one data set; smaller scales have those that were run."""
    seeds = {cell: list(results.cells.get(cell, {}).values()) for cell in cells}
    if results.scale != "full":
        seeds = {cell: found for cell, found in seeds.items() if found}
    if not seeds:
        return []
    data = CELLS[cells[0]].split(", ")[0]
    lines = ["", f"### {data}"]
    for cell, found in seeds.items():
        if not found:
            lines += ["", f"{CELLS[cell]}: {results.absent.get(cell, 'not run')}"]
    rows = []
    for name, text in FIGURES.items():
        every = [
            standing(None, [result.figures[name] for result in found if name in result.figures])
            for found in seeds.values()
        ]
        counts = sorted({f"{one.n:,}" for one in every if one.mean is not None})
        if counts:
            rows.append((text, *(_number(name, one) for one in every), " / ".join(counts)))
    if not rows:
        return lines
    head = [CELLS[cell].removeprefix(f"{data}, ") for cell in seeds]
    rows.append(("seeds", *(str(len(found) or "") for found in seeds.values()), ""))
    return [*lines, "", "Per cent, with 95 % intervals.", "", *table(("number", *head, "n"), rows)]


def _number(name: str, one: Standing) -> str:
    if one.mean is None:
        return ""
    # not a share of independent samples
    return spread(one) if name == "different_first_sources" else f"{spread(one)} ({ends(one)})"


def _people(results: Results) -> list[str]:
    for one in results.cells.get("lfw/faces", {}).values():
        people = one.told["people"]
        text = f"LFW: {one.told['samples']['train']:,} pictures of {people['all']:,} people with at most 25 each;"
        text += f" {people['with_2_to_25']:,} of them have 2 or more, the index of the others is right by construction."
        return ["", text]
    return []


def findings(results: Results) -> list[Finding]:
    """What the paper says of faces, of likeness to the sources, and whether one network does all of it at once."""
    found = [_faces(results, name, words) for name, words in (("class", "Class"), ("index", "Index"))]
    found += [Finding(FIDELITY, NOT_TESTED, "no measure of it was taken, and faces are not kept"), _alike(results)]
    return [*found, _simultaneously(results), *(_at_once(results, *reading) for reading in READINGS.items())]


def _faces(results: Results, name: str, words: str) -> Finding:
    """Of people with 2 to 25 pictures: the index of the others is right by construction."""
    each = [mean(results, "lfw/faces", f"{name}_at_{where}_2_to_25") for where in ("mean", "sample")]
    told_of = [f"{_with_ends(one)} {at}" for one, at in zip(each, ("at the mean", "drawn"), strict=True) if one]
    claim = f"{words} prediction of faces reaches high performance (at least {100 * HIGH:.0f} % of training samples, "
    claim += "people with 2 to 25 pictures; sec. 5.5):"
    return Finding(claim, judged(map(_high, each)), ", ".join(told_of) or "not run")


def _alike(results: Results) -> Finding:
    """Losses as sums, the first reading of the recipe."""
    signs: list[int | None] = []
    parts = []
    for cell in ("mnist/paper", "fashion-mnist/paper", "lfw/faces"):
        near = mean(results, cell, "nearer_than_any" if cell.startswith("lfw") else "nearer_than_another")
        seen = mean(results, cell, "agreement")
        signs.append(beyond(near, 0.5))
        text = f"{CELLS[cell]} nearer for {_with_ends(near)}" if near else ""
        if not cell.startswith("lfw"):
            signs.append(_high(seen))
            text += f", the same class for {_with_ends(seen)}" if seen else ""
        parts += [text] if text else []
    claim = (
        "Generated samples closely resemble the samples that are named (in more than half, which is what chance gives, "
        "the first is nearer in pixels than one of its class drawn at random, of faces than a face drawn at random; a "
        f"judge sees its class in {100 * HIGH:.0f} % or more):"
    )
    return Finding(claim, judged(signs), "; ".join(parts) or "not run")


def _simultaneously(results: Results) -> Finding:
    """The paper's own sentence, losses as sums; a figure of a data set is a case, since it sets no bar for all."""
    signs: list[int | None] = []
    parts = []
    for data in ("mnist", "fashion-mnist"):
        cell = f"{data}/paper"
        each = {words: mean(results, cell, name) for name, words in AT_ONCE.items()}
        signs += [_high(one) for one in each.values()]
        rates = ", ".join(f"{words} {_with_ends(one)}" for words, one in each.items() if one is not None)
        parts += [f"{CELLS[cell].split(', ')[0]} {rates}"] if rates else []
    claim = (
        'The network can "simultaneously generate realistic samples while maintaining the ability to classify and '
        f'retrieve specific training examples" (sec. 5.5; each figure {100 * HIGH:.0f} % or more, realistic where a '
        "judge sees the class of the first source):"
    )
    return Finding(claim, judged(signs), f"{'; '.join(parts)}; {counted(signs)}" if parts else "not run", late=BAR)


def _at_once(results: Results, reading: str, words: str) -> Finding:
    """Whether one network knows classes and samples and makes pictures like their sources; a data set is a case."""
    signs: list[int | None] = []
    parts = []
    for data in ("mnist", "fashion-mnist"):
        cell = f"{data}/{reading}"
        each = {name: found for name in AT_ONCE if (found := mean(results, cell, name)) is not None}
        every = [_high(one) for one in each.values()]
        signs.append(None if not every else -1 if -1 in every else 1 if set(every) == {1} else 0)
        low = [f"{AT_ONCE[name]} {_with_ends(one)}" for name, one in each.items() if _high(one) != 1]
        parts += [f"{CELLS[cell].split(', ')[0]}, {'but for ' + ', '.join(low) if low else 'all'}"] if each else []
    claim = f"{words} does all at once (each of {len(AT_ONCE)} figures {100 * HIGH:.0f} % or more):"
    return Finding(claim, judged(signs), "; ".join(parts) or "not run", ours=True)


def _high(one: Figure | None) -> int | None:
    return beyond(one, HIGH)


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
        2, len(courses), figsize=(max(5.0, 1.2 + 2.0 * len(courses)), 6.2), squeeze=False, layout="constrained"
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
        every[0][column].set_title(CELLS[cell].replace(", ", ",\n"), fontsize=8.5)
        every[1][column].set_ylim(-3, 103)
        every[1][column].tick_params(labelleft=column == 0)
        every[1][column].set_xlabel("epoch")
    every[0][0].set_ylabel("loss of a picture")
    every[1][0].set_ylabel("training samples, %")
    for axes, place in ((every[0][0], "upper"), (every[1][0], "lower")):
        drawing.legend(*axes.get_legend_handles_labels(), loc=f"outside {place} center", ncols=4, frameon=False)
    return drawing


def _sheets(found: dict[str, Any]) -> Any:
    plt: Any = pyplot()
    drawing, every = plt.subplots(
        1, len(found), figsize=(max(5.0, 0.6 + 2.4 * len(found)), 3.9), squeeze=False, layout="constrained"
    )
    for axes, (cell, value) in zip(every[0], found.items(), strict=True):
        pictures = unpacked(value)
        draw(axes, pictures, 6, CELLS[cell].replace(", ", ",\n"))
        axes.axvline(pictures.shape[3], color=ORANGE, lw=1.5)
    drawing.suptitle("left of the line: generated; right: five training samples", fontsize=10)
    return drawing
