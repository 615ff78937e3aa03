"""Equal pictures share their weight: an output layer tells them apart by chance alone.

A network sees no difference between samples whose pictures are equal, pixel by pixel, yet an output layer has a neuron
for each, and how their weight falls on these neurons is how training happened to go. So each gets the mean of its
group. An exemplar head needs none of this: at the end of training equal pictures get one key (`training.keys`), and a
picture that the bank of a run has already is not added to it.

Letters: B queries, S slots, D slots whose samples have equals, R rows: classes, or 1 where a head covers all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.data.identity import SampleTable
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import ProvenanceNet


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
    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
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
