"""The trade-off between memorising and generalising as Markdown and as a figure with samples laid over it."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import Apart, Finding, apart, chapter, judged, mean, percent_of, summary, told
from provnet.experiments.pictures import draw, unpacked
from provnet.experiments.plots import BLUE, GREY, ORANGE, png, pyplot
from provnet.experiments.records import Figure, Results
from provnet.stats import wilson

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
PRINTED = "mnist/0.5-batch-128"
LOST = 0.01  # of the training samples found by their own index: less is no memory
FIGURES = {
    "index_accuracy": "own index",
    "index_accuracy_sampled_targets": "sampled targets",
    "any_at_1_train": "class, training",
    "any_at_1": "class, unseen",
    "any_at_5": "any of 5, unseen",
    "majority_at_5": "majority of 5",
    "class_accuracy": "log-sum-exp",
}
TEXTS = """Class accuracy is the class of the most active index neuron; *any of 5* is what the paper's "top 5" must be
(its caption says majority, which stands beside it), *log-sum-exp* is ours. The number that falls as 1 − α is accuracy
against sampled targets; the own index is a figure of its own. To fit the time batches are of 512 instead of 128, with
the printed rate."""


def section(results: Results) -> list[str]:
    """The count, the claims, then a row an α."""
    lines = [summary(results, "mixing")] if results.scale == "full" else []
    lines += told(findings(results), results)
    settings = {f"{alpha:g}": f"{alpha:g}" for alpha in ALPHAS}
    for data in PAIRS.items():
        lines += chapter(results, data, settings, FIGURES, name="mixing", head="α")
    return [*lines, *_batch(results), "", TEXTS]


def findings(results: Results) -> list[Finding]:
    """What the paper says of the trade-off."""

    def at(data: str, alpha: float, figure: str) -> Figure | None:
        return mean(results, f"{data}/{alpha:g}", figure)

    def change(figure: str, first: float, last: float, way: int) -> tuple[list[int | None], str]:
        signs: list[int | None] = []
        parts = []
        for data, words in PAIRS.items():
            before, after = at(data, first, figure), at(data, last, figure)
            if before is None or after is None:
                signs.append(None)
                continue
            gap = apart(after, before)
            signs.append(way * gap.sign)
            parts.append(f"{words} {percent_of(before)} to {percent_of(after)}, {gap}")
        return signs, "; ".join(parts) or "not run"

    falls = change("index_accuracy_sampled_targets", 0.0, 1.0, -1)
    own = {words: at(data, 1.0, "index_accuracy") for data, words in PAIRS.items()}
    kept = "; ".join(f"{words} {percent_of(one)}" for words, one in own.items() if one is not None) or "not run"
    rises = change("any_at_1", 0.0, 1.0, 1)
    middle = [change("any_at_1", alpha, 1.0, 1)[0] for alpha in (0.5, 0.7)]
    found = [
        Finding("As α grows memorisation falls (accuracy against sampled targets, α from 0 to 1):", *_both(falls)),
        Finding(
            f"At α = 1 memory is lost (own index found for less than {LOST:.0%} of training samples):",
            judged(_lost(one) for one in own.values()),
            kept,
        ),
        Finding("As α grows the class of unseen samples is found more often (α from 0 to 1):", *_both(rises)),
    ]
    costs = [_cost(at(data, 0.0, "any_at_1"), at(data, 1.0, "any_at_1")) for data in PAIRS]
    digits, clothes = costs
    if digits is not None and clothes is not None:
        half = ((digits.high - digits.value) ** 2 + (clothes.high - clothes.value) ** 2) ** 0.5
        more = clothes.value - digits.value
        words = f"α = 0 costs {digits} of class accuracy on MNIST, {clothes} on FashionMNIST"
        sign = Apart(more, more - half, more + half).sign
        found.append(Finding("Memorising costs more on FashionMNIST:", judged([sign]), words))
    both = [(at(data, 0.3, "index_accuracy_sampled_targets"), at(data, 0.3, "any_at_1")) for data in PAIRS]
    known = [f"{words} {percent_of(a)} and {percent_of(b)}" for words, (a, b) in zip(PAIRS.values(), both, strict=True)]
    if all(pair[0] is not None for pair in both):
        near = [_near(one, least) for pair in both for one, least in zip(pair, (0.6, 0.97), strict=True)]
        found.append(
            Finding("At α = .3 about 60 % of indices and 97 % of classes are right:", judged(near), "; ".join(known))
        )
    flat = [sign for signs in middle for sign in signs]
    late = (
        "from α = .5 and .7 to 1 the class of unseen samples rises surely in " + str(flat.count(1)) + f" of {len(flat)}"
    )
    found.append(Finding("Beyond the middle more mixing still helps:", judged(flat), late))
    return found


def _both(found: tuple[list[int | None], str]) -> tuple[str, str]:
    return judged(found[0]), found[1]


def _near(found: Figure | None, said: float) -> int | None:
    """Whether a rate is what the paper calls about so much: within 3 points."""
    return None if found is None else 1 if abs(found[0] - said) <= 0.03 else -1


def _lost(found: Figure | None) -> int | None:
    """Whether a rate is surely below LOST, or surely not."""
    if found is None:
        return None
    interval = wilson(found[0] * found[1], found[1])
    assert interval.low is not None and interval.high is not None
    return 1 if interval.high < LOST else -1 if interval.low >= LOST else 0


def _cost(memorised: Figure | None, mixed: Figure | None) -> Apart | None:
    return None if memorised is None or mixed is None else apart(mixed, memorised)


def _batch(results: Results) -> list[str]:
    if PRINTED not in results.cells:
        return []
    parts = []
    for figure, words in FIGURES.items():
        raised, printed = mean(results, "mnist/0.5", figure), mean(results, PRINTED, figure)
        if raised is not None and printed is not None:
            parts.append(f"{words} {percent_of(printed)} against {percent_of(raised)}, {apart(raised, printed)}")
    return ["", f"Batch 128 against 512, MNIST, α = .5: {'; '.join(parts)}."]


def mixing_figures(results: Results) -> dict[str, bytes]:
    """Curves over α, a panel a data set, with test samples and their two nearest above them."""
    there = [data for data in PAIRS if any(f"{data}/{alpha:g}" in results.cells for alpha in ALPHAS)]
    if not there:
        return {}
    plt: Any = pyplot()
    drawing = plt.figure(figsize=(1.2 + 5.4 * len(there), 5.6), layout="constrained")
    grid = drawing.add_gridspec(2, len(there), height_ratios=(1, 2.6))
    axes = None
    for column, data in enumerate(there):
        _samples(drawing, grid[0, column], results, data)
        axes = drawing.add_subplot(grid[1, column])
        _panel(axes, results, data)
        axes.set_title(PAIRS[data], fontsize=11)
    assert axes is not None
    handles = axes.get_legend_handles_labels()
    drawing.legend(*handles, loc="outside lower center", ncols=1 + len(there), frameon=False, fontsize=9)
    return {"": png(drawing)}


def _samples(drawing: Any, place: Any, results: Results, data: str) -> None:
    """Three rows (a test sample, then its two nearest) for some of the α."""
    cells = [(alpha, results.cells.get(f"{data}/{alpha:g}", {}).get(0)) for alpha in ALPHAS]
    shown = [(alpha, one.told["pictures"]) for alpha, one in cells if one is not None and "pictures" in one.told]
    shown = shown if len(shown) <= 4 else [shown[round(i * (len(shown) - 1) / 3)] for i in range(4)]
    inner = place.subgridspec(1, max(len(shown), 1))
    for column, (alpha, value) in enumerate(shown):
        axes = drawing.add_subplot(inner[0, column])
        draw(axes, unpacked(value), 3, f"α = {alpha:g}")
        axes.axvline(value["shape"][3] + 0.0, color=ORANGE, lw=1.5)


def _panel(axes: Any, results: Results, data: str) -> None:
    lines = {
        "index_accuracy": (GREY, "s", "own index, training"),
        "index_accuracy_sampled_targets": (ORANGE, "v", "sampled targets, training"),
        "any_at_1_train": ("#3b9e8f", "^", "class through the index, training"),
        "any_at_1": (BLUE, "o", "class through the index, unseen"),
    }
    for figure, (colour, marker, words) in lines.items():
        found = [(alpha, mean(results, f"{data}/{alpha:g}", figure)) for alpha in ALPHAS]
        points = [(alpha, 100 * one[0]) for alpha, one in found if one is not None]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, ms=5, lw=1.6, label=words)
    axes.plot([0, 1], [100, 0], color="black", lw=0.8, ls=":", label="1 − α")
    axes.set_xlabel("label mixing α")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
