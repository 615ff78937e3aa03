"""From scores to attributions: the one path, and it checks that every score is finite.

`argmax` and `topk` of a row of NaN return 0, 1, 2: a confident-looking false attribution. So nothing else in provnet
turns scores into samples.

Letters: B batch, K exemplars, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.base.errors import NonFiniteError, UsageError, one_of
from provnet.heads.exemplar import ExemplarHead, unit
from provnet.heads.retrieval import MARGIN, Ranked, TopK, in_order, ranks_of, rows_of
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.samples.identity import SampleTable


@dataclass(frozen=True)
class Equal:
    """Which slots of an output layer stand for equal samples.

    Attributes:
        slots: (R, D) int64; -1 where a class has fewer.
        groups: (R, D) int64, the same number for equal samples.
        most: how many the largest group has.
    """

    slots: Tensor
    groups: Tensor
    most: int


def equal_slots(net: ProvenanceNet, samples: SampleTable, weights: str) -> Equal | None:
    """The slots of samples that share their weight; None where there are none, or keys instead of an output layer.

    Joint weights know the class from a branch of its own: there samples are equal only where their labels are, too.

    >>> import provnet
    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> samples = provnet.open_data("embedded", limit=20).samples
    >>> net = build(NetworkConfig("single", "mlp", (1, 28, 28), classes=10), IndexMap(samples.labels))
    >>> equal_slots(net, samples, "plain") is None
    True
    """
    head = net.index_head
    if isinstance(head, ExemplarHead):
        return None
    device = net.index_map.labels.device
    within = head.valid(torch.zeros(1, dtype=torch.int64, device=device)) is not None
    numbers = samples.groups
    if within or (weights == "joint" and net.task_head is not None):
        numbers = np.unique(numbers * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(numbers)
    members = np.flatnonzero(counts[numbers] > 1)
    if not len(members):
        return None
    slot = head.to_slot(torch.from_numpy(members).to(device)).cpu().numpy()
    row = samples.labels[members] if within else np.zeros_like(members)
    order = np.argsort(row, kind="stable")
    sizes = np.bincount(row, minlength=len(samples.class_names) if within else 1)
    place = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slots, groups = (np.full((len(sizes), int(sizes.max())), -1, dtype=np.int64) for _ in range(2))
    slots[row[order], place] = slot[order]
    groups[row[order], place] = np.unique(numbers[members], return_inverse=True)[1].reshape(-1)[order]
    return Equal(torch.from_numpy(slots).to(device), torch.from_numpy(groups).to(device), int(counts.max()))


def shared(scores: Tensor, classes: Tensor, equal: Equal) -> Tensor:
    """Scores (B, S) whose softmax is the same, but that equal samples have the mean of theirs; a copy.

    >>> equal = Equal(torch.tensor([[0, 2]]), torch.tensor([[7, 7]]), 2)
    >>> shared(torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log(), torch.tensor([0]), equal).exp()
    tensor([[0.3250, 0.2500, 0.3250, 0.1000]])
    """
    row = classes if len(equal.slots) > 1 else torch.zeros_like(classes)
    slots, groups = equal.slots[row], equal.groups[row]  # (B, D)
    there = slots >= 0
    means = group_means(scores.gather(1, slots.clamp(min=0)), groups)
    return scores.index_put((there.nonzero()[:, 0], slots[there]), means[there])


def group_means(scores: Tensor, groups: Tensor) -> Tensor:
    """(B, D) scores -> the logarithm of the mean of exp(score) over the same group of the row; -1 is a group, too.

    >>> group_means(torch.tensor([[1.0, 3.0, 5.0]]).log(), torch.tensor([[4, 4, 9]])).exp().round(decimals=3)
    tensor([[2., 2., 5.]])
    """
    place = groups - groups.min()
    wide = scores.new_zeros(len(scores), int(place.max()) + 1)
    top = torch.full_like(wide, -torch.inf).scatter_reduce_(1, place, scores, "amax")  # of each group: no underflow
    sums = wide.scatter_add(1, place, (scores - top.gather(1, place)).exp())
    count = wide.scatter_add(1, place, torch.ones_like(scores))
    return (top + (sums / count).log()).gather(1, place)


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


def attribute(
    net: ProvenanceNet, output: ProvenanceOutput, k: int, weights: str = "plain", equal: Equal | None = None
) -> Attribution:
    """Turn a network's output into training samples with weights; NaN or infinity is an error, never an index.

    With `equal`, see `equal.equal_slots`, equal samples share their weight.
    """
    if k < 1:
        raise UsageError(f"k must be 1 or more, got {k}")
    one_of("weights", weights, WEIGHTS)
    support = net.support(output.support_features, output.classes, output.looks)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & _finite_scores(net, output) & torch.isfinite(support))
    log_class = torch.log_softmax(output.logits.float(), 1)
    joint = log_class if weights == "joint" else None
    if output.index_scores is None:
        assert isinstance(net.index_head, ExemplarHead)
        found = net.index_head.best(output.index_features, output.classes, min(k, net.index_map.n), joint)
    else:
        found = _best_of_scores(net, _comparable(net, output, joint, equal), output.classes, k, equal)
    weight = found.log_share.exp().where(found.index >= 0, 0.0)
    _refuse_not_finite(torch.isfinite(weight).all(1))
    predicted = output.logits.argmax(1)  # as the index branch was told; probabilities may tie where scores do not
    return Attribution(
        predicted=predicted,
        confidence=log_class.gather(1, predicted.unsqueeze(1)).squeeze(1).exp(),
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
    one_of("weights", weights, WEIGHTS)
    _check_samples(index, len(output.logits), net.index_head.index_map.n)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & _finite_scores(net, output))
    head = net.index_head
    joint = torch.log_softmax(output.logits.float(), 1) if weights == "joint" else None
    if output.index_scores is None:
        assert isinstance(head, ExemplarHead)
        logs = _log_shares_of_keys(head, output, index, joint)
    else:
        scores = _comparable(net, output, joint, equal)
        logs = scores.gather(1, head.to_slot(index)) - scores.logsumexp(1, keepdim=True)
    if head.valid(output.classes) is not None:  # samples of other classes were not looked at
        logs = logs.masked_fill(head.index_map.labels[index] != output.classes.unsqueeze(1), -torch.inf)
    found = logs.clamp(max=0.0).exp()
    _refuse_not_finite(torch.isfinite(found).all(1))
    return found


def _check_samples(index: Tensor, rows: int, n: int) -> None:
    """Samples are asked for by position, counted from 0: -1 stands for "none" elsewhere, never for the last."""
    if index.dtype != torch.int64 or index.ndim != 2 or len(index) != rows:
        given = f"{index.dtype} of shape {tuple(index.shape)}"
        raise UsageError(f"index must be int64 of shape ({rows}, L), a row of samples for each input; got {given}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
        given = f"{int(index.min())}..{int(index.max())}"
        raise UsageError(f"index must lie in 0..{n - 1}, the samples of this network; got {given}")


def _log_shares_of_keys(
    head: ExemplarHead, output: ProvenanceOutput, index: Tensor, log_class: Tensor | None
) -> Tensor:
    """(B, L) logs of the shares of some keys; one pass over all keys for what they are shares of."""
    totals = head.class_totals(output.index_features)
    if head.conditional:
        whole = totals.gather(1, output.classes.unsqueeze(1))
    elif log_class is not None:
        whole = (totals - log_class).gather(1, head.index_map.labels[index])
    else:
        whole = totals.logsumexp(1, keepdim=True)
    keys = head.bank.unpacked(head.rows[index])  # (B, L, D)
    return head.scale * (keys @ unit(output.index_features).unsqueeze(2)).squeeze(2) - whole


def _finite_scores(net: ProvenanceNet, output: ProvenanceOutput) -> Tensor:
    """(B,) whether every score that names a sample is finite."""
    if output.index_scores is None:
        return torch.isfinite(output.index_features).all(1)
    valid = net.index_head.valid(output.classes)
    fine = torch.isfinite(output.index_scores)
    return (fine if valid is None else fine | ~valid).all(1)


def _refuse_not_finite(finite: Tensor) -> None:
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the scores of input {row} of the batch are not finite: no sample can be named. "
            "Check the input's values and the model's weights (provnet verify)"
        )


def _best_of_scores(net: ProvenanceNet, scores: Tensor, classes: Tensor, k: int, equal: Equal | None) -> Ranked:
    """The best of comparable scores (B, slots), as logs of their shares; of equal scores the lower slot first."""
    count, slots = min(k, scores.shape[1]), scores.shape[1]
    some = TopK(*scores.topk(min(count + MARGIN + (0 if equal is None else equal.most - 1), slots), dim=1))
    best = in_order(some.score, some.row, count)
    last = best.score[:, -1]
    cut = (some.score[:, -1] == last) & torch.isfinite(last)  # `topk` chose among equal ones as it liked
    if some.row.shape[1] < slots and bool(cut.any()):
        best.row[cut] = rows_of(ranks_of(scores[cut], torch.arange(slots, device=scores.device)).topk(count, 1).values)
    real = torch.isfinite(best.score)
    index = net.index_head.to_index(best.row.where(real, best.row[:, :1]), classes).where(real, -1)
    return Ranked(index, (best.score - scores.logsumexp(1, keepdim=True)).clamp(max=0.0))


def all_weights(
    net: ProvenanceNet, output: ProvenanceOutput, weights: str, equal: Equal | None = None
) -> tuple[Tensor, Tensor]:
    """(B, slots) samples of an output layer, -1 where a slot has none, and the weights that `attribute` gives them."""
    joint = torch.log_softmax(output.logits.float(), 1) if weights == "joint" else None
    return _samples_of_slots(net, output), _comparable(net, output, joint, equal).softmax(1)


def _samples_of_slots(net: ProvenanceNet, output: ProvenanceOutput) -> Tensor:
    assert output.index_scores is not None
    slots = torch.arange(output.index_scores.shape[1], device=output.logits.device).expand_as(output.index_scores)
    valid = net.index_head.valid(output.classes)
    if valid is None:
        return net.index_head.to_index(slots, output.classes)
    return net.index_head.to_index(slots.where(valid, 0), output.classes).where(valid, -1)


def _comparable(net: ProvenanceNet, output: ProvenanceOutput, log_class: Tensor | None, equal: Equal | None) -> Tensor:
    """Scores (B, slots) whose softmax are the weights: -inf outside of the class that is looked at, joint if asked."""
    assert output.index_scores is not None
    scores, valid = output.index_scores.float(), net.index_head.valid(output.classes)
    if valid is not None:  # within one class: P(class) would be a common factor
        scores = scores.masked_fill(~valid, -torch.inf)
    elif log_class is not None:
        scores = joint_scores(scores, net.index_map.labels, log_class)
    return scores if equal is None else shared(scores, output.classes, equal)


def joint_scores(scores: Tensor, labels: Tensor, log_class: Tensor) -> Tensor:
    """Scores (B, N) of samples with labels (N,) as logs of P(class) (B, C) times the share within the class.

    >>> log_class = torch.tensor([[0.25, 0.75]]).log()
    >>> joint_scores(torch.tensor([[0.0, 0.0, -500.0]]), torch.tensor([0, 0, 1]), log_class).exp()
    tensor([[0.1250, 0.1250, 0.7500]])
    """
    each = labels.expand_as(scores)
    top = torch.full_like(log_class, -torch.inf).scatter_reduce_(1, each, scores, "amax")  # of each class: no underflow
    within = scores - top[:, labels]
    sums = torch.zeros_like(log_class).scatter_add_(1, each, within.exp())
    return within + (log_class - sums.log())[:, labels]


WEIGHTS = ("plain", "joint")
