"""Trust checks: whether attribution depends on what was learned, confidence is calibrated, and the run abstains.

Each outcome has a figure with its interval, a bar, and whether it is met. What cannot be measured is said to be so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.abstention import TAKEN, Abstention, abstention
from provnet.applications.confidence import Calibrated, class_calibration, index_calibration
from provnet.applications.copies import copies_of
from provnet.applications.dependence import QUERIES, SAMPLES, Dependence, dependence
from provnet.applications.strangers import BUILT_IN, strangers
from provnet.applications.verdicts import BARS, Outcome, verdicts
from provnet.card import bank_state
from provnet.data.batches import fold
from provnet.data.imagedata import ImageData
from provnet.errors import UsageError
from provnet.evaluation import check_classes, trained_rows
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.training.progress import progress_bar

LIMIT, LEAST = 2_000, 20
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
    limit: int = LIMIT,
    seed: int = 0,
    progress: bool = False,
    warn: bool = True,
) -> Trust:
    """Check a run on unseen data of its own kind and on its training samples; what is not given is not measured.

    `index` says which sample each row of `training` is; None means all, in order. `others` are raw pictures of other
    data sets, by name. At most `limit` pictures of each kind are used, drawn by the seed; no withheld samples.
    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = check(run, provnet.open_data("embedded", split="test", limit=40), data, limit=40)
    >>> found.outcomes[0].key, found.abstention.kinds["noise"].abstained.n
    ('index head', 40)
    """
    run = run_of(run)
    limit = whole("limit", limit, LEAST)  # fewer pictures decide nothing
    if test is not None:
        check_classes(run, test)
    if not isinstance(others, Mapping | None):
        raise UsageError(f"others must be pictures by name, such as {{'faces': images}}; got {type(others).__name__}")
    limit = max(LEAST, min(limit, VALUES // math.prod(run.config.network.input_shape)))
    chance = torch.Generator().manual_seed(fold(seed, 68))
    taken = [name for name in others or () if name in (*BUILT_IN, *TAKEN)]
    if taken:
        raise UsageError(f'"{taken[0]}" is a kind of strangers that is made here; give the other data another name')
    own = None if test is None or len(test) == 0 else _few(test, limit, chance)
    trained, places = _training(run, training, index, max(limit, min(SAMPLES, 4 * limit)), chance)
    like = own if own is not None else trained
    if like is None:
        raise UsageError("nothing can be checked without test data and without training data; give one of them")
    with progress_bar("checking", 5, progress) as update:
        update(0, "other weights")
        depends = None if trained is None else _dependence(run, own, trained, places, seed)
        update(1, "confidence of classes")
        classes = None if own is None else class_calibration(run, own.images, own.samples.labels, seed=seed)
        update(2, "confidence of samples")
        few = places[:limit]
        named = None if trained is None else index_calibration(run, trained.images[:limit], few, seed=seed)
        update(3, "strangers")
        sets = {**strangers(like.images, limit, seed), **{name: x[:limit] for name, x in (others or {}).items()}}
        abstains = abstention(run, None if own is None else own.images, sets, warn=warn)
        update(4, "a left-out class")
        without = None
        if left_out is not None:
            without = abstention(left_out.run, left_out.own, {left_out.name: left_out.strangers}, warn=warn)
        update(5, "done")
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
