"""The keys of an exemplar head before and after training: one pass over the data each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from provnet.chunks import at_once
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import ProvenanceNet
from provnet.sharding import sum_over
from provnet.training.progress import progress_bar

SMALL = {"cpu": 1024, "cuda": 8192}  # samples at a time where they are small: features alone, without scores
MEASURED = 10_000


def fill_keys(net: ProvenanceNet, images: Tensor, *, progress: bool = False) -> None:
    """Set every key of this process to the features of its sample, as the network sees it now."""
    head, device = _head(net), next(net.parameters()).device
    own = head.order[head.shard.rows].sort().values.to(images.device)
    net.eval()
    done = 0
    with torch.inference_mode(), progress_bar("keys", len(own), progress) as update:
        for index in torch.split(own, features_at_once(images, device)):
            head.set_keys(index.to(device), features_of(net, images[index].to(device)))
            done += len(index)
            update(done, "")


def refresh(net: ProvenanceNet, images: Tensor, groups: np.ndarray, *, progress: bool = False) -> None:
    """At the end of training: note how many samples the learned keys find, then set the keys to the features of now.

    `groups` (N,) has the same number for equal samples (`SampleTable.groups`): these get one key.
    """
    head, device = _head(net), next(net.parameters()).device
    queries = torch.arange(0, len(images), -(-len(images) // MEASURED))
    net.eval()
    hits = 0
    with torch.inference_mode():
        for some in torch.split(queries, features_at_once(images, device)):
            index = some[head.shard.rank :: head.shard.processes]
            labels = net.index_map.labels[index.to(device)]
            features = features_of(net, images[index.to(images.device)].to(device))
            hits += int((head.best(features, labels, 1).index[:, 0].cpu() == index).sum())
    found = sum_over(torch.tensor(hits, device=device), head.shard)
    head.learned.copy_(torch.stack([found, torch.tensor(len(queries), device=device)]))
    fill_keys(net, images, progress=progress)
    head.join_keys()
    share_keys(head, groups)
    head.close_keys()


@torch.no_grad()
def share_keys(head: ExemplarHead, groups: np.ndarray) -> None:
    """Equal samples get the key of the first of them: features round differently in a piece of another size.

    Then their shares are equal to the last bit, and the lower one is named first.

    >>> from provnet.indexing import IndexMap
    >>> head = ExemplarHead(2, IndexMap([0, 0, 0]), conditional=False)
    >>> head.open_keys(trained=False)
    >>> head.set_keys(torch.arange(3), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-4]]))
    >>> share_keys(head, np.array([5, 2, 5]))
    >>> head.keys[head.rows].tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    _, firsts, inverse = np.unique(groups, return_index=True, return_inverse=True)
    if len(firsts) == len(groups):
        return
    first = firsts[inverse.reshape(-1)]
    others = np.flatnonzero(first != np.arange(len(groups)))
    here, there = (torch.from_numpy(rows).to(head.rows.device) for rows in (others, first[others]))
    head.keys[head.rows[here]] = head.keys[head.rows[there]]


def features_at_once(images: Tensor, device: torch.device) -> int:
    """How many of these go through a backbone at a time when nothing but features is asked for."""
    return at_once(images.shape[1:], device.type, SMALL[device.type])


def features_of(net: ProvenanceNet, images: Tensor) -> Tensor:
    """(B, ...) raw -> (B, D) features that are compared with keys; no scores are made."""
    none = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    features: Tensor = net.index_trunk(net.backbone(net.normalise(images)), none)
    return features


@contextmanager
def whole_keys(net: ProvenanceNet) -> Iterator[None]:
    """While a checkpoint is written every process holds all keys: it can be resumed by any number of processes."""
    head = net.index_head
    if not isinstance(head, ExemplarHead) or head.shard.processes == 1:
        yield
        return
    shard = head.shard
    head.join_keys()
    try:
        yield
    finally:
        head.split_keys(shard.rank, shard.processes)


def _head(net: ProvenanceNet) -> ExemplarHead:
    assert isinstance(net.index_head, ExemplarHead)
    return net.index_head
