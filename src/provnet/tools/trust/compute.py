"""Trust checks: whether attribution depends on what was learned, confidence is calibrated, and the run abstains.

Each outcome has a figure with its interval, a bar, and whether it is met. What cannot be measured is said to be so.

Abstention: own pictures are unseen ones of the kinds that were trained on; strangers are anything else. The
false-support rate is the share of strangers that are called supported; the AUROC says how well the support score tells
the two apart, whatever the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from provnet.answers.attributor import Attributor, explain
from provnet.answers.evaluation import own_classes, trained_rows
from provnet.answers.metrics import auc, calibration_error
from provnet.base.batches import fold
from provnet.base.errors import UsageError
from provnet.base.options import CheckOptions, with_changes
from provnet.base.progress import Update, progress_bar
from provnet.base.stats import LEVEL, Z95, Interval, wilson
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import copies_of
from provnet.data.modalities.decode import are_pictures
from provnet.models.keys import key_head
from provnet.report.records import percent
from provnet.runs.card import bank_state
from provnet.runs.inputs import Fitted, checked_inputs, inputs_of, positions, run_of, whole_number
from provnet.runs.run import Run
from provnet.tools.membership.compute import cascade, feature_scores, index_scores, pixel_scores

TAKEN = ("own", "edges")  # names of the histogram that no kind of strangers may have


@dataclass(frozen=True)
class StrangerRate:
    """What becomes of one kind of strangers.

    Attributes:
        abstained: share that is called unsupported.
        false_support: the rest of them.
        auroc: of the support score, own pictures against these; None where there are no own pictures.
    """

    abstained: Interval
    false_support: Interval
    auroc: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "abstained": self.abstained.to_json(),
            "false_support": self.false_support.to_json(),
            "auroc": None if self.auroc is None else self.auroc.to_json(),
        }


@dataclass(frozen=True)
class Abstention:
    """How a run abstains.

    Attributes:
        own: share of own unseen pictures that are called unsupported; n is 0 where there were none.
        kinds: name of the strangers -> what becomes of them.
        threshold: the support below which a picture is unsupported.
        histogram: `edges`, and counts by kind, own pictures under `own`; the ends hold what lies beyond.
    """

    own: Interval
    kinds: Mapping[str, StrangerRate]
    threshold: float
    histogram: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        kinds = {name: one.to_json() for name, one in self.kinds.items()}
        drawn = {name: list(values) for name, values in self.histogram.items()}
        return {"own": self.own.to_json(), "kinds": kinds, "threshold": self.threshold, "histogram": drawn}


def abstention(
    run: Run | Fitted,
    own: Tensor | None,
    strangers: Mapping[str, Tensor],
    *,
    batch_size: int | None = None,
    progress: bool = False,
    warn: bool = True,
) -> Abstention:
    """Measure raw own pictures (n, ...), unseen in training, and strangers by kind.

    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False. `batch_size` of
    them go through the network at a time; None chooses by their size (`provnet.base.batches`).

    >>> import provnet
    >>> from provnet.tools.trust.compute import uniform_noise
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> abstention(run, None, {"noise": uniform_noise(data.images, 50)}).kinds["noise"].abstained.n
    50
    """
    run = run_of(run)
    if not isinstance(strangers, Mapping):
        raise UsageError(f"strangers must be pictures by kind, such as {{'noise': images}}; got {strangers!r:.80}")
    own = None if own is None else inputs_of(run.config, own)
    strangers = {name: inputs_of(run.config, images) for name, images in strangers.items()}
    taken = [name for name in strangers if name in TAKEN]
    if taken:
        raise UsageError(f'strangers must not be called "{taken[0]}", which is a name of the result; give another name')
    empty = [name for name, images in strangers.items() if len(images) == 0]
    if empty:
        raise UsageError(f'no pictures of "{empty[0]}" were given; leave that kind out')
    threshold = run.config.threshold
    sets = {**({} if own is None or len(own) == 0 else {"own": own}), **strangers}
    support: dict[str, np.ndarray] = {}
    with progress_bar("strangers", sum(map(len, sets.values())), progress) as update:
        done = 0
        for name, images in sets.items():
            support[name] = support_of(run, checked_inputs(run, images, f'pictures of "{name}"', warn=warn), batch_size)
            done += len(images)
            update(done, name)
    mine = support.get("own", np.empty(0))
    kinds = {}
    for name in strangers:
        away = support[name] < threshold
        truth = np.concatenate([np.ones(len(mine), dtype=np.bool_), np.zeros(len(away), dtype=np.bool_)])
        score = auc(truth, np.concatenate([mine, support[name]])) if len(mine) else None
        rates = wilson(int(away.sum()), len(away)), wilson(int((~away).sum()), len(away))
        kinds[name] = StrangerRate(*rates, score)
    return Abstention(
        wilson(int((mine < threshold).sum()), len(mine)), kinds, threshold, _histogram(support, threshold)
    )


def support_of(run: Run | Fitted, images: Tensor | np.ndarray, batch_size: int | None = None) -> np.ndarray:
    """(n,) support scores of raw pictures."""
    run = run_of(run)
    queries = checked_inputs(run, images, warn=False)
    found = Attributor(run).each(queries, lambda answered: {"support": answered.best(1).support}, batch_size=batch_size)
    return np.asarray(found["support"].cpu().double().numpy())


def _histogram(support: Mapping[str, np.ndarray], threshold: float, bins: int = 40) -> dict[str, tuple[float, ...]]:
    """Counts over -distance, from three times the threshold to 0: strangers far beyond are counted at the edge."""
    edges = np.linspace(3 * threshold if threshold < 0 else -1.0, 0.0, bins + 1)
    found = {"edges": tuple(edges.tolist())}
    for name, values in support.items():
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        found[name] = tuple(counts.tolist())
    return found


BINS, DRAWS = 15, 500


@dataclass(frozen=True)
class Bin:
    """Answers of about one confidence: their number, mean confidence, and how many are right."""

    n: int
    confidence: float
    right: Interval


@dataclass(frozen=True)
class Calibrated:
    """How far confidence and truth lie apart.

    Attributes:
        ece: expected calibration error over 15 bins of equal width, with a bootstrap interval; 0 is perfect.
        confidence: the mean.
        right: the share that is right.
        bins: those that hold answers.
    """

    ece: Interval
    confidence: float
    right: Interval
    bins: tuple[Bin, ...]

    @property
    def leans(self) -> str:
        """In a word, which way it errs on the whole."""
        gap = self.confidence - (self.right.value or 0.0)
        return "overconfident" if gap > 0 else "underconfident"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [{"n": one.n, "confidence": one.confidence, "right": one.right.to_json()} for one in self.bins]
        about = {"confidence": self.confidence, "right": self.right.to_json(), "leans": self.leans}
        return {"ece": self.ece.to_json(), **about, "bins": rows}


def calibration_of(confidence: np.ndarray, right: np.ndarray, *, seed: int = 0, draws: int = DRAWS) -> Calibrated:
    """Compare (n,) confidences in 0..1 with (n,) right or wrong.

    >>> found = calibration_of(np.array([0.9] * 10), np.array([True] * 9 + [False]))
    >>> round(found.ece.value, 6), len(found.bins)
    (0.0, 1)
    """
    confidence, right = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    value = calibration_error(confidence, right, BINS)
    chance = np.random.default_rng([seed, 67])
    drawn = []
    for _ in range(draws):
        rows = chance.integers(0, len(right), len(right))
        drawn.append(calibration_error(confidence[rows], right[rows], BINS))
    # the error of a draw is larger than that of the samples themselves, as chance adds gaps: shift that away
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - (np.mean(drawn) - value)
    ece = Interval(value, len(right), max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))
    place = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1).astype(np.int64)
    bins = []
    for number in np.unique(place).tolist():
        mine = place == number
        n = int(mine.sum())
        bins.append(Bin(n, float(confidence[mine].mean()), wilson(int(right[mine].sum()), n)))
    return Calibrated(ece, float(confidence.mean()), wilson(int(right.sum()), len(right)), tuple(bins))


def class_calibration(run: Run | Fitted, images: Tensor, labels: np.ndarray, *, seed: int = 0) -> Calibrated:
    """The class branch on distorted copies of raw pictures (n, ...) with their labels (n,)."""
    run = run_of(run)
    sure, hits = [], []
    for number, copy in enumerate(copies_of(images).values()):
        found = explain(run, copy(images, fold(seed, number)), k=1)
        sure.append(found.confidence)
        hits.append(found.predicted == labels)
    return calibration_of(np.concatenate(sure), np.concatenate(hits), seed=seed)


def index_calibration(run: Run | Fitted, images: Tensor, index: np.ndarray, *, seed: int = 0) -> Calibrated:
    """The index branch on distorted copies of the raw training samples `index` (n,); equal pictures count as one.

    So does their confidence: equal samples share their weight, see `equal`, and that of the picture is the sum.
    """
    run = run_of(run)
    groups, shared = run.samples.groups, _shared_by(run)
    sure, hits = [], []
    for number, copy in enumerate(copies_of(images).values()):
        found = explain(run, copy(images, fold(seed, number)), k=1)
        named = found.index[:, 0]
        sure.append(np.where(named >= 0, found.weight[:, 0] * shared[named], 0.0))
        hits.append((named >= 0) & (groups[np.maximum(named, 0)] == groups[index]))
    return calibration_of(np.concatenate(sure).clip(0, 1), np.concatenate(hits), seed=seed)


def _shared_by(run: Run) -> np.ndarray:
    """(N,) how many samples that may be named share the weight of each one; a head may look within one class alone."""
    samples, head = run.samples, run.network.index_head
    numbers = samples.groups
    if head.valid(torch.zeros(1, dtype=torch.int64, device=run.network.index_map.labels.device)) is not None:
        numbers = np.unique(numbers * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    return np.asarray(np.bincount(numbers[~samples.withheld], minlength=int(numbers.max()) + 1)[numbers])


QUERIES, SAMPLES, TOP = 200, 5_000, 5
LEAST = 3  # samples of a class: fewer have no ranking to speak of


@dataclass(frozen=True)
class Step:
    """One network with weights drawn anew.

    Attributes:
        words: down to which layer.
        spearman: mean correlation with the ranking of the trained network, over queries.
        overlap: mean share of the trained network's five best samples that are still among the five best.
    """

    words: str
    spearman: Interval
    overlap: Interval

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"words": self.words, "spearman": self.spearman.to_json(), "overlap": self.overlap.to_json()}


@dataclass(frozen=True)
class Dependence:
    """What is left of the ranking when weights are drawn anew.

    Attributes:
        steps: from the head alone to the whole network.
        fresh: the whole network drawn anew and the keys made anew by it, as if it had never learned; None for a network
            without keys, whose last step is that already.
        pixels: how far the ranking of the trained network agrees with that of the pixels alone.
        control: nearest neighbours of the pixels under the same treatment; they do not use the weights at all.
        queries, samples: how many.
        chance: the overlap that guessing would give.
    """

    steps: tuple[Step, ...]
    fresh: Step | None
    pixels: Step
    control: Step
    queries: int
    samples: int
    chance: float

    @property
    def head(self) -> Step:
        """The index head alone drawn anew."""
        return self.steps[0]

    @property
    def whole(self) -> Step:
        """The whole network drawn anew."""
        return self.fresh if self.fresh is not None else self.steps[-1]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = {name: value for name, value in asdict(self).items() if isinstance(value, int | float)}
        parts = {name: getattr(self, name) for name in ("fresh", "pixels", "control")}
        named = {name: None if part is None else part.to_json() for name, part in parts.items()}
        return {"steps": [step.to_json() for step in self.steps], **named, **found}


def dependence(
    run: Run | Fitted,
    queries: Tensor,
    training: Tensor,
    index: np.ndarray,
    *,
    seed: int = 0,
    progress: bool = False,
) -> Dependence:
    """Compare rankings for raw queries (Q, ...); `training` are the raw pictures of the samples `index` (n,).

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = fit(data, train_config(epochs=1, network="single"))
    >>> found = dependence(run, data.images[:8], data.images, np.arange(60))
    >>> found.control.spearman.value
    1.0
    """
    run = run_of(run)
    queries, training = (
        checked_inputs(run, queries, warn=False),
        checked_inputs(run, training, "the training pictures", warn=False),
    )
    index = positions(index, len(run.samples))
    _check(run, queries, training, index)
    net, places = run.network.eval(), torch.from_numpy(index)
    with torch.inference_mode(), progress_bar("drawing weights anew", 12, progress) as update:
        classes = Attributor(net).each(queries, lambda answered: {"classes": answered.classes})["classes"].cpu()
        trained = index_scores(net, queries, classes, places).numpy()
        outside = np.isnan(trained)
        pixels = np.where(outside, np.nan, pixel_scores(queries, training).numpy())
        steps, fresh = [], None
        for number, (words, redrawn, known) in enumerate(cascade(net, places, seed)):
            scores = index_scores(redrawn, queries, classes, known).numpy()
            steps.append(_step(words, trained, scores))
            update(min(number + 1, 11), words)
        if key_head(net) is not None:
            scores = feature_scores(redrawn, queries, training).numpy()
            fresh = _step("the whole network, and keys made by it", trained, np.where(outside, np.nan, scores))
        update(12, "done")
    sizes = np.maximum((~outside).sum(1), 1)
    return Dependence(
        steps=tuple(steps),
        fresh=fresh,
        pixels=_step("pixels alone", trained, pixels),
        control=_step("nearest neighbours of the pixels, weights drawn anew", pixels, pixels),
        queries=len(queries),
        samples=len(index),
        chance=float(np.minimum(TOP / sizes, 1.0).mean()),
    )


def spearman(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(Q,) Spearman's correlation of two (Q, n) tables, row by row; NaN are left out, ties share a rank.

    A row without spread, or with fewer than three numbers, gives NaN.

    >>> spearman(np.array([[1, 2, 3, 9]]), np.array([[4, 5, 6, 7]])).round(6).tolist()
    [1.0]
    """
    found = np.full(len(one), np.nan)
    for row, (a, b) in enumerate(zip(one, other, strict=True)):
        there = np.isfinite(a) & np.isfinite(b)
        if there.sum() < LEAST:
            continue
        x, y = (_ranks(values[there]) for values in (a, b))
        x, y = x - x.mean(), y - y.mean()
        spread = float(np.sqrt((x**2).sum() * (y**2).sum()))
        found[row] = float((x * y).sum()) / spread if spread > 0 else np.nan
    return found


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count + 1) / 2)[place])


def _step(words: str, trained: np.ndarray, other: np.ndarray) -> Step:
    return Step(words, _mean(spearman(trained, other)), _mean(_overlap(trained, other)))


def _overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(Q,) share of the best of one that are among the best of the other."""
    best = [
        np.argsort(-np.where(np.isnan(each), -np.inf, each), axis=1, kind="stable")[:, :TOP] for each in (one, other)
    ]
    sizes = (~np.isnan(one)).sum(1)
    shares = [
        len(set(a[:n]) & set(b[:n])) / n
        for a, b, n in zip(*map(np.ndarray.tolist, best), np.minimum(sizes, TOP), strict=True)
        if n
    ]
    return np.array(shares)


def _mean(values: np.ndarray) -> Interval:
    """Mean with its 95 % interval over queries."""
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Interval(None, len(values), None, None, "too few queries have a ranking")
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(len(values))
    middle = round(float(values.mean()), 12)
    return Interval(middle, len(values), max(-1.0, middle - half), min(1.0, middle + half))


def _check(run: Run, queries: Tensor, training: Tensor, index: np.ndarray) -> None:
    shape = run.config.network.input_shape
    if tuple(queries.shape[1:]) != shape or tuple(training.shape[1:]) != shape:
        given = f"{tuple(queries.shape)} and {tuple(training.shape)}"
        raise UsageError(f"queries and training pictures have the shape {shape} each; got {given}")
    if len(queries) < 2 or len(index) < LEAST or len(training) != len(index):
        raise UsageError(
            f"rankings are compared for 2 queries or more over {LEAST} samples or more, with a picture each; got "
            f"{len(queries)} queries, {len(index)} samples and {len(training)} pictures"
        )
    if run.samples.withheld[index].any():
        raise UsageError("withheld samples are not compared; leave them out of index")


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


FEWEST = 20
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
    limit = whole_number("limit", asked.limit, FEWEST)  # fewer pictures decide nothing
    if test is not None:
        test = own_classes(run, test)
    _check_others(others)
    limit = max(FEWEST, min(limit, VALUES // math.prod(run.config.network.input_shape)))
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
