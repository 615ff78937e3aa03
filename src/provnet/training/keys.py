"""The keys of an exemplar head before and after training: one pass over the data each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


def refresh(net: ProvenanceNet, images: Tensor, *, progress: bool = False) -> None:
    """At the end of training: note how many samples the learned keys find, then set the keys to the features of now."""
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
    head.close_keys()


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
