"""Attributor: the one way to ask a run.

It does once what every question needs: withheld samples are unknown to the network, equal samples share their weight,
the network is in evaluation mode and on its device, inputs go through it a few at a time, scores that are not finite
are an error (`argmax` of a row of NaN returns 0: a confident-looking false attribution), and what a head counts becomes
samples of the run's table. Nothing else in provnet makes a sample of what a head says; `tests/test_one_way.py` looks.

Letters: B queries, C classes, K exemplars, N samples of the run, G groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from provnet.answers.explanation import Explanation
from provnet.base.batches import MOST, Inputs, all_finite, at_once, is_matrix, split
from provnet.base.errors import NonFiniteError, UsageError, one_of
from provnet.heads.scores import Equal, Mass, Match, Scores, Spread, mass_of
from provnet.influence.keys import Influence
from provnet.influence.of_run import influence as influence_of_run
from provnet.models.keys import restrict_network
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.runs.inputs import Fitted, inputs_of, range_problem, raw_tensor, run_of, whole_number
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable

MOST_BYTES = 64_000_000  # of inputs that are kept to be drawn
Columns = Mapping[str, Tensor]
Pass = Callable[[ProvenanceNet, Any, Tensor | None], ProvenanceOutput]


def _look(net: ProvenanceNet, inputs: Any, classes: Tensor | None) -> ProvenanceOutput:
    output: ProvenanceOutput = net(inputs, classes)
    return output


@final
class Answered:
    """What a network says of a batch. Samples are those of the run's table, whatever the head knows of them."""

    def __init__(self, output: ProvenanceOutput, by: Attributor, asked: Tensor | None = None) -> None:
        self._output, self._by, self._asked = output, by, asked

    @cached_property
    def _scores(self) -> Scores:
        by = self._by
        return by.network.scores(self._output, joint=by.weights == "joint", equal=by.equal)

    @property
    def logits(self) -> Tensor:
        """(B, C) class scores in fp32."""
        return self._output.logits.float()

    @property
    def classes(self) -> Tensor:
        """(B,) the classes that the index branch was conditioned on."""
        return self._output.classes

    @property
    def support_features(self) -> Tensor:
        """(B, D) features that support is measured by, in fp32."""
        return self._output.support_features.float()

    def alike(self) -> Tensor:
        """(B, D) features by which samples are compared: the keys' own, else the backbone's."""
        return self._by.network.index_head.alike(self._output.index_features, self._output.support_features)

    def placed(self) -> Tensor:
        """(B, D) the last hidden layer of the index branch in fp32; of length one where there are keys."""
        return self._by.network.index_head.placed(self._output.index_features.float())

    def best(self, k: int) -> Attribution:
        """The k samples with the largest weight, and class, confidence and support."""
        found = attribute(self._by.network, self._output, k, self._by.shares, self._by.equal)
        found = replace(found, index=self._by._named(found.index))
        return found if self._asked is None else self._by._depends(found, self._asked, k)

    def weight(self, index: Tensor) -> Tensor:
        """(B, L) int64 samples -> (B, L) their weights, however far down they stand; 0 where one is withheld."""
        check_samples(index, len(self.logits), self._by.count)
        place = self._by._places(index)
        if self._asked is not None:
            found = self._by.influence.scored(self._asked).gather(1, index)
            return found.where(place >= 0, 0.0)
        found = weights_of(self._by.network, self._output, place.clamp(min=0), self._by.weights, self._by.equal)
        return found.where(place >= 0, 0.0)

    def credit(self, groups: Tensor, count: int, threshold: float, k: int = 0) -> tuple[Mass, Tensor]:
        """Weights by group, and (B,) whether supported; `groups` (N,) int64 has that of each sample, 0 to count - 1.

        With `k` only the k largest weights of each query. Queries that are not supported do not count.
        """
        best = self.best(max(k, 1))  # refuses what is not finite
        supported = best.support >= threshold
        if self._asked is not None:
            return self._by._credited(self._asked, groups, count, supported, k), supported
        if k > 0:
            return mass_of(best.index, best.weight, groups, count, supported), supported
        found = self._scores.mass(self._by._of_known(groups), count, supported)
        return found._replace(by_sample=self._by._of_all(found.by_sample)), supported

    def ranking(self, index: Tensor) -> Tensor:
        """(n,) samples, none withheld -> (B, n) what they are ordered by; NaN outside of the class looked at."""
        return self._scores.ranking(self._by._places(index.to(self.logits.device)))

    def entropy(self) -> Tensor:
        """(B,) entropy of the index branch's shares, as a share of that of equal ones; equal samples stay apart."""
        return self._by.network.scores(self._output).entropy()

    def spread(self) -> Spread:
        """(B,) largest weight, and entropy in nats."""
        return self._scores.spread()

    def match(self) -> Match:
        """(B,) similarity of the best match before it becomes a weight, and how far it stands out."""
        return self._scores.match()


@final
class Attributor:
    """Asks a run, or a network without a run, which names samples by position.

    `weights` are the index branch's own shares; or `joint`: P(class) times the share within the sample's class; or
    `influence`: how much the answer depends on a sample, of either sign (`provnet.influence`). For a network without a
    run, `samples` says which samples are equal.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> ask = Attributor(fit(data, config=train_config(epochs=1)))
    >>> ask(data.images[:3], k=2).index.shape
    (3, 2)
    >>> {name: tuple(one.shape) for name, one in ask.each(data.images, lambda x: {"entropy": x.entropy()}).items()}
    {'entropy': (40,)}
    """

    def __init__(
        self, run: Run | Fitted | ProvenanceNet, weights: str = "plain", *, samples: SampleTable | None = None
    ) -> None:
        self.weights = one_of("weights", weights, WEIGHTS)
        self._run: Run | None = None
        self._kept: Tensor | None = None
        self._equal: dict[str, Equal | None] = {}
        if isinstance(run, ProvenanceNet):
            self.network, self._samples, self.count = run, samples, run.index_map.n
        else:
            self._run = run_of(run)
            self._samples, self.count = self._run.samples, len(self._run.samples)
            self.network, kept = _active(self._run)
            self._kept = None if kept is None else kept.to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return next(self.network.parameters()).device

    @property
    def shares(self) -> str:
        """Which shares of the index branch are asked for; with influence its own stand beside."""
        return "plain" if self.weights == INFLUENCE else self.weights

    @property
    def influence(self) -> Influence:
        """What the influence of the run's samples is computed from."""
        if self._run is None:
            raise UsageError("influence is that of a run's samples; give the run, not its network alone")
        return influence_of_run(self._run)

    @property
    def equal(self) -> Equal | None:
        """The slots of equal samples, computed once."""
        if self.weights not in self._equal:
            joint = self.weights == "joint" and self.network.task_head is not None
            known = None if self._samples is None else self.network.index_head.equal(self._samples, joint=joint)
            self._equal[self.weights] = known
        return self._equal[self.weights]

    def weighing(self, weights: str) -> Attributor:
        """The same with other weights; the network is shared."""
        other = copy(self)
        other.weights = one_of("weights", weights, WEIGHTS)
        return other

    def __call__(
        self,
        inputs: Inputs,
        k: int,
        *,
        classes: Tensor | None = None,
        batch_size: int | None = None,
        shape: Sequence[int] | None = None,
        update: Callable[[int], None] | None = None,
        how: Pass = _look,
    ) -> Explanation:
        """Explain raw inputs (B, ...) by k samples each; the arguments as in `each`."""
        assert self._run is not None, "a network alone has no table of samples"
        k = whole_number("k", k)
        given: dict[str, Any] = {"classes": classes, "batch_size": batch_size, "shape": shape, "update": update}
        found = self.each(inputs, lambda answered: vars(answered.best(k)), how=how, **given)
        columns: dict[str, Any] = {name: column.cpu().numpy() for name, column in found.items()}
        supported = columns["support"] >= self._run.config.threshold
        unit = self.weights == INFLUENCE and self.influence.unit is not None
        return Explanation(**columns, supported=supported, samples=self._run.samples, in_log_odds=unit)

    def each(
        self,
        inputs: Inputs,
        read: Callable[[Answered], Columns],
        *,
        classes: Tensor | None = None,
        batch_size: int | None = None,
        most: int = MOST,
        shape: Sequence[int] | None = None,
        update: Callable[[int], None] | None = None,
        how: Pass = _look,
    ) -> dict[str, Tensor]:
        """Ask about raw inputs (B, ...) in batches, and concatenate the columns that `read` makes of each batch.

        `classes` (B,) are what the index branch is conditioned on. `batch_size` inputs go through the network at a
        time; None chooses by their `shape`, `most` where they are small. `how` is the pass through the network.
        `update` is told how many are done. Columns stay where `read` leaves them.
        """
        size = self.at_once(inputs.shape[1:] if shape is None else shape, batch_size, most)
        parts = split(inputs, size)
        given = [None] * len(parts) if classes is None else split(classes, size)
        return self.over(zip(parts, given, strict=True), read, update=update, how=how)

    def over(
        self,
        batches: Iterable[tuple[Inputs, Tensor | None]],
        read: Callable[[Answered], Columns],
        *,
        update: Callable[[int], None] | None = None,
        how: Pass = _look,
    ) -> dict[str, Tensor]:
        """The same for batches of the caller: inputs with classes or None."""
        self.network.eval()
        parts, done, device = [], 0, self.device
        for inputs, classes in batches:
            with torch.inference_mode():
                given = None if classes is None else classes.to(device)
                output = how(self.network, inputs.to(device), given)
            asked = self.influence.queries(inputs, output.classes) if self.weights == INFLUENCE else None
            with torch.inference_mode():
                parts.append(read(Answered(output, self, asked)))
            done += len(inputs)
            if update is not None:
                update(done)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def at_once(self, shape: Sequence[int], batch_size: int | None = None, most: int = MOST) -> int:
        """How many inputs of a shape go through the network at a time."""
        return at_once(shape, self.device.type, most) if batch_size is None else whole_number("batch_size", batch_size)

    # between the samples of the table and those that the network knows: these are all others without the withheld

    def _named(self, index: Tensor) -> Tensor:
        """Samples as the network counts them, -1 for none -> samples of the table."""
        return index if self._kept is None else self._kept[index.clamp(min=0)].where(index >= 0, -1)

    def _places(self, index: Tensor) -> Tensor:
        """Samples of the table -> as the network counts them, -1 where one is withheld."""
        if self._kept is None:
            return index
        place = torch.searchsorted(self._kept, index.contiguous()).clamp(max=len(self._kept) - 1)
        return place.where(self._kept[place] == index, -1)

    def _sure(self, asked: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N) influence, and whether it is surely above chance; of a withheld sample never."""
        scores = self.influence.scored(asked)
        sure = scores > self.influence.chance(asked)[:, None]
        if self._kept is not None:
            named = torch.zeros(self.count, dtype=torch.bool, device=sure.device)
            named[self._kept] = True
            sure = sure & named
        return scores, sure

    def _depends(self, found: Attribution, asked: Tensor, k: int) -> Attribution:
        """With the k samples that the answers surely depend on most in place of those recognised; -1 where fewer do."""
        scores, sure = self._sure(asked)
        _refuse_not_finite(torch.isfinite(scores).all(1))
        best = scores.where(sure, -torch.inf).sort(dim=1, descending=True, stable=True)
        weight, index = best.values[:, :k], best.indices[:, :k]
        there = weight > -torch.inf
        low, high = self.influence.interval(asked, index)
        named = {"index": index.where(there, -1), "weight": weight.where(there, 0.0)}
        return Dependence(
            **{**vars(found), **named},
            low=low.where(there, 0.0),
            high=high.where(there, 0.0),
            recognised_index=found.index,
            recognised_weight=found.weight,
        )

    def _credited(self, asked: Tensor, groups: Tensor, count: int, supported: Tensor, k: int) -> Mass:
        """Shares of the samples that are surely above chance, of the k first or of all."""
        scores, sure = self._sure(asked)
        if k > 0:
            sure = sure & (scores >= scores.where(sure, -torch.inf).topk(min(k, self.count), 1).values[:, -1:])
        every = torch.arange(self.count, device=scores.device).expand_as(scores)
        return mass_of(every.where(sure, -1), scores.where(sure, 0.0), groups.to(scores.device), count, supported)

    def _of_known(self, values: Tensor) -> Tensor:
        """(N, ...) of the table -> those of samples that the network knows."""
        return values if self._kept is None else values[self._kept]

    def _of_all(self, values: Tensor) -> Tensor:
        """The inverse; 0 for withheld samples."""
        if self._kept is None:
            return values
        return values.new_zeros(self.count).index_copy_(0, self._kept, values)


def _active(run: Run) -> tuple[ProvenanceNet, Tensor | None]:
    """The run's network, and None; or where samples are withheld one that does not know their keys, and the others.

    The second is (n,) int64, the index of each sample that may be named. It costs a copy of the keys.
    """
    if not run.samples.withheld.any():
        return run.network, None
    kept = torch.from_numpy(np.flatnonzero(~run.samples.withheld))
    if len(kept) == 0:
        raise UsageError(
            "every sample of this run is withheld, so none can be named; restore some: see provnet.runs.bank"
        )
    return restrict_network(run.network, kept), kept


def explain(
    run: Run | Fitted,
    images: Any,
    *,
    k: int = 5,
    classes: Tensor | np.ndarray | None = None,
    batch_size: int | None = None,
    weights: str = "plain",
    warn: bool = True,
) -> Explanation:
    """Explain raw samples (B, ...) of the run's input shape, a Dataset or a DataFrame; k above N is cut to N.

    `run` may be a fitted classifier, as `provnet.load` gives it. Withheld samples are never named.

    With `classes` (B,) a class-conditional network looks among the samples of these classes instead of the predicted
    ones. Pictures whose values cannot lie in the range trained on (0..1 where bytes were) get a UserWarning, unless
    `warn` is False because they were looked at before. `weights` are the index branch's own shares, or `joint`:
    P(class) times the share within the sample's class. `batch_size` inputs go through the network at a time; None
    chooses by their size (`provnet.base.batches`).

    >>> from provnet.training.fit import fit
    >>> from provnet.training.config import train_config
    >>> import provnet
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> run = fit(data, config=train_config(epochs=1))
    >>> explain(run, data.images[:3], k=2).index.shape
    (3, 2)
    """
    run = run_of(run)
    queries = _queries(run, images)
    problem = range_problem(run.config.network, queries) if warn else None
    if problem is not None:
        warnings.warn(problem, UserWarning, stacklevel=2)
    given = None if classes is None else _classes(run, classes, len(queries))
    found = Attributor(run, weights)(queries, k, classes=given, batch_size=batch_size)
    small = isinstance(queries, Tensor) and queries.nbytes <= MOST_BYTES
    return replace(found, images=queries.clone() if small else None)  # the caller may reuse its tensor


def scores(run: Run | Fitted, inputs: Any, weights: str = "plain") -> np.ndarray:
    """(Q, N) the weight of every training sample for each input; column j is the sample with index j, 0 if withheld.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> scores(fit(data, train_config(epochs=1)), data.images[:3]).shape
    (3, 40)
    """
    run = run_of(run)
    queries = _queries(run, inputs)
    ask = Attributor(run, weights)
    every = torch.arange(ask.count, device=ask.device).unsqueeze(0)

    def read(answered: Answered) -> Columns:
        return {"weight": answered.weight(every.expand(len(answered.logits), -1)).cpu()}

    return np.asarray(ask.each(queries, read)["weight"].numpy())


def _queries(run: Run, images: Any) -> Any:
    queries = inputs_of(run.config, images, getattr(run.network.normalise, "modality", None))
    if not all_finite(queries):
        raise NonFiniteError("the input holds NaN or infinite values; no sample can be named")
    if 0 in queries.shape:
        raise UsageError("no inputs were given; give at least one")
    return queries


def _classes(run: Run, given: Tensor | np.ndarray, n: int) -> Tensor:
    """The classes asked for; those that the index branch cannot be conditioned on are refused."""
    classes: Tensor = raw_tensor(given).cpu()
    if not run.config.network.network.startswith("class-conditional"):
        raise UsageError(f'classes= is for class-conditional networks; this one is "{run.config.network.network}"')
    if classes.shape != (n,) or classes.dtype != torch.int64:
        raise UsageError(
            f"classes must be int64, one for each of {n} inputs; got {classes.dtype} {tuple(classes.shape)}"
        )
    sizes = torch.bincount(torch.tensor(run.samples.labels), minlength=len(run.samples.class_names))
    known = (classes >= 0) & (classes < len(sizes))
    if not bool((known & (sizes[classes.clamp(0, len(sizes) - 1)] > 0)).all()):
        raise UsageError(f"classes must lie in 0..{len(sizes) - 1} and have training samples")
    return classes


@dataclass(frozen=True)
class Attribution:
    """What a batch is attributed to.

    Attributes:
        predicted: (B,) int64 class.
        confidence: (B,) probability of that class.
        index: (B, K) int64 training samples, best first; -1 where a class has fewer than K samples.
        weight: (B, K) share of the index branch's probability; 0 where index is -1. Joint weights are P(class) times
            the share within the sample's class; a head that looks within the predicted class alone leaves P(class) out.
        support: (B,) minus the distance from the training samples of the predicted class, of pictures also by their
            looks, see `models.support`; compared with a calibrated threshold.
    """

    predicted: Tensor
    confidence: Tensor
    index: Tensor
    weight: Tensor
    support: Tensor


@dataclass(frozen=True)
class Dependence(Attribution):
    """What the answers of a batch depend on: index -1 and weight 0 where no more samples are surely above chance.

    Attributes:
        low, high: (B, K) ends of the 95 % intervals of the weights; infinite where there is one snapshot alone.
        recognised_index, recognised_weight: (B, K) the samples that are recognised, with their shares.
    """

    low: Tensor
    high: Tensor
    recognised_index: Tensor
    recognised_weight: Tensor


def attribute(
    net: ProvenanceNet, output: ProvenanceOutput, k: int, weights: str = "plain", equal: Equal | None = None
) -> Attribution:
    """Turn a network's output into training samples with weights; NaN or infinity is an error, never an index.

    With `equal`, see `IndexHead.equal`, equal samples share their weight.
    """
    if k < 1:
        raise UsageError(f"k must be 1 or more, got {k}")
    one_of("weights", weights, SHARES)
    support = net.support(output.support_features, output.classes, output.looks)
    scores = net.scores(output, joint=weights == "joint", equal=equal)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & scores.finite() & torch.isfinite(support))
    found = scores.best(min(k, net.index_map.n))
    weight = found.log_share.exp().where(found.index >= 0, 0.0)
    _refuse_not_finite(torch.isfinite(weight).all(1))
    answers = net.task.answer(output.logits)
    return Attribution(
        predicted=answers.what,
        confidence=answers.sure,
        index=found.index,
        weight=weight,
        support=support,
    )


def weights_of(
    net: ProvenanceNet, output: ProvenanceOutput, index: Tensor, weights: str = "plain", equal: Equal | None = None
) -> Tensor:
    """(B, L) int64 samples -> (B, L) the weights that `attribute` gives them, however far down they stand.

    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2), IndexMap([1, 0, 1])).eval()
    >>> round(weights_of(net, net(torch.zeros(1, 4)), torch.tensor([[0, 1, 2]])).sum().item(), 5)
    1.0
    """
    one_of("weights", weights, SHARES)
    check_samples(index, len(output.logits), net.index_head.index_map.n)
    scores = net.scores(output, joint=weights == "joint", equal=equal)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & scores.finite())
    logs = scores.of(index)
    found = logs.clamp(max=0.0).exp()
    _refuse_not_finite(torch.isfinite(found).all(1))
    return found


def check_samples(index: Tensor, rows: int, n: int) -> None:
    """Samples are asked for by position, counted from 0: -1 stands for "none" elsewhere, never for the last."""
    if index.dtype != torch.int64 or not is_matrix(index) or len(index) != rows:
        given = f"{index.dtype} of shape {tuple(index.shape)}"
        raise UsageError(f"index must be int64 of shape ({rows}, L), a row of samples for each input; got {given}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
        given = f"{int(index.min())}..{int(index.max())}"
        raise UsageError(f"index must lie in 0..{n - 1}, the samples of this network; got {given}")


def _refuse_not_finite(finite: Tensor) -> None:
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the scores of input {row} of the batch are not finite: no sample can be named. "
            "Check the input's values and the model's weights (provnet verify)"
        )


INFLUENCE = "influence"
SHARES = ("plain", "joint")  # of the index branch
WEIGHTS = (*SHARES, INFLUENCE)
