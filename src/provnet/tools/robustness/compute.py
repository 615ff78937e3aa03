"""How a network's answers and its attributions hold under distortion, against a CNN without an index branch (§5.2).

The paper compares the single-branch network, whose class is that of the most active index neuron, with a CNN that
predicts classes. So `top_1` and `top_5` go through the index for a single branch (the first exemplar, any of five, has
the true label), and through the class scores for any other network (the most probable class, any of the five). Beside
them stand both ways, and whether the *attribution* survives: the first exemplar is the one of the clean picture, or at
least of its class, and it is not one of a few that are named for everything. Where samples are withheld it may be that
none can be named for a picture: that counts as wrong in every figure of exemplars, and `unnamed` says how often.

Letters: n test samples, K exemplars.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.answers.evaluation import own_classes
from provnet.answers.metrics import any_at_k
from provnet.base.batches import pieces
from provnet.base.errors import UsageError, choose_all
from provnet.base.options import RobustnessOptions, with_changes
from provnet.base.progress import progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import ImageData, image_data
from provnet.data.modalities.decode import is_picture
from provnet.runs.inputs import Fitted, run_of, whole_number
from provnet.runs.run import Run
from provnet.tools.robustness.conditions import ATTACKS, Attack, Condition, attack, conditions_by_name, distort


@dataclass(frozen=True)
class Difference:
    """Difference of two rates on the same n samples, in -1..1, with its interval.

    Attributes:
        value: rate of the first less that of the second.
        n: samples.
        low, high: the interval; it is wider where it is one of `comparisons`, so that all of them hold together.
        only_first, only_second: samples that the one got right and the other did not.
    """

    value: float
    n: int
    low: float
    high: float
    only_first: int
    only_second: int

    @property
    def better(self) -> bool:
        """Whether the first is better beyond chance of the test samples."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Whether the second is."""
        return self.high < 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "better": self.better, "worse": self.worse}


def paired_difference(first: np.ndarray, second: np.ndarray, comparisons: int = 1) -> Difference:
    """Compare two (n,) bool arrays, right or wrong: Agresti and Min's interval, half a sample in each cell.

    It covers the choice of the test samples, not the luck of one training.

    >>> found = paired_difference(np.array([True] * 90 + [False] * 10), np.array([True] * 60 + [False] * 40))
    >>> round(found.value, 2), found.better
    (0.3, True)
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) == 0:
        raise UsageError(f"two arrays of one length above 0 are compared, got shapes {first.shape} and {second.shape}")
    if comparisons < 1:
        raise UsageError(f"comparisons must be 1 or more, got {comparisons}")
    n = len(first)
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    z = NormalDist().inv_cdf(1 - 0.025 / comparisons)
    middle = (won - lost) / (n + 2)
    half = z * math.sqrt((won + lost + 1) / (n + 2) - middle**2) / math.sqrt(n + 2)
    value = (won - lost) / n
    return Difference(value, n, max(-1.0, middle - half), min(1.0, middle + half), won, lost)


K = 5
BATCH = {"cpu": 256, "cuda": 2048}  # where pictures are small
FEW = 10  # samples, those named most often: a network that is lost names them for nearly everything


@dataclass(frozen=True, eq=False)
class Answers:
    """What a network says: (n, K) most probable classes, (n, K) exemplars (-1: none), (n,) whether supported."""

    classes: np.ndarray
    index: np.ndarray
    supported: np.ndarray


@dataclass(frozen=True, eq=False)
class Row:
    """One network under one condition; figures of exemplars are None for a CNN without index branch.

    Attributes:
        condition, words: name and what people call it.
        fixed: whether all networks saw the same pictures; attacks are made for each.
        figures: name -> rate; see FIGURES.
        right: (n,) bool, whether `top_1` is right.
    """

    condition: str
    words: str
    fixed: bool
    figures: dict[str, Interval]
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class Measured:
    """A network under all conditions."""

    name: str
    network: str
    backbone: str
    alpha: float
    isolated: bool
    rows: tuple[Row, ...] = field(repr=False)  # they would fill a page

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = {
            row.condition: {name: figure.to_json() for name, figure in row.figures.items()} | {"fixed": row.fixed}
            for row in self.rows
        }
        names = ("name", "network", "backbone", "alpha", "isolated")
        return {**{name: getattr(self, name) for name in names}, "conditions": rows}


def measure(
    run: Run | Fitted,
    test: ImageData,
    *,
    name: str = "network",
    conditions: Sequence[str] | None = None,
    attacks: Sequence[str] = (),
    options: RobustnessOptions | None = None,
    **changes: Any,
) -> Measured:
    """Ask a run about every test picture, clean and under every condition; its network stays on its device.

    The draws are keyed by the content of each picture, so the distorted test set is the same for every run, whatever
    its order. `attacked` of the samples, evenly spread, are attacked. `changes` are options by name, such as `seed=1`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> found = measure(fit(data, config=train_config(epochs=1)), data, conditions=["blur-1"])
    >>> [(row.condition, row.figures["top_1"].n) for row in found.rows]
    [('clean', 40), ('blur-1', 40)]
    """
    asked = with_changes(RobustnessOptions, options, changes)
    run = run_of(run)
    test = _check(run, test)
    ask = Attributor(run)
    isolated, single = is_isolated(run), run.network.task_head is None
    ends = _ends(test)
    clean: Answers | None = None
    rows: list[Row] = []
    ways: list[Condition | Attack] = [*conditions_by_name(conditions), *choose_all("attack", attacks, ATTACKS)]
    with progress_bar(name, len(ways), asked.progress) as update:
        for one in ways:
            update(len(rows), one.name)
            few = np.arange(len(test)) if isinstance(one, Condition) else _spread(len(test), asked.attacked)
            part = test if len(few) == len(test) else test.select(few)
            found = _answers(run, ask, _changed(ask, part, one, asked, ends))
            clean = clean or found  # the clean condition comes first
            words = one.words if isinstance(one, Condition) else one.words(asked.epsilon)
            before = Answers(clean.classes[few], clean.index[few], clean.supported[few])
            figures, right = _figures(run, part.samples.labels, found, before, single=single, isolated=isolated)
            rows.append(Row(one.name, words, isinstance(one, Condition), figures, right))
        update(len(rows), "")
    config = run.config.network
    return Measured(name, config.network, config.backbone, config.alpha, isolated, tuple(rows))


def is_isolated(run: Run | Fitted) -> bool:
    """Whether a run's index branch was not trained: the weight of its loss is 0, so it is a plain CNN.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> is_isolated(fit(data, config=train_config(epochs=1, index_weight=0.0)))
    True
    """
    run = run_of(run)
    recipe = run.config.training.get("training")
    weight = recipe.get("index_weight") if isinstance(recipe, Mapping) else None
    return run.network.task_head is not None and weight == 0


def from_isolated(measured: Sequence[Measured], *, together: bool = True) -> dict[tuple[str, str], Difference]:
    """(network, condition) -> difference in `top_1` from the isolated CNN on the same samples; empty without one.

    With `together` the intervals hold for all networks of a condition at once (Bonferroni): the best of eleven is
    better by luck more often than one.
    """
    isolated = next((one for one in measured if one.isolated), None)
    if isolated is None:
        return {}
    others = [one for one in measured if one is not isolated]
    theirs = {row.condition: row.right for row in isolated.rows}
    return {
        (one.name, row.condition): paired_difference(
            row.right, theirs[row.condition], comparisons=len(others) if together else 1
        )
        for one in others
        for row in one.rows
        if row.condition in theirs
    }


def sample_keys_of(test: ImageData) -> Tensor:
    """(n,) int64, from the hash of each picture: the same wherever it stands."""
    first = np.ascontiguousarray(test.samples.pixel_sha256[:, :8])
    return torch.from_numpy(first.view("<i8").reshape(-1).astype(np.int64))


def _changed(
    ask: Attributor, test: ImageData, one: Condition | Attack, asked: RobustnessOptions, ends: tuple[float, float]
) -> Iterator[Tensor]:
    """The pictures of a condition, a batch at a time, on the device."""
    net, most = ask.network, BATCH[ask.device.type]
    size, keys = ask.at_once(test.shape, most=most), sample_keys_of(test)
    if isinstance(one, Attack) and size < most:
        size = max(1, size // 3)  # pictures are large, and gradients hold three times as much of each
    if isinstance(one, Attack) and net.task_head is None:
        size = min(size, 512)  # gradients of all index scores are held
    for rows in pieces(len(test), size):
        images = test.images[rows].to(ask.device)
        if isinstance(one, Condition):
            yield distort(images, keys[rows], one, seed=asked.seed, low=ends[0], high=ends[1])
        else:
            labels = test.labels[rows]
            yield attack(net, images, labels, keys[rows], one, epsilon=asked.epsilon, seed=asked.seed, values=ends)


def _answers(run: Run, ask: Attributor, batches: Iterator[Tensor]) -> Answers:
    def read(answered: Answered) -> dict[str, Tensor]:
        best, logits = answered.best(K), answered.logits
        classes = logits.topk(min(K, logits.shape[1]), dim=1).indices
        return {"classes": classes.cpu(), "index": best.index.cpu(), "support": best.support.cpu()}

    found = ask.over(((images, None) for images in batches), read)
    classes, index, support = (found[name].numpy() for name in ("classes", "index", "support"))
    return Answers(classes, index, support >= run.config.threshold)


def _figures(
    run: Run, truth: np.ndarray, found: Answers, clean: Answers, *, single: bool, isolated: bool
) -> tuple[dict[str, Interval], np.ndarray]:
    labels = _labels(run, found.index)
    by_class = {k: any_at_k(found.classes, truth, k) for k in (1, K)}
    by_index = {k: any_at_k(labels, truth, k) for k in (1, K)}
    chief = by_index if single else by_class
    figures = {"top_1": chief[1], "top_5": chief[K], "class_top_1": by_class[1], "class_top_5": by_class[K]}
    if not isolated:
        first = clean.index[:, 0]
        figures |= {
            "index_top_1": by_index[1],
            "index_top_5": by_index[K],
            "same_exemplar": (found.index[:, 0] == first) & (first >= 0),
            "same_exemplar_in_5": (found.index == first[:, None]).any(1) & (first >= 0),
            "same_exemplar_class": (labels[:, 0] == _labels(run, clean.index)[:, 0]) & (first >= 0),
            "most_named": _most_named(found.index[:, 0]),
            "supported": found.supported,
        }
        if run.samples.withheld.any():  # else there is a sample for everything
            figures["unnamed"] = found.index[:, 0] < 0
    return {name: wilson(int(hits.sum()), len(hits)) for name, hits in figures.items()}, chief[1]


def _most_named(first: np.ndarray) -> np.ndarray:
    """(n,) bool: whether the first exemplar is one of the FEW that are named first most often; none is not."""
    names, place, counts = np.unique(first, return_inverse=True, return_counts=True)
    often = np.argsort(-np.where(names >= 0, counts, 0), kind="stable")[:FEW]
    return np.isin(place, often) & (first >= 0)


def _labels(run: Run, index: np.ndarray) -> np.ndarray:
    return np.where(index >= 0, run.samples.labels[np.maximum(index, 0)], -1)


def _spread(n: int, most: int) -> np.ndarray:
    most = whole_number("attacked", most)
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def _ends(test: ImageData) -> tuple[float, float]:
    """Lowest and highest value of floats; bytes need none."""
    if test.images.dtype == torch.uint8:
        return 0.0, 255.0
    low, high = float(test.images.min()), float(test.images.max())
    return low, high if high > low else low + 1.0


def _check(run: Run, test: ImageData) -> ImageData:
    if len(image_data("the test data", test)) == 0:
        raise UsageError("there are no test samples to distort")
    shape = run.config.network.input_shape
    if not is_picture(shape):
        raise UsageError(f"distortions are for pictures; this run takes vectors of {shape[0]} values")
    if test.shape != shape:
        raise UsageError(f"the run takes samples of shape {shape}, the test data have {test.shape}; resize them first")
    return own_classes(run, test)


FIGURES = {
    "top_1": "right answer, as the paper compares it",
    "top_5": "right answer among five",
    "class_top_1": "most probable class is right",
    "class_top_5": "right class among the five most probable",
    "index_top_1": "first exemplar is of the right class",
    "index_top_5": "any of five exemplars is of the right class",
    "same_exemplar": "first exemplar is that of the clean picture",
    "same_exemplar_in_5": "that one is among the first five",
    "same_exemplar_class": "first exemplar is of the class of that one",
    "most_named": "first exemplar is one of the ten named most often under this condition",
    "supported": "a training sample supports the answer",
    "unnamed": "no exemplar may be named, all of the class are withheld: wrong in every figure of exemplars",
}
