"""Equal pictures share their weight: an output layer tells them apart by chance alone.

A network sees no difference between samples whose pictures are equal, pixel by pixel, yet an output layer has a neuron
for each, and how their weight falls on these neurons is how training happened to go. So each gets the mean of its
group. An exemplar head needs none of this: equal pictures have equal keys.

Letters: B queries, S slots, N samples.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from provnet.data.identity import SampleTable
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import ProvenanceNet


def equal_groups(net: ProvenanceNet, samples: SampleTable, weights: str) -> Tensor | None:
    """(N,) int64: the number of each sample's group, -1 where it is alone; None where nothing is to be shared.

    Joint weights know the class from a branch of its own: there samples are equal only where their labels are, too.

    >>> import provnet
    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> samples = provnet.open_data("embedded", limit=20).samples
    >>> net = build(NetworkConfig("single", "mlp", (1, 28, 28), classes=10), IndexMap(samples.labels))
    >>> equal_groups(net, samples, "plain") is None
    True
    """
    if isinstance(net.index_head, ExemplarHead):
        return None
    numbers = samples.groups
    if weights == "joint" and net.task_head is not None:
        numbers = np.unique(numbers * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    several = np.bincount(numbers) > 1
    if not several.any():
        return None
    renumbered = np.where(several, np.cumsum(several) - 1, -1)
    return torch.from_numpy(renumbered[numbers]).to(net.index_map.labels.device)


def shared(scores: Tensor, groups: Tensor) -> Tensor:
    """Scores (B, S) whose softmax is the same but within groups (B, S), where every slot gets the mean; -1: alone.

    >>> shared(torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log(), torch.tensor([[0, -1, 0, -1]])).exp()
    tensor([[0.3250, 0.2500, 0.3250, 0.1000]])
    """
    last = int(groups.max()) + 1
    place = groups.where(groups >= 0, last)  # one more column for all that are alone
    wide = scores.new_zeros(len(scores), last + 1)
    top = torch.full_like(wide, -torch.inf).scatter_reduce_(1, place, scores, "amax")  # of each group: no underflow
    sums = wide.scatter_add(1, place, (scores - top.gather(1, place)).exp())
    count = wide.scatter_add(1, place, torch.ones_like(scores))
    return scores.where(groups < 0, (top + (sums / count).log()).gather(1, place))
