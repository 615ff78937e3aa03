"""How much of each answer's weight falls on each group of samples: one pass over all keys, no (B, N) memory for them.

The weights are those of an explanation: the index branch's shares over all samples (or over those of the predicted
class, where the head looks within it), not only those of the few samples that are shown. With `k` only the k best
count. Each query gives 1 in all.

Letters: B queries, N samples, G groups, S slots, C classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from provnet.attribution import all_weights, attribute
from provnet.equal import Equal
from provnet.models.exemplar import SCORES, ExemplarHead, unit
from provnet.models.provenance import ProvenanceNet, ProvenanceOutput


class Mass(NamedTuple):
    """Weights of a batch, summed.

    Attributes:
        by_group: (B, G) float64, each row adds up to 1; or to 0 where no sample may be named.
        by_sample: (N,) float64, summed over the queries that count.
        counts: (B,) bool, queries that are supported and have a sample that may be named.
        supported: (B,) bool.
    """

    by_group: Tensor
    by_sample: Tensor
    counts: Tensor
    supported: Tensor


@torch.no_grad()
def credit_mass(
    net: ProvenanceNet,
    images: Tensor,
    groups: Tensor,
    count: int,
    threshold: float,
    *,
    k: int = 0,
    weights: str,
    equal: Equal | None = None,
) -> Mass:
    """Weights of raw images (B, ...) by group; `groups` (N,) int64 gives the group of each sample, 0 to count - 1.

    Samples that are `equal`, see `equal.equal_slots`, share their weight, whatever their group.

    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2), IndexMap([1, 0, 1])).eval()
    >>> groups = torch.tensor([0, 0, 1])
    >>> credit_mass(net, torch.zeros(1, 4), groups, 2, -1e9, weights="plain").by_group.sum().item()
    1.0
    """
    output = net(images)
    best = attribute(net, output, max(k, 1), weights, equal)  # refuses what is not finite
    supported = best.support >= threshold
    if k > 0:
        return _of_slots(best.index, best.weight, groups, count, supported)
    if output.index_scores is None:
        return _of_keys(net, output, groups, count, supported, joint=weights == "joint")
    return _of_slots(*all_weights(net, output, weights, equal), groups, count, supported)


def _of_keys(
    net: ProvenanceNet, output: ProvenanceOutput, groups: Tensor, count: int, supported: Tensor, *, joint: bool
) -> Mass:
    head = net.index_head
    assert isinstance(head, ExemplarHead)
    labels, queries = head.index_map.labels, unit(output.index_features)
    totals = head.class_totals(output.index_features).masked_fill(head.index_map.sizes == 0, -torch.inf)
    bias = _bias(totals, output, within=head.conditional, joint=joint)
    counts = supported & torch.isfinite(bias).any(1)
    by_group = torch.zeros(len(queries), count, dtype=torch.float64, device=queries.device)
    by_sample = torch.zeros(len(groups), dtype=torch.float64, device=queries.device)
    size = max(1, SCORES[queries.device.type] // max(len(queries), 1))
    for start in range(0, len(groups), size):
        keys = head.bank.unpacked(slice(start, start + size))
        index = head.order[start : start + len(keys)]
        shares = (head.scale * (queries @ keys.t()) + bias[:, labels[index]]).exp().double()
        by_group.index_add_(1, groups[index], shares)
        by_sample[index] = counts.double() @ shares
    return Mass(_whole(by_group), by_sample, counts, supported)


def _bias(totals: Tensor, output: ProvenanceOutput, *, within: bool, joint: bool) -> Tensor:
    """(B, C) what turns the scores of a class into logs of shares; -inf where a class has no part."""
    if within:
        chosen = torch.zeros_like(totals, dtype=torch.bool).scatter_(1, output.classes.unsqueeze(1), True)
        return (-totals).where(chosen & torch.isfinite(totals), -torch.inf)
    if joint:
        log_class = torch.log_softmax(output.logits.float(), 1).masked_fill(~torch.isfinite(totals), -torch.inf)
        bias = torch.log_softmax(log_class, 1) - totals
        return bias.where(torch.isfinite(totals), -torch.inf)
    return (-totals.logsumexp(1, keepdim=True)).expand_as(totals)


def _of_slots(index: Tensor, weight: Tensor, groups: Tensor, count: int, supported: Tensor) -> Mass:
    """From (B, S) samples, -1 where there is none, and their weights."""
    there = index >= 0
    shares = _whole(weight.double().where(there, 0.0))
    index = index.clamp(min=0)
    counts = supported & there.any(1)
    by_group = torch.zeros(len(index), count, dtype=torch.float64, device=index.device)
    by_group.scatter_add_(1, groups[index], shares)
    by_sample = torch.zeros(len(groups), dtype=torch.float64, device=index.device)
    by_sample.index_add_(0, index.flatten(), (shares * counts.unsqueeze(1)).flatten())
    return Mass(by_group, by_sample, counts, supported)


def _whole(shares: Tensor) -> Tensor:
    """Rows that add up to 1, but for rounding at most, or to 0."""
    total = shares.sum(1, keepdim=True)
    return shares / total.where(total > 0, 1.0)
