"""Model size and layer sharing: four sizes of CNN1 (class) and CNN2 (index), four levels of shared layers.

Claim: larger models are better in both branches; sharing more layers improves them and can hurt small ones; level 3 is
    best for most, levels 3 and 4 give the highest class consistency (sec. 4.4, app. 7.6, two tables).
Command: provnet reproduce sharing --data-dir DIR --device cuda --seeds 1
Expected: class accuracy near the paper's; memorisation complete for large models; several of the paper's sentences hold
    neither in its own tables nor in ours, and are named below.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: an estimated 50 minutes for one seed: 40 s a small pair, 55 s a medium, 75 s a large, 185 s an XLarge, 5 minutes
    for the two pairs with the batches as printed.

Layers, dropout, 150 epochs and rates as app. 7.6 prints them. To fit the time batches are 8 times larger (XLarge 16
times: 512 and 256 for all). Rates of Small and Medium are larger by the root of that; those of Large and XLarge are as
printed, since with larger ones CNN2 of Large at level 1 on MNIST never left chance. Two pairs are trained with the
printed batches, too: one whose rates grew, one whose rates did not. Which answers are right is kept, so that pairs are
compared sample by sample.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from provnet.base.stats import wilson
from provnet.models.network import parameter_count
from provnet_paper import networks
from provnet_paper.beside import chapter, mean, number, percent_of, rate, standings, summary
from provnet_paper.judge import (
    Apart,
    Both,
    Known,
    Look,
    Seen,
    Sign,
    apart,
    changed_more,
    counted,
    findings,
    judged,
    kept_hits,
    known,
    larger_batches,
    less,
    of_results,
    told,
)
from provnet_paper.plots import BLUE, GREY, ORANGE, png, pyplot, tidy
from provnet_paper.records import (
    MISSED,
    Cell,
    Experiment,
    Figure,
    Job,
    Printed,
    Result,
    Results,
    Scale,
    Told,
    half_width,
    printed,
)
from provnet_paper.samples import HEAD, copies_of, copy_figures
from provnet_paper.samples import SOME as CURVE_N  # training samples of a point of the index curve
from provnet_paper.store import resolved
from provnet_paper.two_cnns import TwoCnns, answers, built, pair, pair_hits, point, rates, shared_share, trained

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SIZES = ("small", "medium", "large", "xlarge")
LEVELS = (1, 2, 3, 4)
NAMES = {"small": "Small", "medium": "Medium", "large": "Large", "xlarge": "XLarge"}

PLATEAU = 20  # epochs within which CNN1 is said to reach its plateau
NEAR = 0.9  # of its last accuracy: when CNN2 counts as converged
CELLS = tuple(f"{data}/{size}-{level}" for data in PAIRS for size in SIZES for level in LEVELS)
MUCH = 0.1  # of the way of a loss: so much up is not smooth, so much more than at other levels is less stable
LATE = 75  # epochs: half of the training


def curve_of(results: Results, cell: str) -> list[dict[str, Any]]:
    """The curve of a cell's first seed, empty where it was not run."""
    seeds = results.cells.get(cell, {})
    return next(iter(seeds.values())).told["curve"] if seeds else []


def epochs_to(curve: Sequence[dict[str, Any]], branch: str, share: float = NEAR) -> int | None:
    """The first epoch with that share of the last accuracy.

    >>> epochs_to([{"epoch": 1, "index": 0.2}, {"epoch": 5, "index": 0.95}, {"epoch": 9, "index": 1.0}], "index")
    5
    """
    if not curve:
        return None
    least = share * curve[-1][branch]
    return next(int(row["epoch"]) for row in curve if row[branch] >= least)


def upward(losses: Sequence[float]) -> float:
    """How much of the way that a loss goes, the first tenth left out, is upward: 0 where it only falls, 0.5 in place.

    By how much it rises counts, not how often: a loss that has settled wavers a little in every other epoch.

    >>> upward([4.0, 3.0, 2.0, 2.5, 1.0])
    0.125
    """
    late = losses[len(losses) // 10 :]
    steps = [b - a for a, b in itertools.pairwise(late)]
    way = sum(map(abs, steps))
    return sum(step for step in steps if step > 0) / way if way else 0.0


def rising(losses: Sequence[float]) -> float:
    """The share of epochs, the first tenth left out, in which the loss rose.

    >>> rising([4.0, 3.0, 2.0, 2.5, 1.0])
    0.25
    """
    late = losses[len(losses) // 10 :]
    ups = [b > a for a, b in itertools.pairwise(late)]
    return sum(ups) / len(ups) if ups else 0.0


def _plateau(results: Results) -> Seen:
    signs: dict[str, Sign] = {}
    for cell in CELLS:
        curve = curve_of(results, cell)
        early = [row["class"] for row in curve if row["epoch"] <= PLATEAU]
        last = curve[-1]["class"] if curve else 0.0
        signs[cell] = None if not early else 1 if max(early) >= last - half_width(last, 10_000) else -1
    found = counted(signs.values(), sure=False)
    words = f"within {PLATEAU} epochs class accuracy came within the interval of its last value; {found}"
    later = ", ".join(f"`{cell}`" for cell, sign in signs.items() if sign == -1)
    words += f"; later: {later}" if later else ""
    return list(signs.values()), words


def _slower(results: Results) -> Seen:
    curves = [curve_of(results, cell) for cell in CELLS]
    signs: list[Sign] = [_fewer(epochs_to(curve, "class"), epochs_to(curve, "index")) for curve in curves]
    words = f"epochs to {100 * NEAR:.0f} % of the last accuracy, CNN2 against CNN1; {counted(signs, sure=False)}"
    return signs, words


def _gradual(results: Results) -> Seen:
    """Whether CNN2 still gets surely better after half of the epochs."""
    signs: list[Sign] = []
    for cell in CELLS:
        late = [row["index"] for row in curve_of(results, cell) if row["epoch"] >= LATE]
        signs.append(apart((late[-1], CURVE_N), (late[0], CURVE_N)).sign if len(late) > 1 else None)
    return signs, "no curves" if all(sign is None for sign in signs) else f"CNN2; {counted(signs)}"


def _fewer(one: int | None, other: int | None) -> int | None:
    """1 where the first took fewer epochs, -1 where more, 0 where as many."""
    return None if one is None or other is None else (one < other) - (one > other)


def _faster_of(results: Results, pairs: Sequence[tuple[str, str]]) -> tuple[list[Sign], list[str]]:
    """Whether the first of each pair of cells reaches its accuracy in fewer epochs."""
    signs, told = [], []
    for first, second in pairs:
        ours, theirs = (epochs_to(curve_of(results, cell), "index") for cell in (first, second))
        signs.append(_fewer(ours, theirs))
        if signs[-1] is not None:
            told.append(f"`{first}` {ours}, `{second}` {theirs}")
    return signs, told


def _faster(results: Results) -> Seen:
    pairs = [pair for data in PAIRS for size in ("large", "xlarge") for pair in _higher(data, size)]
    signs, told = _faster_of(results, pairs)
    return signs, _epochs(signs, told)


def _not_in_small(results: Results) -> Seen:
    signs, told = _faster_of(results, [pair for data in PAIRS for pair in _higher(data, "small")])
    slower: list[Sign] = [None if sign is None else 1 if sign < 1 else -1 for sign in signs]
    return slower, _epochs(slower, told)


def _higher(data: str, size: str) -> list[tuple[str, str]]:
    """Levels 2, 3 and 4, each against level 1."""
    return [(f"{data}/{size}-{level}", f"{data}/{size}-1") for level in LEVELS[1:]]


def _epochs(signs: Sequence[int | None], told: Sequence[str]) -> str:
    if not told:
        return "no curves"
    return f"epochs to {100 * NEAR:.0f} % of the last index accuracy; {counted(signs, sure=False)}: {'; '.join(told)}"


def _larger_faster(results: Results) -> Seen:
    every = {data: [(f"{data}/xlarge-{level}", f"{data}/small-{level}") for level in LEVELS] for data in PAIRS}
    signs, clothes = (_faster_of(results, every[data])[0] for data in PAIRS)  # sec. 4.4 speaks of MNIST alone
    words = (
        f"epochs to {100 * NEAR:.0f} % of the last index accuracy, XLarge against Small; {counted(signs, sure=False)}; "
        f"on FashionMNIST {counted(clothes, sure=False)}"
    )
    return signs, words


Measure = Callable[[Sequence[float]], float]


def _unrest(results: Results, data: str, size: str, measure: Measure = upward) -> list[float] | None:
    """How restless CNN2's training loss was at levels 1 to 4; None where one was not run."""
    each = []
    for level in LEVELS:
        seeds = results.cells.get(f"{data}/{size}-{level}", {})
        each.append([measure(one.told["loss"]["index"]) for one in seeds.values()])
    return [statistics.fmean(one) for one in each] if all(each) else None


def _more_at_4(unrest: Sequence[float] | None) -> float | None:
    """Level 4 less the mean of levels 1 to 3, which the paper calls smooth."""
    return None if unrest is None else unrest[-1] - statistics.fmean(unrest[:-1])


def _beyond(more: float | None) -> int | None:
    """1 where by more than MUCH, -1 where by more than that the other way, else 0."""
    return None if more is None else 1 if more > MUCH else -1 if more < -MUCH else 0


def _shares(unrest: Mapping[str, Sequence[float] | None]) -> str:
    parts = (f"{name} {', '.join(f'{100 * one:.0f}' for one in each)}" for name, each in unrest.items() if each)
    return "; ".join(parts)


WAY = "per cent of the way of CNN2's training loss that went up, levels 1 to 4: "


def _smooth(results: Results) -> Seen:
    signs: list[Sign] = []
    for cell in CELLS:
        if not cell.endswith("-4"):
            each = [upward(one.told["loss"]["index"]) for one in results.cells.get(cell, {}).values()]
            signs.append(None if not each else 1 if statistics.fmean(each) < MUCH else -1)
    none = all(sign is None for sign in signs)
    return signs, "no curves" if none else f"CNN2; {counted(signs, sure=False)}"


def _unstable(results: Results) -> Seen:
    """By two measures that have to agree: how often the loss rises was set first, by how much when it was known."""
    often, far = (
        {words: _unrest(results, data, "small", measure) for data, words in PAIRS.items()}
        for measure in (rising, upward)
    )
    signs = [
        _agreed(_beyond(_more_at_4(one)), _beyond(_more_at_4(other)))
        for one, other in zip(often.values(), far.values(), strict=True)
    ]
    if not any(often.values()):
        return signs, "no curves"
    words = f"per cent of epochs in which CNN2's training loss rose, levels 1 to 4: {_shares(often)}; {WAY}"
    words += f"{_shares(far)}; the second was added when the results were known, as the first counts what a settled "
    return signs, f"{words}loss wavers, too: a case needs both"


def _agreed(one: int | None, other: int | None) -> int | None:
    return one if one == other else 0


def _on_clothes(results: Results) -> Seen:
    digits, clothes = (_more_at_4(_unrest(results, data, "small")) for data in PAIRS)
    if digits is None or clothes is None:
        return [None], "no curves"
    return [_beyond(clothes - digits)], f"{100 * clothes:.0f} points against {100 * digits:.0f} on MNIST"


def _calm(results: Results) -> Seen:
    cases = {
        f"{words}, {NAMES[size]}": _unrest(results, data, size) for data, words in PAIRS.items() for size in SIZES[1:]
    }
    more = [_more_at_4(each) for each in cases.values()]
    signs = [None if one is None else -1 if one > MUCH else 1 for one in more]
    if not any(cases.values()):
        return signs, "no curves"
    return signs, f"{counted(signs, sure=False)}; {WAY}{_shares(cases)}"


CURVES: dict[str, Callable[[Results], Seen]] = {
    "plateau": _plateau,
    "slower": _slower,
    "gradual": _gradual,
    "faster": _faster,
    "not in small": _not_in_small,
    "larger faster": _larger_faster,
    "smooth": _smooth,
    "unstable": _unstable,
    "on clothes": _on_clothes,
    "calm": _calm,
}


FIGURES = {
    "class_accuracy": "CNN1, class",
    "index_accuracy": "CNN2, own index",
    "any_at_1": "consistency, top 1",
    "any_at_5": "consistency, any of 5",
}
AS_PRINTED = "-as-printed"  # pairs trained with the printed batches, too
MORE: dict[str, Callable[[Result], str]] = {
    HEAD: copies_of,
    "shared": lambda one: f"{100 * one.told['shared']:.1f} %",
    "parameters": lambda one: f"{one.told['parameters'] / 1e6:.1f} M",
    "seconds": lambda one: f"{one.told['seconds']['all']:.0f}",
}
LIMITS = """The totals of parameters cannot be reproduced: with 7×7 maps and 60,000 outputs the layers as listed have
9.5, 22.6, 59.4 and 176 million (the paper says 4.0, 17.2, 35.8 and 79.6); the shares of level 4 fit. Optimiser,
schedule and how the steps of the two networks alternate are not stated: AdamW, constant rates, spread evenly. To fit
the time batches are 8 times the printed ones (XLarge 16 times: 512 and 256 for all); rates of Small and Medium are
larger by the root of it. Sec. 4.4 calls the pairs class-conditional, app. 7.6 does not: here the index is over all
samples. Small and Medium pairs with the larger batches were trained by an earlier version, in which mixed precision
rounded weights at every step; since then rounded copies are multiplied, which is meant to be the same arithmetic but
was not run side by side. So `mnist/small-3-as-printed` differs from `mnist/small-3` in the version, too. It ran beside
two Large pairs under NVIDIA MPS, so its seconds say little; Large and XLarge pairs ran under MPS as well."""
RATES = """Sentences that compare sizes compare rates, too: as printed those of CNN1 and CNN2 are 1e-3 and 1e-4 for
Small and Medium, 5e-4 for both networks of Large, 2e-4 for both of XLarge, and only those of Small and Medium were
raised with the batches. Epochs of convergence are read off curves with a point an epoch up to 20, then every fifth."""
ONE_RATE = (
    "In Large and XLarge CNN2 learns at the rate of CNN1, in Small and Medium at a tenth of it; whether that is the "
    "cause was not tried"
)


def section(results: Results) -> list[str]:
    """The count, the sentences, then a table a data set."""
    lines = [summary(results, "sharing")] if results.scale == "full" else []
    if results.cells and results.scale == "full":
        lines += ["", "The paper's sentences, on our results (and, in brackets, on the paper's own tables):"]
    lines += told(findings(results, {**CURVES, "degrades small": _degrades_small}, papers), results)
    settings = {f"{size}-{level}": f"{NAMES[size]}, level {level}" for size in SIZES for level in LEVELS}
    lines += ["", RATES] if results.cells and results.scale == "full" else []
    for data in PAIRS.items():
        lines += chapter(results, data, settings, FIGURES, name="sharing", head="pair", more=MORE)
    return [*lines, *_missed(results), *larger_batches(_both(results), results.scale), "", LIMITS]


def missed(results: Results) -> list[Printed]:
    """The numbers of the paper that ours are surely below."""
    return [paper for paper, found in standings(results, "sharing").items() if found.verdict == MISSED]


def name_of(paper: Printed) -> str:
    """A number in words.

    >>> name_of(Printed("mnist", "large-4", "class_accuracy", "99.2"))
    'MNIST, Large, level 4, CNN1, class'
    """
    size, level = paper.setting.split("-")
    return f"{PAIRS[paper.data]}, {NAMES[size]}, level {level}, {FIGURES[paper.figure]}"


def _missed(results: Results) -> list[str]:
    """What else is known of the numbers that were missed: their course over the levels, the printed batches."""
    lines = [_explained(results, paper) for paper in missed(results)]
    return ["", "### Where we differ", "", *lines] if lines else []


def _explained(results: Results, paper: Printed) -> str:
    size, _ = paper.setting.split("-")
    cell = f"{paper.data}/{paper.setting}"
    ours = known(results, cell, paper.figure)
    assert ours is not None  # a number is missed only where it was measured
    told_of = [f"- {name_of(paper)}: {number(ours.figure[0])}, paper {paper.text}"]
    for data, words in PAIRS.items():
        rates = [known(results, f"{data}/{size}-{level}", paper.figure) for level in LEVELS]
        theirs = [papers(f"{data}/{size}-{level}", paper.figure).figure[0] for level in LEVELS]
        each = ", ".join(percent_of(None if one is None else one.figure) for one in rates)
        gap = _level_4(results, data, size, paper.figure)
        last = f", level 4 less level 1 {gap}" if gap is not None else ""
        printed = ", ".join(f"{100 * value:.1f}" for value in theirs)
        told_of.append(f"levels 1 to 4 of {NAMES[size]} on {words}: {each}{last}; paper {printed}")
    others = {one: _level_4(results, paper.data, one, paper.figure) for one in SIZES if one != size}
    falls = "; ".join(f"{NAMES[one]} {gap}" for one, gap in others.items() if gap is not None)
    told_of += [f"level 4 less level 1 of other sizes on {PAIRS[paper.data]}: {falls}"] if falls else []
    told_of += [ONE_RATE] if paper.figure == "class_accuracy" and size in ("large", "xlarge") else []
    as_printed = known(results, f"{cell}{AS_PRINTED}", paper.figure)
    gap = less(ours, as_printed)
    if as_printed is None or gap is None:
        told_of.append("with the printed batches: not run")
    else:
        told_of.append(f"with the printed batches: {number(as_printed.figure[0])}, ours with larger ones less it {gap}")
    return f"{'. '.join(text[0].upper() + text[1:] for text in told_of)}."


def _level_4(results: Results, data: str, size: str, figure: str) -> Apart | None:
    """Level 4 less level 1."""
    last, first = (known(results, f"{data}/{size}-{level}", figure) for level in (4, 1))
    return less(last, first)


@cache
def _theirs() -> dict[tuple[str, str], float]:
    return {(f"{one.data}/{one.setting}", one.figure): one.value for one in printed("sharing")}


def papers(cell: str, figure: str) -> Known:
    """Looks into the paper's own tables.

    >>> papers("mnist/small-4", "index_accuracy").figure
    (0.919, 60000)
    """
    return Known((_theirs()[cell, figure], 60_000 if figure == "index_accuracy" else 10_000))


def _degrades_small(results: Results) -> Seen:
    """Small: level 4 below level 3 in memorisation, and by more on FashionMNIST than on MNIST."""
    here, there = (_falls(look) for look in (of_results(results), papers))
    return here, f"{counted(here)} (the paper's own tables: {judged(there)}, {counted(there)})"


def _falls(look: Look) -> list[Sign]:
    rates = [look(f"{data}/small-{level}", "index_accuracy") for data in ("fashion-mnist", "mnist") for level in (3, 4)]
    falls = [less(rates[0], rates[1]), less(rates[2], rates[3])]
    there = [one for one in rates if one is not None]
    more = changed_more(there, ())[0] if len(there) == len(rates) else [None]
    return [*(None if fall is None else fall.sign for fall in falls), *more]


def _headline(results: Results) -> str:
    """What was missed, and between which rates all pairs lie."""
    parts = []
    for data, words in PAIRS.items():
        cells = [f"{data}/{size}-{level}" for size in SIZES for level in LEVELS]
        each = []
        for figure, name in (("class_accuracy", "class"), ("index_accuracy", "own index"), ("any_at_1", "consistency")):
            found = sorted(one for cell in cells if (one := mean(results, cell, figure)) is not None)
            each += [f"{name} {rate(found[0])} to {rate(found[-1])}"] if found else []
        parts += [f"{words} {', '.join(each)}"] if each else []
    low = [name_of(paper) for paper in missed(results)]
    text = f"Missed: {'; '.join(low)}. " if low else ""
    return f"{text}Lowest to highest of all pairs: {'; '.join(parts)}." if parts else text.rstrip()


def _both(results: Results) -> list[Both]:
    """The pairs that were also trained with batches as printed."""
    return [
        Both(
            f"{PAIRS[data]}, {NAMES[size]}, level {level}",
            words,
            known(results, f"{data}/{size}-{level}{AS_PRINTED}", figure),
            known(results, f"{data}/{size}-{level}", figure),
        )
        for data in PAIRS
        for size in SIZES
        for level in LEVELS
        for figure, words in FIGURES.items()
    ]


STYLES = {1: (GREY, ":"), 2: ("#3b9e8f", "--"), 3: (BLUE, "-"), 4: (ORANGE, "-.")}
MARKS = {1: "s", 2: "^", 3: "o", 4: "D"}
SETTLED = 10  # epochs


def sharing_figures(results: Results) -> dict[str, bytes]:
    """A figure a data set: index and class accuracy by epoch; one more of the last values beside the paper's."""
    found = {data: png(_curves(results, data)) for data in PAIRS if _there(results, data)}
    return {**found, **({"": png(_last(results))} if found and results.scale == "full" else {})}


def _there(results: Results, data: str) -> list[str]:
    return [size for size in SIZES if any(curve_of(results, f"{data}/{size}-{level}") for level in LEVELS)]


def _curves(results: Results, data: str) -> Any:
    plt, sizes = pyplot(), _there(results, data)
    drawing, every = plt.subplots(
        2,
        len(sizes),
        figsize=(max(6.0, 2.2 + 2.6 * len(sizes)), 5.2),
        squeeze=False,
        sharex=True,
        sharey="row",  # sizes are compared
        layout="constrained",
    )
    for column, size in enumerate(sizes):
        for row, (branch, words) in enumerate((("index", "CNN2, own index"), ("class", "CNN1, class of unseen"))):
            axes = every[row][column]
            for level in LEVELS:
                curve = curve_of(results, f"{data}/{size}-{level}")
                colour, dash = STYLES[level]
                x, y = [one["epoch"] for one in curve], [100 * one[branch] for one in curve]
                alone = "o" if len(x) == 1 else None  # one point has no line
                axes.plot(x, y, color=colour, ls=dash, lw=1.6, marker=alone, ms=4, label=f"level {level}")
            tidy(axes, grid=True)
            if branch == "class":
                axes.set_xlabel("epoch")
            if column == 0:
                axes.set_ylabel(f"{words}, %")
        every[0][column].set_title(NAMES[size], fontsize=11)
        if left := [str(level) for level in LEVELS if not curve_of(results, f"{data}/{size}-{level}")]:
            words = f"level {', '.join(left)} not run"
            every[0][column].text(0.97, 0.05, words, transform=every[0][column].transAxes, ha="right", fontsize=9)
    _settled(every[1][0], [curve_of(results, f"{data}/{size}-{level}") for size in sizes for level in LEVELS])
    drawing.legend(*every[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    cut = f"lower row cut off below its values from epoch {SETTLED} on"
    none = ", ".join(NAMES[size] for size in SIZES if size not in sizes)
    cut += f"; {none} not run" if none and results.scale == "full" else ""
    drawing.suptitle(f"{PAIRS[data]}: accuracy by epoch at four levels of shared layers; {cut}", fontsize=10)
    return drawing


def _settled(axes: Any, curves: list[list[dict[str, Any]]]) -> None:
    """Room for the values from SETTLED epochs on; what is below in the first epochs is cut off."""
    late = [100 * one["class"] for curve in curves for one in curve if one["epoch"] >= SETTLED or one is curve[-1]]
    margin = 0.08 * (max(late) - min(late)) + 0.1
    axes.set_ylim(min(late) - margin, max(late) + margin)


def _last(results: Results) -> Any:
    """Marks of level 1 to 4 a size, the paper's as dashes."""
    plt = pyplot()
    figures = {
        "class_accuracy": "CNN1, class of unseen",
        "index_accuracy": "CNN2, own index",
        "any_at_1": "CNN2, consistency, top 1",
    }
    drawing, every = plt.subplots(2, 3, figsize=(11.5, 6.2), squeeze=False, layout="constrained")
    for row, data in enumerate(PAIRS):
        for column, (figure, words) in enumerate(figures.items()):
            _marks(every[row][column], results, data, figure)
            every[row][column].set_title(f"{PAIRS[data]}: {words}", fontsize=10)
        every[row][0].set_ylabel("accuracy, %")
    handles = [
        plt.Line2D([], [], ls="", marker=MARKS[level], ms=7, color=STYLES[level][0], label=f"level {level}")
        for level in LEVELS
    ]
    handles.append(plt.Line2D([], [], ls="", marker="_", ms=10, mew=2, color="black", label="paper"))
    drawing.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    drawing.suptitle("last epoch, with 95 % intervals of the samples; every panel has its own axis", fontsize=10)
    return drawing


def _marks(axes: Any, results: Results, data: str, figure: str) -> None:
    ends: list[float] = []
    for place, size in enumerate(SIZES):
        for level in LEVELS:
            at = place + (level - 2.5) * 0.2
            ours, theirs = mean(results, f"{data}/{size}-{level}", figure), papers(f"{data}/{size}-{level}", figure)
            if ours is not None:
                low, high = (100 * end for end in _ends(ours))
                look = {"marker": MARKS[level], "ms": 6, "color": STYLES[level][0], "clip_on": False}
                axes.plot(at, 100 * ours[0], **look)
                axes.vlines(at, low, high, color=look["color"], lw=1.4)
                ends += [low, high]
            axes.plot(at, 100 * theirs.figure[0], marker="_", ms=9, mew=2, color="black", zorder=3)
            ends.append(100 * theirs.figure[0])
        left = [level for level in LEVELS if not results.cells.get(f"{data}/{size}-{level}")]
        if left:
            words = "not run" if len(left) == len(LEVELS) else f"level {', '.join(map(str, left))}\nnot run"
            axes.text(place, 0.03, words, transform=axes.get_xaxis_transform(), ha="center", fontsize=8, color=GREY)
    low, high = min(ends), max(ends)
    margin = 0.12 * (high - low) + 0.1
    axes.set_ylim(low - margin, min(100 + margin / 2, high + margin))
    axes.set_xticks(range(len(SIZES)), [NAMES[size] for size in SIZES], fontsize=9)
    tidy(axes)
    axes.grid(axis="y", alpha=0.25)


def _ends(ours: Figure) -> tuple[float, float]:
    """The ends of the Wilson interval."""
    found = wilson(min(ours[0] * ours[1], ours[1]), ours[1])
    assert found.low is not None and found.high is not None
    return found.low, found.high


EPOCHS = 150
EARLY, EVERY = 20, 5  # a point of the curves every epoch at first, then every fifth
PAIRED = ("class_accuracy", "index_accuracy", "any_at_1", "any_at_5")
RAISED = {"small": 8, "medium": 8, "large": 8, "xlarge": 16}
SECONDS = {"small": 40.0, "medium": 55.0, "large": 75.0, "xlarge": 185.0}
WITH_PRINTED = {"mnist/small-3": 105.0, "mnist/large-4": 180.0}  # also run with the printed batches


def cells(scale: Scale) -> list[Cell]:
    """A pair each, small ones first, the largest last but for a second pair with the printed batches; `tiny` has two.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/small-1', 'mnist/small-4'], 34)
    """
    if scale.name == "tiny":
        return [_cell("mnist", "small", level, scale) for level in (1, 4)]
    found = [_cell(data, size, level, scale) for size in RAISED for data in PAIRS for level in LEVELS]
    printed = []
    for name in WITH_PRINTED:
        data, setting = name.split("/")
        size, level = setting.split("-")
        printed.append(_cell(data, size, int(level), scale, printed=True))
    large = len(PAIRS) * len(LEVELS)
    first, *others = printed  # one is asked for; the others are more evidence
    return [*found[:-large], first, *found[-large:], *others]


def _cell(data: str, size: str, level: int, scale: Scale, *, printed: bool = False) -> Cell:
    recipe = pair(size, level, scale.epochs or EPOCHS, 1 if printed else RAISED[size])
    name = f"{data}/{size}-{level}"
    seconds = WITH_PRINTED[name] if printed else SECONDS[size]
    name += AS_PRINTED if printed else ""
    return networks.cell(name, data, scale, partial(run, data, recipe), seconds, {"pair": recipe.to_json()})


def run(data: str, recipe: TwoCnns, job: Job) -> Told:
    """Train one pair and ask it; curves on the way."""
    train, test = networks.opened(data, job)
    net = built(train, recipe, job.seed, resolved(job.device))
    curve: list[dict[str, float]] = []

    def ended(epoch: int) -> None:
        if epoch <= EARLY or epoch % EVERY == 0 or epoch == recipe.epochs:
            curve.append({"epoch": epoch, **point(net, train, test)})
        job.tell(0.97 * epoch / recipe.epochs)

    course = trained(net, train, recipe, job.seed, ended)
    hits = pair_hits(net, train, test)
    copies = copy_figures(train, job.seed, lambda images: answers(net, images, 1)[1][:, 0])
    return {
        "figures": rates(hits) | copies,
        **kept_hits({name: hits[name] for name in PAIRED}),
        "parameters": parameter_count(net),
        "shared": round(shared_share(net), 5),
        "curve": [{key: round(value, 5) for key, value in row.items()} for row in curve],
        **{
            kind: {name: [float(f"{row[f'{name}_{kind}']:.5g}") for row in course] for name in ("class", "index")}
            for kind in ("loss", "accuracy")  # as trained, epoch by epoch
        },
        "samples": {"train": len(train), "test": len(test)},
    }


EXPERIMENT = Experiment("sharing", str(__doc__), cells, section, sharing_figures, headline=_headline)
