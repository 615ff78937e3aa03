"""evaluate: how good the answers are and how well training samples are named, each figure with n and interval.

On the test split: class accuracy, and whether the exemplars share the true label (`any@k`, `majority@k`). On the
training set: does a sample find itself, exactly and under noise, shift and JPEG. Exact index accuracy alone says little
(untrained features reach 100 %), so the perturbed figures stand beside it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Attributor
from provnet.answers.explanation import Explanation
from provnet.answers.metrics import any_at_k, group_hit, index_hit, majority_at_k
from provnet.base.errors import DataError, UsageError
from provnet.base.files import DataWarning
from provnet.base.progress import forecast, progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.compare import DECODED, compare, decoding_advice
from provnet.data.dataset import Dataset, image_data
from provnet.data.modalities.augment import photograph_copies
from provnet.data.select import with_classes
from provnet.heads.index_map import TargetSampler
from provnet.models.pretrained import keep_features
from provnet.runs.data import in_terms_of
from provnet.runs.inputs import Fitted, positions, range_problem, run_of
from provnet.runs.run import Run

KS = (1, 5, 10)
NEVER = 1_000_000  # an epoch that no network was trained in: its draw of targets is new to all


@dataclass(frozen=True)
class Evaluation:
    """All figures of a run. `extra` holds what only some networks have (stages, sampled targets, groups).

    `risk_coverage`: share of the test answers that are given, those with the largest support first, and the share of
    them that are wrong.
    """

    class_accuracy: Interval
    index_accuracy: Interval
    index_at_5: Interval
    index_accuracy_perturbed: Mapping[str, Interval]
    any_at: Mapping[int, Interval]
    majority_at: Mapping[int, Interval]
    supported: Mapping[str, Interval]
    index_ceiling: float
    extra: Mapping[str, Interval] = field(default_factory=dict)
    risk_coverage: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        """A line a figure that was measured."""
        rows = {
            "class_accuracy": self.class_accuracy,
            "index_accuracy": self.index_accuracy,
            "index_at_5": self.index_at_5,
            **{f"index_accuracy, {name}": one for name, one in self.index_accuracy_perturbed.items()},
            **{f"any_at_{k}": one for k, one in self.any_at.items()},
            **{f"majority_at_{k}": one for k, one in self.majority_at.items()},
            **{f"supported, {name}": one for name, one in self.supported.items()},
            **self.extra,
        }
        there = {name: one for name, one in rows.items() if one.value is not None}
        widest = max(map(len, there), default=0)
        return "\n".join(f"{name:<{widest}}  {one}" for name, one in there.items()) or "nothing was measured"

    __repr__ = __str__  # what a notebook shows

    def to_json(self) -> dict[str, Any]:
        """Plain values, rates in 0..1."""
        return {
            "class_accuracy": self.class_accuracy.to_json(),
            "index_accuracy": self.index_accuracy.to_json(),
            "index_at_5": self.index_at_5.to_json(),
            "index_accuracy_perturbed": {k: v.to_json() for k, v in self.index_accuracy_perturbed.items()},
            **{f"any_at_{k}": v.to_json() for k, v in self.any_at.items()},
            **{f"majority_at_{k}": v.to_json() for k, v in self.majority_at.items()},
            "supported": {k: v.to_json() for k, v in self.supported.items()},
            "index_ceiling": self.index_ceiling,
            **{k: v.to_json() for k, v in self.extra.items()},
            **({"risk_coverage": {f"{n:g}": wrong for n, wrong in self.risk_coverage}} if self.risk_coverage else {}),
        }


def evaluate(
    run: Run | Fitted,
    test: Dataset | None = None,
    train: Dataset | None = None,
    *,
    index: np.ndarray | None = None,
    seed: int = 0,
    progress: bool = False,
    warn: bool = True,
) -> Evaluation:
    """Evaluate a run, or that of a fitted classifier, on unseen data and on its own training samples.

    What is not given is the run's own, opened again: `run.test()` and `run.data()`. It has n = 0 where the run has none
    that can be opened: no test split, or data that were given as arrays; training data that are not there any more get
    a DataWarning.
    `index` says which training sample each row of `train` is, where some are missing; None finds them by their hashes.
    Withheld samples cannot be named, so they are left out. Test data whose values cannot lie in the range trained on
    get a UserWarning, unless `warn` is False because they were looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> evaluate(fit(data, config=train_config(epochs=1))).index_accuracy.n
    40
    """
    run = run_of(run)
    test = run.test(progress=progress) if test is None else test
    train = _own(run, progress) if train is None else train
    return evaluate_on(run, test, train, index=index, seed=seed, progress=progress, warn=warn)


def evaluate_on(
    run: Run,
    test: Dataset | None,
    train: Dataset | None,
    *,
    index: np.ndarray | None = None,
    seed: int = 0,
    progress: bool = False,
    warn: bool = True,
) -> Evaluation:
    """`evaluate` on exactly these data: what is None is not measured, and has n = 0."""
    if test is not None:
        test = in_terms_of(run.config, own_classes(run, test))
        problem = range_problem(run.config.network, test.inputs) if warn and len(test) else None
        if problem is not None:
            warnings.warn(f"the test data: {problem}", UserWarning, stacklevel=3)
    own = trained_rows(run, train, index)
    train = None if train is None else in_terms_of(run.config, train)
    if run.samples.withheld.any():
        active = np.flatnonzero(~run.samples.withheld[own])
        own, train = own[active], None if train is None else train.select(active)
    total = _count(run, test, train)
    if test is not None or train is not None:
        one = train if test is None or len(test) == 0 else test
        forecast(f"asking about {total:,} samples", _seconds(run, one, total), progress)
    with progress_bar("evaluating", total, progress) as update:
        ask = _Questions(Attributor(run), update)
        on_test = _on_test(run, test, ask)
        on_train = _on_train(run, train, own, seed, ask)
        update(total, "done")
    keep_features(run.network.backbone)
    return Evaluation(
        class_accuracy=on_test["class"],
        index_accuracy=on_train["index"],
        index_at_5=on_train["index_at_5"],
        index_accuracy_perturbed=on_train["perturbed"],
        any_at=on_test["any"],
        majority_at=on_test["majority"],
        supported={"test": on_test["supported"], "train": on_train["supported"]},
        index_ceiling=run.samples.select(np.flatnonzero(~run.samples.withheld)).index_ceiling,
        extra={**on_test["extra"], **on_train["extra"]},
        risk_coverage=on_test["risk"],
    )


def _own(run: Run, progress: bool) -> Dataset | None:
    """The run's own training data, as far as they can be opened."""
    if run.config.data is None or run.config.data.kind == "arrays":
        return None
    try:
        return run.data(progress=progress)
    except DataError as error:
        warnings.warn(f"index accuracy is not measured: {error}", DataWarning, stacklevel=3)
        return None


def trained_rows(run: Run | Fitted, train: Dataset | None, index: np.ndarray | None = None) -> np.ndarray:
    """(n,) int64, which training sample each row of `train` is: `index`, else as their hashes say.

    Data that hold anything but samples of the run, under their labels of then, are refused.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> trained_rows(fit(data, config=train_config(epochs=1)), data.select([7, 3])).tolist()
    [7, 3]
    """
    run = run_of(run)
    own = positions(index, len(run.samples))
    if train is None:
        return own
    given, table = image_data("the training data", train).samples, run.samples.select(own)
    if index is not None and len(given) != len(own):
        raise UsageError(f"{len(given)} training samples, but {len(own)} indices of them; give one each")
    if given.fingerprint == table.fingerprint:
        return own
    if index is None and given.class_names == run.samples.class_names:
        found = compare(given, run.samples)
        if set(found.status) <= {"same", "moved"} and len(np.unique(found.positions)) == len(given):
            return found.positions
    way = "see provnet verify; run.data(data) takes those of them that are"
    if DECODED in compare(table, given).status:
        way = f"their files are decoded to other pictures; {decoding_advice(run.config.data, train.spec)}"
    raise UsageError(f"the training data given are not the ones this run was trained on; {way}")


def own_classes(run: Run, test: Dataset) -> Dataset:
    """Test data with their classes numbered as the run does: labels are compared by number."""
    return with_classes(image_data("the test data", test), run.samples.class_names)


def _rate(hits: np.ndarray) -> Interval:
    return wilson(int(hits.sum()), len(hits))


@dataclass
class _Questions:
    """Asks a run about many inputs; `update` is told how many there were in all, and what is asked about."""

    ask: Attributor
    update: Callable[[int, str], None]
    done: int = 0

    def __call__(
        self, what: str, inputs: Any, k: int, *, weights: str = "plain", classes: Tensor | None = None
    ) -> Explanation:
        begun = self.done
        ask = self.ask if weights == self.ask.weights else self.ask.weighing(weights)
        found = ask(inputs, k, classes=classes, update=lambda n: self.update(begun + n, what))
        self.done += len(inputs)
        return found


def _count(run: Run, test: Dataset | None, train: Dataset | None) -> int:
    """How many inputs are asked about."""
    joint = run.config.network.network == "class-independent"
    found = 0 if test is None else len(test) * (1 + joint)
    if train is not None and len(train):
        rows = _of_copies(train)
        copies = len(train) if rows is None else len(rows)
        twice = joint or run.config.network.network.startswith("class-conditional")
        found += len(train) * (1 + twice) + copies * len(train.modality.perturbed(train.inputs))
    return found


def _seconds(run: Run, data: Dataset | None, total: int) -> float:
    """How long asking about so many photographs takes, by a few mirrored ones; others are quick."""
    if data is None or len(data) < TRIED or not photograph_copies(data.shape):
        return 0.0
    ask, some = Attributor(run), data.images[:TRIED].flip(3)
    ask(some[: TRIED // 2], 1)
    began = time.perf_counter()
    ask(some[TRIED // 2 :], 1)
    return (time.perf_counter() - began) / (TRIED - TRIED // 2) * total


def _on_test(run: Run, test: Dataset | None, ask: _Questions) -> dict[str, Any]:
    none = wilson(0, 0)
    nothing = dict.fromkeys(KS, none)
    empty = {"class": none, "any": nothing, "majority": nothing, "supported": none, "extra": {}, "risk": ()}
    if test is None or len(test) == 0:
        return empty
    found = ask("test", test.inputs, max(KS))
    if run.samples.grouping is None:
        return {**empty, "supported": _rate(found.supported)}
    truth = test.samples.labels
    extra = {}
    if run.config.network.network == "class-independent":  # elsewhere joint and plain weights rank alike
        joint = ask("test, joint weights", test.inputs, 5, weights="joint")
        extra = {f"joint_any_at_{k}": _rate(any_at_k(joint.label, truth, k)) for k in (1, 5)}
    right = found.predicted == truth
    extra["accuracy_if_supported"] = _rate(right[found.supported])
    extra["accuracy_if_not"] = _rate(right[~found.supported])
    return {
        "class": _rate(right),
        "any": {k: _rate(any_at_k(found.label, truth, k)) for k in KS},
        "majority": {k: _rate(majority_at_k(found.label, truth, k)) for k in KS},
        "supported": _rate(found.supported),
        "extra": extra,
        "risk": risk_coverage(right, found.support),
    }


def risk_coverage(right: np.ndarray, support: np.ndarray, points: int = 20) -> tuple[tuple[float, float], ...]:
    """At some shares of answers (N,), those with the largest support first: the share, and how many of them are wrong.

    >>> risk_coverage(np.array([True, False, True, True]), np.array([0.9, 0.1, 0.8, 0.2]), points=2)
    ((0.5, 0.0), (1.0, 0.25))
    """
    wrong = np.cumsum(~right[np.argsort(-support, kind="stable")])
    counts = np.unique(np.ceil(len(right) * np.arange(1, points + 1) / points).astype(np.int64))
    return tuple((round(float(n / len(right)), 6), round(float(wrong[n - 1] / n), 6)) for n in counts)


def _on_train(run: Run, train: Dataset | None, own: np.ndarray, seed: int, ask: _Questions) -> dict[str, Any]:
    none = wilson(0, 0)
    if train is None or len(train) == 0:
        return {"index": none, "index_at_5": none, "perturbed": {}, "supported": none, "extra": {}}
    found = ask("training samples", train.inputs, 5)
    perturbed = {}
    rows = _of_copies(train)
    for name, copied in train.modality.perturbed(train.inputs).items():
        copies = copied(train.inputs if rows is None else train.inputs[rows], seed)
        truth = own if rows is None else own[rows.numpy()]
        perturbed[name] = _rate(index_hit(ask(name, copies, 1).index, truth))
    return {
        "index": _rate(index_hit(found.index, own)),
        "index_at_5": _rate(index_hit(found.index, own, 5)),
        "perturbed": perturbed,
        "supported": _rate(found.supported),
        "extra": _extra(run, train, own, found, seed, ask),
    }


COPIES = 500  # photographs of which changed copies are asked about
TRIED = 16  # of them that tell how long it will take


def _of_copies(train: Dataset) -> Tensor | None:
    """The samples whose copies are asked about: photographs take long, so some of them serve; None means all."""
    if len(train) <= COPIES or not photograph_copies(train.shape):
        return None
    return torch.arange(0, len(train), -(-len(train) // COPIES))


def _extra(
    run: Run, train: Dataset, own: np.ndarray, found: Explanation, seed: int, ask: _Questions
) -> dict[str, Interval]:
    """Figures that only some networks have; names as in the reading of the paper's appendix."""
    config, grouping = run.config.network, train.samples.grouping
    extra = {} if grouping is None else {"class_accuracy_train": _rate(found.predicted == grouping.of)}
    if config.network.startswith("class-conditional"):
        given = ask("its class given", train.inputs, 1, classes=torch.tensor(train.samples.labels))
        extra["stage_1"] = extra["class_accuracy_train"]
        extra["stage_2"] = _rate(index_hit(given.index, own))
        extra["end_to_end"] = _rate(index_hit(found.index, own))
    learned = run.network.index_head.learned_hits()
    if learned is not None:  # exact index accuracy is 100 % by construction: what did the keys learn?
        extra["index_accuracy_learned"] = wilson(*learned)
    if config.network == "class-independent" and grouping is not None:
        joint = ask("training samples, joint weights", train.inputs, 1, weights="joint")
        extra["joint_index_accuracy"] = _rate(index_hit(joint.index, own))
    if config.alpha > 0:
        drawn = TargetSampler(run.network.index_map, config.alpha).draw(seed, NEVER).numpy()[own]
        extra["index_accuracy_sampled_targets"] = _rate(index_hit(found.index, drawn))
    if run.samples.index_ceiling < 1:
        extra["index_accuracy_group"] = _rate(group_hit(found.index, own, run.samples.groups))
    return extra
