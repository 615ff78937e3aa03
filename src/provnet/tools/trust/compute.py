"""Trust checks: whether attribution depends on what was learned, confidence is calibrated, and the run abstains.

Each outcome has a figure with its interval, a bar, and whether it is met. What cannot be measured is said to be so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from provnet.answers.evaluation import own_classes, trained_rows
from provnet.base.batches import fold
from provnet.base.errors import UsageError
from provnet.base.options import CheckOptions, with_changes
from provnet.base.progress import Update, progress_bar
from provnet.base.stats import Interval
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import copies_of
from provnet.data.modalities.decode import are_pictures
from provnet.report.records import percent
from provnet.runs.card import bank_state
from provnet.runs.inputs import Fitted, run_of, whole_number
from provnet.runs.run import Run
from provnet.tools.trust.checks import (
    QUERIES,
    SAMPLES,
    TAKEN,
    Abstention,
    Calibrated,
    Dependence,
    StrangerRate,
    abstention,
    class_calibration,
    dependence,
    index_calibration,
)

# |Spearman| with other weights, at most; rho squared below one half: most of the ranking was learned
BARS = {"head": 0.1, "backbone": 0.2, "untrained": 0.7, "ece": 0.05, "own": 0.05, "abstain": 0.95, "auroc": 0.9}
NEAR = ("letters", "shapes")  # drawn like what was trained on, so judged by the AUROC alone
WORDS = {
    "noise": "uniform noise",
    "constant": "pictures of one colour",
    "letters": "drawn letters",
    "shapes": "drawn shapes",
}
NO_DATA = "not measured: the training data cannot be opened"
NO_TEST = "not measured: there is no unseen data; give --test DATA"


@dataclass(frozen=True)
class Outcome:
    """One check.

    Attributes:
        group: `weights`, `confidence` or `abstention`.
        key: its name.
        words: what is measured.
        figure: with its interval; None where nothing was measured.
        bar: what it must be, in words.
        passed: None where nothing was measured.
        percent: whether the figure is a rate.
        note: what else there is to say.
    """

    group: str
    key: str
    words: str
    figure: Interval | None
    bar: str
    passed: bool | None
    percent: bool = True
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "figure": None if self.figure is None else self.figure.to_json()}


def verdicts(
    depends: Dependence | None,
    classes: Calibrated | None,
    named: Calibrated | None,
    abstains: Abstention,
    left_out: Abstention | None,
) -> tuple[Outcome, ...]:
    """All outcomes, in the order that they are shown in."""
    found = [*_weights(depends), *_confidence(classes, named), *_abstention(abstains)]
    for name, one in {} if left_out is None else left_out.kinds.items():
        found.append(_auroc(name, f"told from {name}: AUROC", one.auroc, _abstained(one)))
    return tuple(found)


def _weights(depends: Dependence | None) -> list[Outcome]:
    if depends is None:
        return [Outcome("weights", "index head", "ranking with other weights", None, "", None, False, NO_DATA)]
    rows = [
        _small("index head", "ranking, index head drawn anew: Spearman", depends.head.spearman, "head"),
        _small("network", "ranking, whole network drawn anew: Spearman", depends.steps[-1].spearman, "backbone"),
    ]
    if depends.fresh is not None:
        words = "ranking by an untrained network with keys of its own: Spearman"
        rows.append(_small("untrained network", words, depends.fresh.spearman, "untrained"))
    control = depends.control.spearman
    fails = control.high is not None and control.high > BARS["untrained"]
    words = "control, nearest neighbours of the pixels: Spearman"
    bar = f"above {BARS['untrained']}: the control must fail"
    return [*rows, Outcome("weights", "pixel control", words, control, bar, fails, False)]


def _small(key: str, words: str, figure: Interval, bar: str) -> Outcome:
    """Met where the whole interval lies within the bar on both sides."""
    if figure.low is None or figure.high is None:
        return Outcome("weights", key, words, None, "", None, False, f"not measured: {figure.why}")
    met = max(-figure.low, figure.high) <= BARS[bar]
    note = "" if met else "the attribution is not shown to depend on the learned weights"
    return Outcome("weights", key, words, figure, f"within ± {BARS[bar]}", met, False, note)


def _confidence(classes: Calibrated | None, named: Calibrated | None) -> list[Outcome]:
    rows = []
    for key, words, one, why in (
        ("class confidence", "distorted unseen pictures, class: calibration error", classes, NO_TEST),
        ("sample confidence", "distorted training samples, sample named first: calibration error", named, NO_DATA),
    ):
        if one is None:
            rows.append(Outcome("confidence", key, words, None, "", None, True, why))
            continue
        met = (one.ece.value or 0.0) <= BARS["ece"]
        right = percent(one.right.value or 0.0)
        note = "" if met else f"{one.leans}: {percent(one.confidence)} sure, {right} right"
        rows.append(Outcome("confidence", key, words, one.ece, f"at most {BARS['ece'] * 100:g} %", met, True, note))
    return rows


def _abstention(abstains: Abstention) -> list[Outcome]:
    words = "unseen pictures of its own kind called unsupported"
    if abstains.own.value is None:
        rows = [Outcome("abstention", "own pictures", words, None, "", None, True, NO_TEST)]
    else:
        met = abstains.own.value <= BARS["own"]
        rows = [Outcome("abstention", "own pictures", words, abstains.own, f"at most {BARS['own'] * 100:g} %", met)]
    for name, one in abstains.kinds.items():
        shown = WORDS.get(name, name)
        if name in NEAR:
            rows.append(_auroc(name, f"told from {shown}: AUROC", one.auroc, _abstained(one)))
            continue
        met = (one.abstained.value or 0.0) >= BARS["abstain"]
        note = f"false support {percent(one.false_support.value or 0.0)}{_area(one.auroc)}"
        bar = f"at least {BARS['abstain'] * 100:g} %"
        rows.append(Outcome("abstention", name, f"{shown} called unsupported", one.abstained, bar, met, True, note))
    return rows


def _abstained(one: StrangerRate) -> str:
    rates = one.abstained, one.false_support
    abstained, supported = (percent(rate.value or 0.0) for rate in rates)
    return f"{abstained} called unsupported, false support {supported}, n = {one.abstained.n:,}"


def _area(auroc: Interval | None) -> str:
    """An AUROC to four digits, never rounded up to 1."""
    if auroc is None or auroc.value is None:
        return ""
    text = f"{auroc.value:.4f}"
    return f", AUROC {'>0.9999' if text == '1.0000' and auroc.value < 1 else text}"


def _auroc(key: str, words: str, figure: Interval | None, note: str) -> Outcome:
    if figure is None:
        return Outcome("abstention", key, words, None, "", None, False, NO_TEST)
    met = (figure.value or 0.0) >= BARS["auroc"]
    return Outcome("abstention", key, words, figure, f"at least {BARS['auroc']}", met, False, note)


LETTERS = "ACEFHKMNPRTUVWXY"  # those that look like a digit (B, D, G, I, J, L, O, Q, S, Z) are left out
Draw = Callable[[ImageDraw.ImageDraw, int, np.random.Generator], None]
LARGE = 112  # pixels a side that is drawn at least, then made smaller: smooth edges
LEAST_SIDE = 8  # pixels a side that a letter needs
BUILT_IN = ("noise", "constant", "letters", "shapes")


def uniform_noise(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Every value by itself, as likely anywhere in the range of `like`.

    >>> uniform_noise(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 3).shape
    torch.Size([3, 1, 8, 8])
    """
    drawn = np.random.default_rng([seed, 63]).random((n, *like.shape[1:]), dtype=np.float32)
    return _typed(torch.from_numpy(drawn), like)


def constant(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Pictures of one colour (vectors: of one value a feature range); the first is black, the second white.

    >>> constant(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 3)[1].unique().tolist()
    [255]
    """
    channels = like.shape[1] if are_pictures(like) else 1
    drawn = np.random.default_rng([seed, 64]).random((n, channels), dtype=np.float32)
    drawn[:2] = np.arange(len(drawn[:2]), dtype=np.float32)[:, None]
    values = torch.from_numpy(drawn).view(n, channels, *([1] * (like.ndim - 2)))
    return _typed(values.expand(n, *like.shape[1:]).contiguous(), like)


def letters(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Letters, in many sizes, angles and places, light on dark; in colour where `like` has colour."""
    return _typed(_drawn(like, n, np.random.default_rng([seed, 65]), _letter), like)


def shapes(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Filled and outlined triangles, squares, stars and grids.

    >>> shapes(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), 2).dtype
    torch.uint8
    """
    return _typed(_drawn(like, n, np.random.default_rng([seed, 66]), _shape), like)


def strangers(like: Tensor, n: int, seed: int = 0) -> dict[str, Tensor]:
    """All kinds that there are for such data: (n, C, H, W) pictures large enough for a letter get all four.

    >>> list(strangers(torch.zeros(2, 4), 3))
    ['noise', 'constant']
    """
    found = {"noise": uniform_noise(like, n, seed), "constant": constant(like, n, seed)}
    if are_pictures(like, LEAST_SIDE) and like.shape[1] in (1, 3):
        found |= {"letters": letters(like, n, seed), "shapes": shapes(like, n, seed)}
    return found


def _typed(values: Tensor, like: Tensor) -> Tensor:
    """Values in 0..1 as bytes, or as floats over the range of `like` (of each feature, where those are vectors)."""
    if like.dtype == torch.uint8:
        return values.mul(255).round().to(torch.uint8)
    low, high = (like.min(), like.max()) if are_pictures(like) else (like.amin(0), like.amax(0))
    return (low + values * (high - low)).to(like.dtype)


def _drawn(like: Tensor, n: int, chance: np.random.Generator, draw: Draw) -> Tensor:
    channels, height, width = like.shape[1:]
    out = np.zeros((n, channels, height, width), dtype=np.float32)
    for row in range(n):
        side = max(height, width)
        side *= max(1, -(-LARGE // side))
        mask = Image.new("L", (side, side), 0)
        draw(ImageDraw.Draw(mask), side, chance)
        mask = mask.rotate(float(chance.uniform(-25, 25)), Image.Resampling.BILINEAR)
        small = np.asarray(mask.resize((width, height), Image.Resampling.BOX), dtype=np.float32) / 255
        front, back = (1.0, 0.0) if channels == 1 else (chance.random((3, 1, 1)), chance.random((3, 1, 1)) * 0.4)
        out[row] = back + small * (front - back)
    return torch.from_numpy(out).clamp(0, 1)


def _letter(pen: ImageDraw.ImageDraw, side: int, chance: np.random.Generator) -> None:
    font = ImageFont.load_default(size=float(chance.uniform(0.6, 0.9)) * side)
    x, y = (float(side / 2 + chance.uniform(-0.06, 0.06) * side) for _ in range(2))
    text = LETTERS[int(chance.integers(len(LETTERS)))]
    pen.text((x, y), text, 255, font, anchor="mm", stroke_width=int(chance.integers(0, max(2, side // 28))))


def _shape(pen: ImageDraw.ImageDraw, side: int, chance: np.random.Generator) -> None:
    kind = int(chance.integers(4))
    radius, line = side * float(chance.uniform(0.28, 0.4)), max(2, side // 14)
    if kind == 3:
        step = max(4, int(side * chance.uniform(0.14, 0.24)))
        for at in range(step // 2, side, step):
            pen.line([(at, 0), (at, side)], 255, line // 2)
            pen.line([(0, at), (side, at)], 255, line // 2)
        return
    corners = (3, 4, 10)[kind]
    points = []
    for i in range(corners):
        far = radius * (0.45 if corners == 10 and i % 2 else 1.0)
        angle = 2 * math.pi * i / corners
        points.append((side / 2 + far * math.cos(angle), side / 2 + far * math.sin(angle)))
    filled = bool(chance.integers(2))
    pen.polygon(points, 255 if filled else None, 255, line)


LEAST = 20
VALUES = 2**27  # of the pictures of one kind: large pictures are fewer


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A run that was trained without a class, unseen pictures of its own classes, and pictures of the class."""

    run: Run | Fitted
    own: Tensor
    strangers: Tensor
    name: str = "left-out class"


@dataclass(frozen=True, eq=False)
class Trust:
    """What the checks of a run found.

    Attributes:
        outcomes: each with figure, bar and whether it is met.
        dependence, class_confidence, index_confidence, abstention, left_out: what they rest on; None where that could
            not be measured.
        about: numbers of samples, the seed, and which state of the run was checked.
    """

    outcomes: tuple[Outcome, ...]
    dependence: Dependence | None
    class_confidence: Calibrated | None
    index_confidence: Calibrated | None
    abstention: Abstention
    left_out: Abstention | None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: histograms would fill a page."""
        met = [one.passed for one in self.outcomes if one.passed is not None]
        return f"Trust({sum(met)} of {len(met)} bars met, {len(self.outcomes) - len(met)} not measured)"

    @property
    def passed(self) -> bool:
        """Whether every bar that could be measured is met."""
        return all(one.passed is not False for one in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("dependence", "class_confidence", "index_confidence", "abstention", "left_out")
        parts = {name: getattr(self, name) for name in names}
        return {
            "passed": self.passed,
            "outcomes": [one.to_json() for one in self.outcomes],
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
            "bars": dict(BARS),
            "about": dict(self.about),
        }

    def for_card(self) -> dict[str, Any]:
        """What the model card keeps: outcomes alone, and the state of the samples that they belong to."""
        return {"samples": self.about["samples"], "outcomes": [one.to_json() for one in self.outcomes]}


def check(
    run: Run | Fitted,
    test: ImageData | None,
    training: ImageData | None = None,
    index: np.ndarray | None = None,
    *,
    others: Mapping[str, Tensor] | None = None,
    left_out: LeftOut | None = None,
    options: CheckOptions | None = None,
    **changes: Any,
) -> Trust:
    """Check a run on unseen data of its own kind and on its training samples; what is not given is not measured.

    `index` says which sample each row of `training` is; None finds them by their hashes. `others` are raw pictures of
    other data sets, by name. At most `limit` pictures of each kind are used, drawn by the seed; no withheld samples.
    `changes` are options by name, such as `limit=200`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = check(run, provnet.open_data("embedded", split="test", limit=40), data, limit=40)
    >>> found.outcomes[0].key, found.abstention.kinds["noise"].abstained.n
    ('index head', 40)
    """
    asked = with_changes(CheckOptions, options, changes)
    run, seed = run_of(run), asked.seed
    limit = whole_number("limit", asked.limit, LEAST)  # fewer pictures decide nothing
    if test is not None:
        test = own_classes(run, test)
    _check_others(others)
    limit = max(LEAST, min(limit, VALUES // math.prod(run.config.network.input_shape)))
    chance = torch.Generator().manual_seed(fold(seed, 68))
    own = None if test is None or len(test) == 0 else _few(test, limit, chance)
    trained, places = _training(run, training, index, max(limit, min(SAMPLES, 4 * limit)), chance)
    like = own if own is not None else trained
    if like is None:
        raise UsageError("nothing can be checked without test data and without training data; give one of them")
    with progress_bar("checking", 5, asked.progress) as update:
        update(0, "other weights")
        depends = None if trained is None else _dependence(run, own, trained, places, seed)
        update(1, "confidence of classes")
        classes = None if own is None else class_calibration(run, own.images, own.samples.labels, seed=seed)
        update(2, "confidence of samples")
        few = places[:limit]
        named = None if trained is None else index_calibration(run, trained.images[:limit], few, seed=seed)
        sets = {**strangers(like.images, limit, seed), **{name: x[:limit] for name, x in (others or {}).items()}}
        abstains, without = _abstains(run, own, sets, left_out, update, asked.warn)
    counts = {"test": 0 if own is None else len(own), "training": len(places), "strangers": limit}
    about = {"counts": counts, "seed": seed, "withheld": int(run.samples.withheld.sum())}
    return Trust(
        outcomes=verdicts(depends, classes, named, abstains, without),
        dependence=depends,
        class_confidence=classes,
        index_confidence=named,
        abstention=abstains,
        left_out=without,
        about={**about, "samples": bank_state(run.samples)},
    )


def _check_others(others: Mapping[str, Tensor] | None) -> None:
    if not isinstance(others, Mapping | None):
        raise UsageError(f"others must be pictures by name, such as {{'faces': images}}; got {type(others).__name__}")
    taken = [name for name in others or () if name in (*BUILT_IN, *TAKEN)]
    if taken:
        raise UsageError(f'"{taken[0]}" is a kind of strangers that is made here; give the other data another name')


def _abstains(
    run: Run, own: ImageData | None, sets: Mapping[str, Tensor], left_out: LeftOut | None, update: Update, warn: bool
) -> tuple[Abstention, Abstention | None]:
    """Whether a run abstains on strangers, and the one without a class on pictures of that class."""
    update(3, "strangers")
    found = abstention(run, None if own is None else own.images, sets, warn=warn)
    update(4, "a left-out class")
    without = None
    if left_out is not None:
        without = abstention(left_out.run, left_out.own, {left_out.name: left_out.strangers}, warn=warn)
    update(5, "done")
    return found, without


def _dependence(run: Run, own: ImageData | None, trained: ImageData, places: np.ndarray, seed: int) -> Dependence:
    """Queries are unseen pictures, or noisy copies of training samples where there are none."""
    if own is not None:
        queries = own.images[:QUERIES]
    else:
        queries = copies_of(trained.images)["noise-0.1"](trained.images[:QUERIES], seed)
    return dependence(run, queries, trained.images[:SAMPLES], places[:SAMPLES], seed=seed)


def _few(data: ImageData, limit: int, chance: torch.Generator) -> ImageData:
    return data.select(torch.randperm(len(data), generator=chance)[:limit])


def _training(
    run: Run, training: ImageData | None, index: np.ndarray | None, limit: int, chance: torch.Generator
) -> tuple[ImageData | None, np.ndarray]:
    """Some training samples that may be named, and which they are."""
    if training is None:
        return None, np.empty(0, dtype=np.int64)
    index = trained_rows(run, training, index)
    rows = torch.randperm(len(index), generator=chance).numpy()
    rows = rows[~run.samples.withheld[index[rows]]][:limit]
    return training.select(rows), index[rows]
