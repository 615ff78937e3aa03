"""Debugging a data set: typical and odd samples by the entropy of the index branch; planted errors found again.

Claim: the entropy of the index branch tells typical from anomalous training samples and is "a useful measure for
    spotting potential outliers" (sec. 5.3, app. 7.9, fig. 6); the paper says both that odd samples have a low entropy
    and that they activate many neurons, and gives no numbers.
Command: provnet reproduce debugging --data-dir DIR --device cuda --seeds 1
Expected: planted oddities have a low entropy; it finds them better than chance but much worse than distances in the
    features, and it hardly finds wrong labels.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: a minute and a half a seed, three cells at a time.

Class-conditional, preset `paper`, 40 epochs instead of 80 to fit the time; the index branch is given the label, as in
training. Planted: 10 % of the labels of 10,000 samples changed, or 1 % of the pictures replaced (inverted, two mixed,
noise, letters). Beside the entropy stands what `provnet debug` says of the same run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from provnet.answers.curves import auc
from provnet.base.stats import Z95
from provnet.data.dataset import ImageData
from provnet.tools.debug.compute import Debugging, debug
from provnet_paper import networks
from provnet_paper.beside import DASH, mean, table
from provnet_paper.judge import Seen, Sign, findings, told
from provnet_paper.plots import draw, png, pyplot
from provnet_paper.records import Cell, Experiment, Figure, Job, Results, Scale, Told
from provnet_paper.samples import ODD_KINDS as KINDS
from provnet_paper.samples import odd_pictures, packed, unpacked, wrong_labels

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
CASES = {"samples": "as they are", "wrong": "10 % wrong labels", "odd": "1 % odd pictures"}
SHOWN = 5
WRONG_LABELS = "wrong labels"
PAPERS = {"samples": 60_000, "epochs": 80}
Area = tuple[float, float, float]  # with the ends of its interval
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
    lines = told(findings(results, {"useful": _useful, "opposite": _opposite}), results)
    lines += ["", *table((*head, "seeds"), rows, left=3)] if rows else []
    text = (
        "Intervals of the table hold for one area each. Signals of `provnet debug` were weighed on planted errors, "
        "some of the same kinds and seed (docs/debugging.md): its areas flatter it a little."
    )
    return [*lines, *_spread(results), "", f"{_differs(results)} {text}"]


def _differs(results: Results) -> str:
    """In what the areas are of another set-up than the paper's."""
    parts = ["what is odd was planted", "areas are over all classes together, while the paper ranks within a class"]
    cells = [cell for cell in results.cells if not cell.endswith("/samples")]
    few = sorted({one.told["samples"]["train"] for cell in cells for one in results.cells[cell].values()})
    parts += [
        f"there are {n:,} training samples instead of {PAPERS['samples']:,}, so about {n // 10:,} neurons a class "
        f"instead of {PAPERS['samples'] // 10:,}"
        for n in few
        if n != PAPERS["samples"]
    ]
    epochs = {results.configs.get(cell, {}).get("training", {}).get("epochs") for cell in cells} - {None}
    parts += [f"training takes {n} epochs instead of {PAPERS['epochs']}" for n in sorted(epochs - {PAPERS["epochs"]})]
    return f"Where this differs from the paper: {'; '.join(parts)}."


def _rows(results: Results, cell: str, words: str, text: str, planted: str, seeds: str) -> list[tuple[str, ...]]:
    found = [(words, text, "all", *areas(results, cell, ""), planted, seeds)]
    if cell.endswith("/odd"):
        found += [
            (words, text, kind, *areas(results, cell, suffix_of(kind)), str(int(planted) // len(KINDS)), seeds)
            for kind in KINDS
        ]
    return found


def areas(results: Results, cell: str, suffix: str) -> list[str]:
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


def _opposite(results: Results) -> Seen:
    """The paper's next sentence says the reverse of planted odd pictures."""
    found = [area(results, f"{data}/odd") for data in PAIRS]
    signs: list[Sign] = [-1 if low > 0.5 else 1 if high < 0.5 else 0 for _, low, high in filter(None, found)]
    return signs, f"the same areas, read the other way{_by_kind(results)}"


def _useful(results: Results) -> Seen:
    """Whether one score, a low entropy, tells all that was planted from the rest well enough to be used."""
    signs: list[Sign] = []
    parts, turned = [], []
    for case, words in (("odd", "odd pictures"), ("wrong", WRONG_LABELS)):
        for data, name in PAIRS.items():
            found = area(results, f"{data}/{case}")
            if found is not None:
                value, low, high = found
                signs.append(1 if low >= USEFUL else -1 if high < USEFUL else 0)
                parts.append(f"{name}, {words} {value:.3f} ({low:.3f} to {high:.3f})")
                turned.append(1 - low)
    if not parts:
        return signs, "not run"
    return signs, f"{'; '.join(parts)}; the other way round at most {max(turned):.3f}{_kinds_at_the_bar(results)}"


def area(results: Results, cell: str, suffix: str = "") -> Area | None:
    """The area of a low entropy with its interval, means over seeds; None where it was not measured.

    >>> area(Results("debugging", "full", {}, {}), "mnist/odd") is None
    True
    """
    value, low, high = (mean(results, cell, f"low_entropy_auc{suffix}{end}") for end in ("", "_low", "_high"))
    return None if value is None or low is None or high is None else (value[0], low[0], high[0])


def of_kinds(results: Results) -> dict[str, Area]:
    """Data and kind, wrong labels being one -> its area; the intervals hold for all of them together (Bonferroni)."""
    asked = [(f"{name} {kind}", f"{data}/odd", suffix_of(kind)) for data, name in PAIRS.items() for kind in KINDS]
    asked += [(f"{name} {WRONG_LABELS}", f"{data}/wrong", "") for data, name in PAIRS.items()]
    found = {words: one for words, cell, suffix in asked if (one := area(results, cell, suffix)) is not None}
    return {words: widened(one, len(found)) for words, one in found.items()}


def widened(found: Area, comparisons: int) -> Area:
    """A 95 % interval made to hold for so many comparisons together, by the normal law of the logarithm of the odds.

    >>> [f"{end:.3f}" for end in widened((0.66, 0.517, 0.778), 10)]
    ['0.660', '0.453', '0.819']
    """
    value, *ends = found
    wider = NormalDist().inv_cdf(1 - 0.025 / comparisons) / Z95
    low, high = (0.5 + 0.5 * math.tanh((_logit(value) + wider * (_logit(end) - _logit(value))) / 2) for end in ends)
    return value, low, high


def _logit(share: float) -> float:
    share = min(max(share, 1e-12), 1 - 1e-12)
    return math.log(share) - math.log1p(-share)


def _kinds_at_the_bar(results: Results) -> str:
    """How many kinds are useful in that direction, how many lie in the other one, and the rest."""
    kinds = of_kinds(results)
    sure = [words for words, (_, low, _) in kinds.items() if low >= USEFUL]
    other = [f"{words}, {1 - value:.3f} that way" for words, (value, _, high) in kinds.items() if high < 0.5]
    below = sum(0.5 <= high < USEFUL for _, _, high in kinds.values())
    near = len(kinds) - len(sure) - len(other) - below
    parts = [
        f"surely {USEFUL} or more in that direction {_listed(sure)}",
        f"surely in the other direction {_listed(other)}",
        f"surely below {USEFUL} but not surely in the other direction {below}",
        f"too near to say {near}",
    ]
    return f". By kind, intervals widened for {len(kinds)} comparisons: {', '.join(parts)}" if kinds else ""


def _listed(names: Sequence[str]) -> str:
    """How many, and which."""
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _by_kind(results: Results) -> str:
    """The kinds of oddity that surely have a low, or a high, entropy."""
    every = of_kinds(results)
    kinds = {words: one for words, one in every.items() if not words.endswith(WRONG_LABELS)}
    low = [words for words, (_, least, _) in kinds.items() if least > 0.5]
    high = [words for words, (_, _, most) in kinds.items() if most < 0.5]
    near = len(kinds) - len(low) - len(high)
    text = f"surely low for {_listed(low)}, surely high for {_listed(high)}, too near to say {near}"
    return f". By kind, intervals widened for {len(every)} comparisons: {text}" if kinds else ""


def _headline(results: Results) -> str:
    """The areas of both scores."""
    parts = []
    for data, words in PAIRS.items():
        for case, planted in (("odd", "odd pictures"), ("wrong", "wrong labels")):
            found = areas(results, f"{data}/{case}", "")
            parts += [f"{words}, {planted} {' and '.join(found)}"] if DASH not in found else []
    return f"AUC of a low entropy, and of `provnet debug`: {'; '.join(parts)}." if parts else ""


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


CHANGES = {"epochs": 40}
FEW = 10_000
WRONG, ODD = 0.10, 0.01


def cells(scale: Scale) -> list[Cell]:
    """The samples as they are, wrong labels, odd pictures; for each data set.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/samples', 'mnist/odd'], 6)
    """
    if scale.name == "tiny":
        return [_cell("mnist", case, scale) for case in ("samples", "odd")]
    return [_cell(data, case, scale) for case in CASES for data in PAIRS]


def _cell(data: str, case: str, scale: Scale) -> Cell:
    config = {
        "network": "class-conditional",
        "training": networks.words_of_preset("paper", CHANGES, scale),
        "planted": {"samples": 0.0, "wrong": WRONG, "odd": ODD}[case],
        "limit": None if case == "samples" else FEW,
    }
    seconds = 50.0 if case == "samples" else 20.0
    return networks.cell(f"{data}/{case}", data, scale, partial(run, data, case), seconds, config)


def run(data: str, case: str, job: Job) -> Told:
    """Train on the data as they are or with something planted, and look at the training samples."""
    train, _ = networks.opened(data, job)
    planted = np.zeros(len(train), dtype=np.bool_)
    kind = np.full(len(train), -1)
    if case != "samples":
        train = train.select(np.random.default_rng(job.seed).permutation(len(train))[:FEW])
        if case == "wrong":
            train, planted = wrong_labels(train, WRONG, job.seed)
        else:
            train, kind = odd_pictures(train, ODD, job.seed)
            planted = kind >= 0
    found, _, _, told = networks.trained(
        data, job, changes=CHANGES, given=train, network="class-conditional", **networks.light(job.scale)
    )
    seen = debug(found, train)
    if case == "samples":
        shown = _shown(seen, train) if job.seed == 0 else {}
        return {"figures": _debugging_spread(seen), **told, **shown}
    return {"figures": _found(seen, planted, kind, case), **told, "planted": int(planted.sum())}


def _debugging_spread(seen: Debugging) -> dict[str, Figure]:
    """Where the entropy lies; these are no rates."""
    low, middle, high = np.quantile(seen.signals.entropy, [0.05, 0.5, 0.95]).tolist()
    return {"entropy_5": (low, 0), "entropy_50": (middle, 0), "entropy_95": (high, 0)}


def _found(seen: Debugging, planted: np.ndarray, kind: np.ndarray, case: str) -> dict[str, Figure]:
    """Areas under ROC curves with their intervals: low entropy, and our score; for each kind of oddity, too."""
    ours = seen.mislabels.odds if case == "wrong" else seen.anomalies.score
    scores = {"low_entropy": -seen.signals.entropy, "ours": ours}
    figures: dict[str, Figure] = {}
    cases = {"": np.ones(len(planted), dtype=np.bool_)}
    if case == "odd":
        cases |= {f"_{words.replace(' ', '_')}": (kind == number) | ~planted for number, words in enumerate(KINDS)}
    for name, score in scores.items():
        for suffix, use in cases.items():
            found = auc(planted[use], score[use])
            ends = {"": found.value, "_low": found.low, "_high": found.high}
            figures |= {f"{name}_auc{suffix}{end}": (float(of or 0.0), found.n) for end, of in ends.items()}
    return figures


def _shown(seen: Debugging, train: ImageData) -> Told:
    """For each class the samples of highest and of lowest entropy, as pictures with their ids."""
    sides: dict[str, list[int]] = {"high": [], "low": []}
    for label in range(len(train.class_names)):
        rows = np.flatnonzero(train.samples.labels == label)
        order = rows[np.argsort(seen.signals.entropy[rows], kind="stable")]
        sides["low"] += order[:SHOWN].tolist()
        sides["high"] += order[::-1][:SHOWN].tolist()
    pictures = {side: packed(train.images[rows].numpy()) for side, rows in sides.items()}
    ids = {side: [train.samples.sample_ids[row] for row in rows] for side, rows in sides.items()}
    return {"pictures": pictures, "ids": ids, "classes": list(train.class_names)}


EXPERIMENT = Experiment("debugging", str(__doc__), cells, section, debugging_figures, headline=_headline)
