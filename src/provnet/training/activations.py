"""What a training step keeps of its samples until the gradients are made, told before anything is allocated.

The layers are gone through without numbers (torch's device "meta"), and what autograd saves on the way is added up. It
is less than a step takes in the end: gradients, what a layer needs meanwhile, the losses and what a generator makes
come on top. So what does not fit by this count does not fit.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from provnet.models.provenance import ProvenanceNet

MANY = 1024  # samples gone through: shapes cost nothing, and what does not grow with the batch is lost in the mean


def kept_bytes(net: ProvenanceNet, custom: nn.Module | None = None) -> int:
    """Bytes that are kept for each sample of a batch, in fp32, by a network on the device "meta".

    `custom` takes the place of its backbone; it is copied without its weights. 0 where layers cannot be gone through
    without numbers: nothing is known of those.

    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> index_map = IndexMap([0, 1, 1])
    >>> with torch.device("meta"):
    ...     nets = [build(NetworkConfig("single", "small", (1, s, s), classes=2), index_map) for s in (16, 64)]
    >>> round(kept_bytes(nets[1]) / kept_bytes(nets[0]))  # for sixteen times the pixels
    15
    """
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            if custom is None:
                return _saved(net, net.backbone, MANY) // MANY
            # asked, not trained, as for the shape of its features: it may do more than compute where it is trained
            other = _without_weights(custom).eval()
            return (_saved(net, other, 4) - _saved(net, other, 2)) // 2
    except Exception:  # whatever a layer says that needs numbers: no count is no reason not to train
        return 0


def _saved(net: ProvenanceNet, backbone: nn.Module, n: int) -> int:
    """Bytes of all that is saved for the gradients of n samples, without weights; what is saved twice counts once."""
    seen: dict[int, torch.UntypedStorage] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        seen[storage._cdata] = storage  # held, so that no other takes its place
        return value

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = backbone(torch.empty(n, *net.normalise.input_shape, device="meta"))
        none = torch.zeros(n, dtype=torch.int64, device="meta")
        _held = net.index_trunk(features, none), None if net.task_head is None else net.task_head(features)
    own = {weight.untyped_storage()._cdata for part in (net, backbone) for weight in part.parameters()}
    return sum(storage.nbytes() for place, storage in seen.items() if place not in own)


def _without_weights(module: nn.Module) -> nn.Module:
    """A copy whose weights are shapes alone: it costs no memory, and what it notes in itself stays with it."""
    shapes: dict[int, Any] = {}
    for weight in module.parameters():
        empty = torch.empty_like(weight, device="meta")
        shapes[id(weight)] = nn.Parameter(empty, requires_grad=weight.requires_grad)
    for values in module.buffers():
        shapes[id(values)] = torch.empty_like(values, device="meta")
    return copy.deepcopy(module, shapes)
