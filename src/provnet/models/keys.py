"""The same network with other keys: its exemplar head replaced, everything else shared.

Keys are given and taken by index, the order of the sample table; a head keeps them sorted by class.

Letters: N samples, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.batches import Inputs
from provnet.base.errors import UsageError
from provnet.base.progress import progress_bar
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import PackedKeys, sum_over
from provnet.models.network import ProvenanceNet, features_at_once
from provnet.samples.identity import SampleTable


def key_head(net: ProvenanceNet) -> ExemplarHead | None:
    """The head with the keys; None where an output layer names the samples."""
    return net.index_head if isinstance(net.index_head, ExemplarHead) else None


def exemplar_head(net: ProvenanceNet) -> ExemplarHead:
    """The head with the keys; a network with an output layer has none, and cannot gain or lose samples."""
    head = key_head(net)
    if head is None:
        raise UsageError(
            "this network has an output layer with a neuron for each training sample: samples cannot be added, "
            "withheld or erased without training again. Train with --head exemplar (a generator: --generator modern), "
            "which keeps one key per sample"
        )
    return head


def keys_of(head: ExemplarHead, index: Tensor) -> PackedKeys:
    """The keys of some samples as they are stored, in the order given; a copy."""
    bank, rows = head.bank, head.rows[index.to(head.rows.device)]
    return PackedKeys(bank.values[rows], None if bank.scale is None else bank.scale[rows])


def concatenate_keys(parts: Sequence[PackedKeys]) -> PackedKeys:
    """Keys of one storage format after one another.

    >>> from provnet.heads.keys import pack
    >>> len(concatenate_keys([pack(torch.ones(2, 3), "int8"), pack(torch.ones(1, 3), "int8")]))
    3
    """
    scales = [part.scale for part in parts if part.scale is not None]
    return PackedKeys(torch.cat([part.values for part in parts]), torch.cat(scales) if scales else None)


def with_keys(net: ProvenanceNet, labels: Tensor, keys: PackedKeys) -> ProvenanceNet:
    """A network over other samples: labels (N,) and keys (N, D) by index. A class without samples is never predicted.

    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2, head="exemplar"), IndexMap([1, 0, 1]))
    >>> head = exemplar_head(net)
    >>> with_keys(net, torch.tensor([0, 1]), keys_of(head, torch.tensor([1, 2]))).index_map.n
    2
    """
    index_map = _index_map(net, labels)
    return net.with_head(_new_head(net, index_map, keys), index_map)


def restrict_network(net: ProvenanceNet, index: Tensor) -> ProvenanceNet:
    """A network that names only these samples, counted from 0 in the order given; its class branch answers as before.

    Only the head has the map of the chosen samples. The network keeps the map of all: it says which classes may be
    predicted, and that is not for `index` to decide.
    """
    labels = net.index_map.labels[index.to(net.index_map.labels.device)]
    head = _new_head(net, _index_map(net, labels), keys_of(exemplar_head(net), index))
    return net.with_head(head, net.index_map)


def _index_map(net: ProvenanceNet, labels: Tensor) -> IndexMap:
    return IndexMap(labels.cpu(), net.index_map.classes).to(net.index_map.labels.device)


def _new_head(net: ProvenanceNet, index_map: IndexMap, keys: PackedKeys) -> ExemplarHead:
    old = exemplar_head(net)
    scale = 0.0 if isinstance(old.log_scale, nn.Parameter) else 1.0  # learned or fixed; the value itself follows
    made = ExemplarHead(0, index_map, conditional=old.conditional, scale=scale, stored=old.stored)
    made.keys = keys.values[made.order]
    made.steps = None if keys.scale is None else keys.scale[made.order]
    made.log_scale, made.learned = old.log_scale, old.learned
    return made


MEASURED = 10_000


def open_keys(net: ProvenanceNet, *, trained: bool) -> None:
    """Before training: make the keys ready, where there are some."""
    head = key_head(net)
    if head is not None:
        head.open_keys(trained=trained)


def draw_keys(net: ProvenanceNet) -> None:
    """Draw the keys anew, where there are some."""
    head = key_head(net)
    if head is not None:
        head.reset_parameters()


def split_keys(net: ProvenanceNet, rank: int, processes: int) -> None:
    """Each process keeps its share of the keys, where there are some."""
    head = key_head(net)
    if head is not None:
        head.split_keys(rank, processes)


def fill_keys(net: ProvenanceNet, images: Tensor, rows: Tensor | None = None, *, progress: bool = False) -> None:
    """Set every key of this process, where there are some, to the features of its sample as the network sees it now.

    `rows` (N,) says where among the images each sample is; None means all of them, in order.
    """
    head, device = key_head(net), next(net.parameters()).device
    if head is None:
        return
    own = head.order[head.shard.rows].sort().values.to(images.device)
    rows = None if rows is None else rows.to(images.device)
    net.eval()
    done = 0
    with torch.inference_mode(), progress_bar("keys", len(own), progress) as update:
        for index in torch.split(own, features_at_once(images, device)):
            at = index if rows is None else rows[index]
            head.set_keys(index.to(device), features_of(net, images[at].to(device)))
            done += len(index)
            update(done, "")


def refresh(
    net: ProvenanceNet, images: Tensor, samples: SampleTable, rows: Tensor | None = None, *, progress: bool = False
) -> None:
    """At the end of training: note how many samples the learned keys find, then set the keys to the features of now.

    Equal samples get one key. `rows` says where among the images the samples are, see `fill_keys`. A network without
    keys stays as it is.
    """
    head, device = key_head(net), next(net.parameters()).device
    if head is None:
        return
    queries = torch.arange(0, len(samples), -(-len(samples) // MEASURED))
    net.eval()
    hits = 0
    with torch.inference_mode():
        for some in torch.split(queries, features_at_once(images, device)):
            index = some[head.shard.rank :: head.shard.processes]
            labels = net.index_map.labels[index.to(device)]
            at = index if rows is None else rows[index]
            features = features_of(net, images[at.to(images.device)].to(device))
            hits += int((head.best(features, labels, 1).index[:, 0].cpu() == index).sum())
    found = sum_over(torch.tensor(hits, device=device), head.shard)
    head.learned.copy_(torch.stack([found, torch.tensor(len(queries), device=device)]))
    fill_keys(net, images, rows, progress=progress)
    head.join_keys()
    share_keys(head, samples.groups)
    head.close_keys()


@torch.no_grad()
def share_keys(head: ExemplarHead, groups: np.ndarray) -> None:
    """Equal samples get the key of the first of them: features round differently in a piece of another size.

    Then their shares are equal to the last bit, and the lower one is named first.

    >>> from provnet.heads.index_map import IndexMap
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


def features_of(net: ProvenanceNet, inputs: Inputs) -> Tensor:
    """Raw inputs -> (B, D) features that are compared with keys; no scores are made."""
    pooled = net.pooled(net.features(inputs), None)
    none = torch.zeros(len(pooled), dtype=torch.int64, device=pooled.device)
    features: Tensor = net.index_trunk(pooled, none)
    return features


@contextmanager
def whole_keys(net: ProvenanceNet) -> Iterator[None]:
    """While a checkpoint is written every process holds all keys: it can be resumed by any number of processes."""
    head = key_head(net)
    if head is None or head.shard.processes == 1:
        yield
        return
    shard = head.shard
    head.join_keys()
    try:
        yield
    finally:
        head.split_keys(shard.rank, shard.processes)
