"""The same network with other keys: its exemplar head replaced, everything else shared.

Keys are given and taken by index, the order of the sample table; a head keeps them sorted by class.

Letters: N samples, D features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from provnet.errors import UsageError
from provnet.indexing import IndexMap
from provnet.keybank import PackedKeys
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import ProvenanceNet


def exemplar_head(net: ProvenanceNet) -> ExemplarHead:
    """The head with the keys; a network with an output layer has none, and cannot gain or lose samples."""
    if isinstance(net.index_head, ExemplarHead):
        return net.index_head
    raise UsageError(
        "this network has an output layer with a neuron for each training sample: samples cannot be added, withheld or "
        "erased without training again. Train with --head exemplar (a generator: --generator modern), which keeps one "
        "key a sample"
    )


def keys_of(head: ExemplarHead, index: Tensor) -> PackedKeys:
    """The keys of some samples as they are stored, in the order given; a copy."""
    bank, rows = head.bank, head.rows[index.to(head.rows.device)]
    return PackedKeys(bank.values[rows], None if bank.scale is None else bank.scale[rows])


def joined(parts: Sequence[PackedKeys]) -> PackedKeys:
    """Keys of one storage format after one another.

    >>> from provnet.keybank import pack
    >>> len(joined([pack(torch.ones(2, 3), "int8"), pack(torch.ones(1, 3), "int8")]))
    3
    """
    scales = [part.scale for part in parts if part.scale is not None]
    return PackedKeys(torch.cat([part.values for part in parts]), torch.cat(scales) if scales else None)


def with_keys(net: ProvenanceNet, labels: Tensor, keys: PackedKeys) -> ProvenanceNet:
    """A network over other samples: labels (N,) and keys (N, D) by index. A class without samples is never predicted.

    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2, head="exemplar"), IndexMap([1, 0, 1]))
    >>> head = exemplar_head(net)
    >>> with_keys(net, torch.tensor([0, 1]), keys_of(head, torch.tensor([1, 2]))).index_map.n
    2
    """
    index_map = _index_map(net, labels)
    return _with_head(net, _head(net, index_map, keys), index_map)


def restricted(net: ProvenanceNet, index: Tensor) -> ProvenanceNet:
    """A network that names only these samples, counted from 0 in the order given; its class branch answers as before.

    Only the head has the map of the chosen samples. The network keeps the map of all: it says which classes may be
    predicted, and that is not for `index` to decide.
    """
    labels = net.index_map.labels[index.to(net.index_map.labels.device)]
    head = _head(net, _index_map(net, labels), keys_of(exemplar_head(net), index))
    return _with_head(net, head, net.index_map)


def _index_map(net: ProvenanceNet, labels: Tensor) -> IndexMap:
    return IndexMap(labels.cpu(), net.index_map.classes).to(net.index_map.labels.device)


def _head(net: ProvenanceNet, index_map: IndexMap, keys: PackedKeys) -> ExemplarHead:
    old = exemplar_head(net)
    scale = 0.0 if isinstance(old.log_scale, nn.Parameter) else 1.0  # learned or fixed; the value itself follows
    made = ExemplarHead(0, index_map, conditional=old.conditional, scale=scale, stored=old.stored)
    made.keys = keys.values[made.order]
    made.steps = None if keys.scale is None else keys.scale[made.order]
    made.log_scale, made.learned = old.log_scale, old.learned
    return made


def _with_head(net: ProvenanceNet, head: ExemplarHead, index_map: IndexMap) -> ProvenanceNet:
    made = ProvenanceNet(
        normalise=net.normalise,
        backbone=net.backbone,
        task_head=net.task_head,
        index_trunk=net.index_trunk,
        index_head=head,
        index_map=index_map,
        support=net.support,
    )
    return made.train(net.training)
