"""Debugging as Markdown and as sheets of samples with the highest and the lowest entropy."""

from __future__ import annotations

from typing import Any

from provnet.experiments.beside import Finding, judged, mean, told
from provnet.experiments.markdown import DASH, table
from provnet.experiments.pictures import draw, unpacked
from provnet.experiments.planted import KINDS
from provnet.experiments.plots import png, pyplot
from provnet.experiments.records import Results

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
CASES = {"samples": "as they are", "wrong": "10 % wrong labels", "odd": "1 % odd pictures"}
SHOWN = 5
USEFUL = 0.7  # area from which a measure counts as useful, which the paper does not define


def section(results: Results) -> list[str]:
    """The two readings of the paper, put to planted errors; then the areas."""
    if not results.cells and not results.absent:
        return ["Not run yet; the paper shows samples without numbers."]
    rows = []
    for data, words in PAIRS.items():
        for case, text in CASES.items():
            cell = f"{data}/{case}"
            if cell not in results.cells:
                if results.scale == "full":
                    rows.append((words, text, results.absent.get(cell, "not run"), *[""] * 4))
                continue
            if case != "samples":
                seeds = results.cells[cell]
                one = next(iter(seeds.values()))
                rows += _rows(results, cell, words, text, str(one.told["planted"]), str(len(seeds)))
    head = ("data", "planted", "which", "AUC of a low entropy", "AUC of `provnet debug`", "planted n")
    lines = told(findings(results), results)
    lines += ["", *table((*head, "seeds"), rows, left=3)] if rows else []
    text = (
        "The areas are over all classes together; the paper ranks within a class. Signals of `provnet debug` were "
        "weighed on planted errors, some of the same kinds and seed (docs/debugging.md): its areas flatter it a little."
    )
    return [*lines, *_spread(results), "", text]


def _rows(results: Results, cell: str, words: str, text: str, planted: str, seeds: str) -> list[tuple[str, ...]]:
    found = [(words, text, "all", *_areas(results, cell, ""), planted, seeds)]
    if cell.endswith("/odd"):
        found += [
            (words, text, kind, *_areas(results, cell, suffix_of(kind)), str(int(planted) // len(KINDS)), seeds)
            for kind in KINDS
        ]
    return found


def _areas(results: Results, cell: str, suffix: str) -> list[str]:
    """Both areas, each with the mean of its intervals over seeds."""
    found = []
    for name in ("low_entropy", "ours"):
        three = [mean(results, cell, f"{name}_auc{suffix}{end}") for end in ("", "_low", "_high")]
        value, low, high = (DASH if one is None else f"{one[0]:.3f}" for one in three)
        found.append(DASH if value == DASH else f"{value} ({low} to {high})")
    return found


def _spread(results: Results) -> list[str]:
    parts = []
    for data, words in PAIRS.items():
        found = [mean(results, f"{data}/samples", f"entropy_{place}") for place in (5, 50, 95)]
        if None not in found:
            values = ", ".join(f"{one[0]:.4f}" for one in found if one is not None)
            parts.append(f"{words} {values}")
    text = "Entropy of training samples as a share of the largest possible, 5th, 50th and 95th percentile: "
    return ["", f"{text}{'; '.join(parts)}."] if parts else []


def suffix_of(kind: str) -> str:
    """How figures of a kind of oddity end."""
    return f"_{kind.replace(' ', '_')}"


def findings(results: Results) -> list[Finding]:
    """Which way the entropy points, and whether it finds what was planted."""
    found = [_useful(results)]
    for case, words in (("odd", "odd pictures"), ("wrong", "wrong labels")):
        signs, parts = [], []
        for data, name in PAIRS.items():
            value, low, high = (
                mean(results, f"{data}/{case}", f"low_entropy_auc{end}") for end in ("", "_low", "_high")
            )
            if value is not None and low is not None and high is not None:
                signs.append(1 if low[0] > 0.5 else -1 if high[0] < 0.5 else 0)
                parts.append(f"{name} AUC {value[0]:.3f} ({low[0]:.3f} to {high[0]:.3f})")
        claim = f"Anomalous samples have a low entropy, planted {words}:"
        found.append(Finding(claim, judged(signs), "; ".join(parts) or "not run"))
    opposite = [{1: -1, -1: 1, 0: 0}.get(sign) for sign in _signs(results)]
    claim = "Atypical samples activate many neurons (the paper's next sentence, planted odd pictures):"
    found.append(Finding(claim, judged(opposite), f"the same areas, read the other way{_by_kind(results)}"))
    return found


def _useful(results: Results) -> Finding:
    """Whether entropy, read the better way round, tells what was planted from the rest well enough to be used."""
    signs, parts = [], []
    for case, words in (("odd", "odd pictures"), ("wrong", "wrong labels")):
        for data, name in PAIRS.items():
            low, high = (mean(results, f"{data}/{case}", f"low_entropy_auc_{end}") for end in ("low", "high"))
            if low is not None and high is not None:
                least, most = sorted((max(low[0], 1 - high[0]), max(high[0], 1 - low[0])))
                signs.append(1 if least >= USEFUL else -1 if most < USEFUL else 0)
                parts.append(f"{name}, {words} at most {most:.3f}")
    claim = 'Entropy is "a useful measure for spotting potential outliers"'
    return Finding(
        f"{claim} (an area of {USEFUL} or more, whichever way round):", judged(signs), "; ".join(parts) or "not run"
    )


def _by_kind(results: Results) -> str:
    """The kinds of oddity that surely have a low, or a high, entropy."""
    sides: dict[str, list[str]] = {"low": [], "high": []}
    for data, name in PAIRS.items():
        for kind in KINDS:
            low, high = (
                mean(results, f"{data}/odd", f"low_entropy_auc{suffix_of(kind)}_{end}") for end in ("low", "high")
            )
            if low is not None and high is not None and (low[0] > 0.5 or high[0] < 0.5):
                sides["low" if low[0] > 0.5 else "high"].append(f"{name} {kind}")
    text = "; ".join(f"{side} for {', '.join(kinds)}" for side, kinds in sides.items() if kinds)
    return f". It depends on the kind: surely {text}" if text else ""


def _signs(results: Results) -> list[int]:
    signs = []
    for data in PAIRS:
        low, high = (mean(results, f"{data}/odd", f"low_entropy_auc_{end}") for end in ("low", "high"))
        if low is not None and high is not None:
            signs.append(1 if low[0] > 0.5 else -1 if high[0] < 0.5 else 0)
    return signs


def debugging_figures(results: Results) -> dict[str, bytes]:
    """A sheet a data set: a row a class, five samples of the highest entropy left, of the lowest right."""
    found = {}
    for data, words in PAIRS.items():
        one = results.cells.get(f"{data}/samples", {}).get(0)
        if one is not None and "pictures" in one.told:
            found[data] = png(_sheet(one.told, words))
    return found


def _sheet(given: dict[str, Any], words: str) -> Any:
    plt: Any = pyplot()
    classes = given["classes"]
    drawing, every = plt.subplots(1, 2, figsize=(7.2, 0.9 + 0.62 * len(classes)), layout="constrained")
    for axes, side, text in zip(every, ("high", "low"), ("highest entropy", "lowest entropy"), strict=True):
        pictures = unpacked(given["pictures"][side])
        draw(axes, pictures, SHOWN, text)
        height = pictures.shape[2] + 1
        if side == "high":
            axes.set_yticks([height * row + height / 2 for row in range(len(classes))], classes, fontsize=8)
            axes.tick_params(length=0)
    drawing.suptitle(f"{words}: five training samples of each class by the entropy of the index branch", fontsize=10)
    return drawing
