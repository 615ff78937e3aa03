"""Distorted pictures: the single branch at α from 0 to 1 against an isolated CNN under 15 conditions.

Claim: for occlusion, translation, Gaussian and motion blur a partly mixed single branch is right more often than an
    isolated CNN; captions say at mixing of 20 to 30 %, the text "above 70–80%" (sec. 5.2, app. 7.8, fig. 5).
Command: provnet reproduce robustness --data-dir DIR --device cuda --seeds 1
Expected: accuracy grows with α under nearly every condition; sure gains over the CNN are few and small, and at large α.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: with the networks of `mixing` (--networks) eight minutes for one seed beside other work; else half an hour more.

The layers of app. 7.1 for both: the CNN is the same backbone with the class head of app. 7.2, trained on classes alone.
The networks are those of `mixing`, in batches of 512 instead of 128 to fit the time; the CNN and α = .3 of MNIST are
trained with the printed batch, too. All see one fixed distorted test set (guide, 8). `top 1` is the class of the first
exemplar; of the CNN the most probable class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from provnet.tools.robustness.compute import measure
from provnet.tools.robustness.conditions import CONDITIONS
from provnet_paper import networks
from provnet_paper.beside import counts, mean, percent_of, table
from provnet_paper.judge import Apart, Seen, counted, difference, findings, told
from provnet_paper.mixing import BATCH
from provnet_paper.plots import BLUE, GREY, ORANGE, png, pyplot, tidy
from provnet_paper.records import Cell, Experiment, Figure, Job, Results, Scale, Told, half_width
from provnet_paper.samples import packed, unpacked

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
CNN = "cnn"
AS_PRINTED = "-as-printed"  # networks trained with the printed batch, too
PRINTED, PRINTED_ALPHA = "mnist", 0.3
NAMED = ("occlusion-4", "occlusion-6", "translation-3", "translation-4", "blur-1", "blur-2", "motion-5")  # sec. 5.2
CAPTIONS = ("occlusion-4", "occlusion-6", "blur-1", "blur-2", "motion-5")  # "occlusion and blur"
BETWEEN = tuple(alpha for alpha in ALPHAS if 0 < alpha < 1)
CHANCE = 0.5  # networks that are right on the very same pictures, fewer than so many, answer alike whatever they see


LIMITS = """The networks are those of `mixing`, trained in batches of 512 instead of 128 to fit the time. The isolated
CNN is the backbone of the single branch with a class head, by the same recipe, asked on the same pictures."""


def gains(results: Results, data: str) -> dict[tuple[str, float], Apart]:
    """(condition, α) -> top 1 less the CNN's on the same pictures; intervals hold for all α of a condition together.

    With several seeds a gain is sure only where all of them agree: the interval knows nothing of the luck of training.
    """
    compared = len(_alphas(results, data))
    return {
        (condition, alpha): gap
        for alpha in ALPHAS
        for condition, gap in _gaps(results, f"{data}/{alpha:g}", f"{data}/{CNN}", compared).items()
    }


def _gaps(results: Results, cell: str, other: str, compared: int = 1) -> dict[str, Apart]:
    """Top 1 of a cell less that of another one on the same pictures, by condition; empty where one was not run."""
    one, two = (results.cells.get(name, {}) for name in (cell, other))
    both = [
        (unpacked(one[seed].told["right"]), unpacked(two[seed].told["right"])) for seed in sorted(set(one) & set(two))
    ]
    if not both:
        return {}
    return {
        condition: difference([(mine[number], theirs[number]) for mine, theirs in both], compared)
        for number, condition in enumerate(CONDITIONS)
    }


def section(results: Results) -> list[str]:
    """The claims, then a row a condition."""
    if not results.cells and not results.absent:
        return ["Not run yet; the paper shows curves without numbers."]
    lines = told(findings(results, OWN), results)
    for data, words in PAIRS.items():
        found = gains(results, data)
        if not found:
            if results.scale == "full":
                lines += ["", f"### {words}", "", counts(results, data)]
            continue
        lines += ["", f"### {words}", "", f"{counts(results, data)} Top 1 in per cent; differences from the CNN are"]
        lines += [
            f"paired, and their intervals hold for all α of a condition together. {_widest(results, data)}",
            "",
            *_table(results, data, found),
            *_alike(results, data),
        ]
    return [*lines, *_printed(results), "", LIMITS]


def _printed(results: Results) -> list[str]:
    """Whether the printed batch changes the picture: the CNN and one α, trained with it, too."""
    ours, cnn = f"{PRINTED}/{PRINTED_ALPHA:g}", f"{PRINTED}/{CNN}"
    gaps = _gaps(results, ours + AS_PRINTED, cnn + AS_PRINTED)
    if not gaps:
        return []
    rows = [
        (
            CONDITIONS[condition].words,
            *(percent_of(mean(results, cell, f"{condition}_top_1")) for cell in (cnn, cnn + AS_PRINTED)),
            *(percent_of(mean(results, cell, f"{condition}_top_1")) for cell in (ours, ours + AS_PRINTED)),
            str(gap),
        )
        for condition, gap in gaps.items()
    ]
    signs = [gap.sign for gap in gaps.values()]
    sure = f"surely better than the CNN under {signs.count(1)} conditions, surely worse under {signs.count(-1)}"
    words = (
        f"{PAIRS[PRINTED]}, top 1 in per cent. With batches of 128 α = {PRINTED_ALPHA:g} is {sure}, of {len(signs)}."
    )
    names = [f"{name}, {batch}" for name in ("CNN", f"α {PRINTED_ALPHA:g}") for batch in (512, 128)]
    return ["", "### Batches as printed", "", words, "", *table(("condition", *names, "α less the CNN, 128"), rows)]


def _widest(results: Results, data: str) -> str:
    """How sure a single rate is, at worst."""
    counted_on = [n for cell, seeds in results.cells.items() if cell.split("/")[0] == data
                  for one in seeds.values() for _, n in one.figures.values()]  # fmt: skip
    widest = half_width(0.5, min(counted_on))
    return f"The 95 % interval of a single rate is at most {100 * widest:.1f} points to either side."


def _table(results: Results, data: str, found: dict[tuple[str, float], Apart]) -> list[str]:
    there = sorted({alpha for _, alpha in found})
    shown = [alpha for alpha in (0.0, 0.2, 0.3, 0.5, 0.7, 0.8, 1.0) if alpha in there]
    rows = []
    for condition, about in CONDITIONS.items():
        values = {alpha: mean(results, f"{data}/{alpha:g}", f"{condition}_top_1") for alpha in there}
        best = max(there, key=lambda alpha: (values[alpha] or (0.0, 0))[0])
        better = ", ".join(f"{alpha:g}" for alpha in there if found[condition, alpha].sign > 0) or "none"
        cells = [percent_of(values[alpha]) for alpha in shown]
        name = about.words + (" (named by the paper)" if condition in NAMED else "")
        cnn = percent_of(mean(results, f"{data}/{CNN}", f"{condition}_top_1"))
        rows.append((name, cnn, *cells, f"{best:g}: {found[condition, best]}", better))
    head = ("condition", "CNN", *(f"α {alpha:g}" for alpha in shown), "best α, less the CNN", "surely better at α")
    return table(head, rows)


def _beats(conditions: Sequence[str], alphas: tuple[float, ...], results: Results) -> Seen:
    """Whether one of these α beats the CNN, condition by condition."""
    every = {data: gains(results, data) for data in PAIRS}
    signs = [_any_better(every[data], condition, alphas) for data in PAIRS for condition in conditions]
    return signs, counted(signs)


def _enhances(results: Results) -> Seen:
    """The conclusion of sec. 5.2, over all conditions."""
    every = {data: gains(results, data) for data in PAIRS}
    signs = {
        (data, condition): _any_better(every[data], condition, BETWEEN) for data in PAIRS for condition in CONDITIONS
    }
    best = []
    for (data, condition), sign in signs.items():
        if sign == 1:
            alpha = max(BETWEEN, key=lambda alpha: _value(every[data], condition, alpha))
            best.append(f"{PAIRS[data]}, {CONDITIONS[condition].words}, α = {alpha:g}: {every[data][condition, alpha]}")
    words = counted(signs.values()) + "".join(f"; {one}" for one in best)
    return list(signs.values()), words


def _value(found: dict[tuple[str, float], Apart], condition: str, alpha: float) -> float:
    return found[condition, alpha].value if (condition, alpha) in found else -1.0


def _improves(results: Results) -> Seen:
    """From end to end, and step by step."""
    every = {data: gains(results, data) for data in PAIRS}
    rises: list[int | None] = []
    for data in PAIRS:
        for condition in CONDITIONS:
            first, last = every[data].get((condition, 0.0)), every[data].get((condition, 1.0))
            if first is None or last is None:
                rises.append(None)
            else:
                half = ((first.high - first.value) ** 2 + (last.high - last.value) ** 2) ** 0.5
                gap = last.value - first.value
                rises.append(1 if gap > half else -1 if gap < -half else 0)
    steps = [
        gap.sign
        for data in PAIRS
        for one, more in itertools.pairwise(ALPHAS)
        for gap in _gaps(results, f"{data}/{more:g}", f"{data}/{one:g}", len(ALPHAS) - 1).values()
    ]
    falls = f"; of {len(steps)} steps of .1 accuracy surely falls at {steps.count(-1)}" if steps else ""
    return rises, counted(rises) + falls


OWN: dict[str, Callable[[Results], Seen]] = {
    "named": partial(_beats, NAMED, BETWEEN),
    "captions": partial(_beats, CAPTIONS, (0.2, 0.3)),
    "text": partial(_beats, NAMED, (0.7, 0.8, 0.9)),
    "some mixing": _enhances,
    "more mixing": _improves,
}


def _headline(results: Results) -> str:
    """The least and the most that the best intermediate α gains on the CNN."""
    parts = []
    for data, words in PAIRS.items():
        found = gains(results, data)
        best = {}
        for condition in CONDITIONS:
            here = [alpha for alpha in BETWEEN if (condition, alpha) in found]
            if here:
                alpha = max(here, key=lambda one, of=condition: found[of, one].value)  # type: ignore[misc]
                best[condition] = (found[condition, alpha], alpha)
        if best:
            order = sorted(best, key=lambda condition: best[condition][0].value)
            ends = (
                f"{best[one][0]} under {CONDITIONS[one].words} (α = {best[one][1]:g})" for one in (order[0], order[-1])
            )
            parts.append(f"{words} from {' to '.join(ends)}")
    return f"The best intermediate α less the CNN: {'; '.join(parts)}." if parts else ""


def _alike(results: Results, data: str) -> list[str]:
    """Networks that are right on the very same few pictures: they give one answer, and robustness is not measured."""
    told = []
    for number, (condition, about) in enumerate(CONDITIONS.items()):
        groups: dict[bytes, list[float]] = {}
        for alpha in ALPHAS:
            for one in list(results.cells.get(f"{data}/{alpha:g}", {}).values())[:1]:
                right = unpacked(one.told["right"])[number]
                if right.mean() < CHANCE:
                    groups.setdefault(right.tobytes(), []).append(alpha)
        for alphas in groups.values():
            if len(alphas) > 1:
                rate = percent_of(mean(results, f"{data}/{alphas[0]:g}", f"{condition}_top_1"))
                names = ", ".join(f"{alpha:g}" for alpha in alphas)
                told.append(f"{about.words}, α = {names}: {rate} %")
    if not told:
        return []
    text = "Right on the very same pictures, which says that the same class is answered whatever is shown: "
    why = 'Why: docs/robustness.md, "When everything has the same exemplars".'
    return ["", f"{text}{'; '.join(told)}. {why}"]


def _any_better(found: dict[tuple[str, float], Apart], condition: str, alphas: tuple[float, ...]) -> int | None:
    """1 where one of these α is surely better than the CNN, -1 where all are surely worse, else 0."""
    signs = [found[condition, alpha].sign for alpha in alphas if (condition, alpha) in found]
    return None if not signs else 1 if 1 in signs else -1 if set(signs) == {-1} else 0


LINES = {"top_1": (ORANGE, "o", "single branch, top 1"), "top_5": (BLUE, "s", "single branch, any of 5")}


def robustness_figures(results: Results) -> dict[str, bytes]:
    """A panel a condition: top 1 and top 5 over α, the CNN as a line; a figure a data set."""
    there = [data for data in PAIRS if results.cells.get(f"{data}/{CNN}")]
    return {data: png(_figure(results, data)) for data in there if len(_alphas(results, data)) > 0}


def _alphas(results: Results, data: str) -> list[float]:
    return [alpha for alpha in ALPHAS if results.cells.get(f"{data}/{alpha:g}")]


def _figure(results: Results, data: str) -> Any:
    plt: Any = pyplot()
    drawing, every = plt.subplots(3, 5, figsize=(13, 7.2), sharex=True, layout="constrained")
    alphas = _alphas(results, data)
    for axes, (condition, about) in zip(every.flat, CONDITIONS.items(), strict=True):
        for name, (colour, marker, words) in LINES.items():
            values = [mean(results, f"{data}/{alpha:g}", f"{condition}_{name}") for alpha in alphas]
            heights = [100 * one[0] for one in values if one is not None]
            axes.plot(alphas, heights, color=colour, marker=marker, ms=4, lw=1.4, label=words)
        cnn = mean(results, f"{data}/{CNN}", f"{condition}_top_1")
        if cnn is not None:
            axes.axhline(100 * cnn[0], color=GREY, ls="--", lw=1.4, label="isolated CNN, top 1")
        axes.set_title(about.words + (" *" if condition in NAMED else ""), fontsize=9)
        tidy(axes, grid=True)
    for axes in every[-1]:
        axes.set_xlabel("α")
    for axes in every[:, 0]:
        axes.set_ylabel("%")
    drawing.legend(*every[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    words = f"{PAIRS[data]}: right answers under 15 conditions; * where the paper says that mixing beats the CNN"
    drawing.suptitle(words, fontsize=11)
    return drawing


CHANGES = {"batch_size": BATCH}
KEPT = ("top_1", "top_5", "same_exemplar", "same_exemplar_class", "most_named")


def cells(scale: Scale) -> list[Cell]:
    """The isolated CNN and an α each; `tiny` has one α.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/cnn', 'mnist/0.5'], 26)
    """
    if scale.name == "tiny":
        return [_cell("mnist", None, scale), _cell("mnist", 0.5, scale)]
    found = [_cell(data, alpha, scale) for alpha in (None, *ALPHAS) for data in PAIRS]
    return [*found, *(_cell(PRINTED, alpha, scale, printed=True) for alpha in (None, PRINTED_ALPHA))]


def _cell(data: str, alpha: float | None, scale: Scale, *, printed: bool = False) -> Cell:
    changes: dict[str, Any] = {} if printed else dict(CHANGES)
    changes |= {"index_weight": 0.0} if alpha is None else {}
    name = f"{data}/{CNN if alpha is None else f'{alpha:g}'}{AS_PRINTED if printed else ''}"
    config = {
        "alpha": alpha,
        "network": "class-conditional" if alpha is None else "single",
        "backbone": "paper-single",
        "training": networks.words_of_preset("paper", changes, scale),
        "conditions": list(CONDITIONS),
    }
    return networks.cell(name, data, scale, partial(run, data, alpha, changes), 150.0 if printed else 75.0, config)


def run(data: str, alpha: float | None, changes: dict[str, Any], job: Job) -> Told:
    """Train one network and ask it under every condition; which answers are right is kept, for pairing."""
    wishes: dict[str, Any] = {"network": "single", "alpha": alpha}  # as in `mixing`, so that its networks serve
    if alpha is None:
        wishes = {"network": "class-conditional", "backbone": "paper-single"}
    found, _, test, told = networks.trained(data, job, changes=changes, **wishes | networks.light(job.scale))
    measured = measure(found, test, name="network", seed=0)  # the draws of the conditions are the same for all seeds
    figures: dict[str, Figure] = {}
    for row in measured.rows:
        for name in KEPT:
            if name in row.figures and row.figures[name].value is not None:
                figures[f"{row.condition}_{name}"] = (float(row.figures[name].value or 0.0), row.figures[name].n)
    right = np.stack([row.right for row in measured.rows])
    return {"figures": figures, **told, "right": packed(right), "test_fingerprint": test.samples.fingerprint}


EXPERIMENT = Experiment("robustness", str(__doc__), cells, section, robustness_figures, headline=_headline)
