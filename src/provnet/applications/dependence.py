"""Does the attribution depend on what was learned? Rankings of samples before and after weights are drawn anew.

A method that shows the same samples whatever the weights are (nearest neighbours of the pixels) explains the data, not
the network. So the ranking of training samples by the trained network is compared with that of the same network with
weights drawn anew, layer by layer (Adebayo et al. 2018), by Spearman's correlation, query by query.

Letters: Q queries, n samples compared.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.queries import checked
from provnet.applications.redrawn import cascade, feature_scores, index_scores, pixel_scores
from provnet.chunks import at_once
from provnet.errors import UsageError
from provnet.inputs import Fitted, positions, run_of
from provnet.modelfile import Run
from provnet.models.exemplar import ExemplarHead
from provnet.stats import Z95, Interval
from provnet.training.progress import progress_bar

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
    >>> run = fit(data, network="single", config=train_config(epochs=1))
    >>> found = dependence(run, data.images[:8], data.images, np.arange(60))
    >>> found.control.spearman.value
    1.0
    """
    run = run_of(run)
    queries, training = checked(run, queries, warn=False), checked(run, training, "the training pictures", warn=False)
    index = positions(index, len(run.samples))
    _check(run, queries, training, index)
    net, places = run.network.eval(), torch.from_numpy(index)
    keyed = isinstance(net.index_head, ExemplarHead)
    with torch.inference_mode(), progress_bar("drawing weights anew", 12, progress) as update:
        device = next(net.parameters()).device
        batches = torch.split(queries, at_once(queries.shape[1:], device.type))
        classes = torch.cat([net(batch.to(device)).classes.cpu() for batch in batches])
        trained = index_scores(net, queries, classes, places).numpy()
        outside = np.isnan(trained)
        pixels = np.where(outside, np.nan, pixel_scores(queries, training).numpy())
        steps, fresh = [], None
        for number, (words, redrawn) in enumerate(cascade(net, places, seed)):
            chosen = torch.arange(len(places)) if keyed else places
            scores = index_scores(redrawn, queries, classes, chosen).numpy()
            steps.append(_step(words, trained, scores))
            update(min(number + 1, 11), words)
        if keyed:
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
