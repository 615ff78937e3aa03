"""Abstention: whether a run says "no supporting sample" where there is none, and only there.

Own pictures are unseen ones of the kinds that were trained on; strangers are anything else. The false-support rate is
the share of strangers that are called supported; the AUROC says how well the support score tells the two apart,
whatever the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Attributor, explain
from provnet.answers.metrics import auc, calibration_error
from provnet.base.batches import fold
from provnet.base.errors import UsageError
from provnet.base.progress import progress_bar
from provnet.base.stats import LEVEL, Z95, Interval, wilson
from provnet.data.modalities.augment import copies_of
from provnet.models.keys import key_head
from provnet.runs.inputs import Fitted, checked_inputs, inputs_of, positions, run_of
from provnet.runs.run import Run
from provnet.tools.membership.redrawn import cascade, feature_scores, index_scores, pixel_scores

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
