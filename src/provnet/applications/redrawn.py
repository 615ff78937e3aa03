"""Networks with some of their weights drawn anew, from the index head down to the first layer.

Letters: Q queries, n samples compared, D features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from provnet.chunks import at_once
from provnet.data.batches import fold
from provnet.models.exemplar import ExemplarHead, unit
from provnet.models.provenance import ProvenanceNet
from provnet.models.rekey import keys_of, restricted
from provnet.training.keys import features_of

SAMPLES, NUMBERS = 256, 2**24  # of pixels compared at a time: samples, and float64 numbers on each side


class Redrawn(NamedTuple):
    """A network whose weights are drawn anew down to a layer, and that layer in words."""

    words: str
    net: ProvenanceNet


def cascade(net: ProvenanceNet, chosen: Tensor, seed: int) -> Iterator[Redrawn]:
    """The same network again and again, with one layer more drawn anew each time: head, index trunk, then the backbone.

    Of a network with keys only those of the samples `chosen` (n,) are copied, in that order. The network given stays as
    it is; those that come are one network, changed further with each step.
    """
    small = restricted(net, chosen) if isinstance(net.index_head, ExemplarHead) else net
    made = copy.deepcopy(small).eval()
    device = next(net.parameters()).device
    state = torch.Generator().manual_seed(fold(seed, 62)).get_state()
    for words, parts in layers(made):
        made.cpu()  # draws of a GPU are others
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(state)
            for part in parts:
                _draw(part)
            state = torch.random.get_rng_state()
        yield Redrawn(words, made.to(device))


def layers(net: ProvenanceNet) -> list[tuple[str, list[nn.Module]]]:
    """What is drawn anew at each step: the head, then each layer with weights and what follows it, last layer first."""
    found: list[tuple[str, list[nn.Module]]] = [("index head", [net.index_head])]
    trunk = _layers(net.index_trunk.body)
    if trunk:
        found.append(("and the index branch", [part for layer in trunk for part in layer]))
    backbone = _layers(net.backbone)
    for number, parts in reversed(list(enumerate(backbone, 1))):
        found.append((f"and layer {number} of {len(backbone)}", parts))
    return found


def _layers(module: nn.Module) -> list[list[nn.Module]]:
    """Leaves with parameters in the order that they are listed in; a normalisation goes with the layer before it."""
    found: list[list[nn.Module]] = []
    for part in module.modules():
        own = list(part.parameters(recurse=False))
        if not own:
            continue
        if any(p.ndim > 1 for p in own) or not found:
            found.append([part])
        else:
            found[-1].append(part)
    return found


@torch.no_grad()
def _draw(part: nn.Module) -> None:
    """As torch initialises its layers; what cannot reset itself becomes N(0, .02)."""
    if isinstance(part, ExemplarHead):
        part.open_keys(trained=False)
        part.keys.copy_(unit(torch.randn(part.keys.shape)))
        part.close_keys()
        return
    for each in part.modules():
        reset = getattr(each, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            for values in each.parameters(recurse=False):
                nn.init.normal_(values, 0.0, 0.02)


@torch.no_grad()
def index_scores(net: ProvenanceNet, images: Tensor, classes: Tensor, chosen: Tensor) -> Tensor:
    """(Q, n) scores of the samples `chosen` for raw images, as the index branch orders them; NaN outside the class."""
    device = next(net.parameters()).device
    head, parts = net.index_head, []
    chosen = chosen.to(device)
    keys = keys_of(head, chosen).unpacked() if isinstance(head, ExemplarHead) else None
    for some in torch.split(torch.arange(len(images)), at_once(images.shape[1:], device.type)):
        given = classes[some].to(device)
        output = net(images[some].to(device), given if net.task_head is not None else None)
        if keys is not None:
            scores = unit(output.index_features) @ keys.t()
        else:
            scores = output.index_scores.float()[:, head.to_slot(chosen)]
        if head.valid(given) is not None:
            outside = head.index_map.labels[chosen] != given.unsqueeze(1)
            scores = scores.masked_fill(outside, torch.nan)
        parts.append(scores.cpu())
    return torch.cat(parts)


@torch.no_grad()
def feature_scores(net: ProvenanceNet, images: Tensor, samples: Tensor) -> Tensor:
    """(Q, n) cosines with keys that are made anew out of raw samples (n, ...), as this network sees them."""
    queries, keys = (torch.cat([unit(features_of(net, b)) for b in _batches(net, of)]) for of in (images, samples))
    return (queries @ keys.t()).cpu()


def pixel_scores(images: Tensor, samples: Tensor) -> Tensor:
    """(Q, n) minus the distance between raw pixels: nearest neighbours without any network.

    >>> pixel_scores(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[-5.0, -0.0]]
    """
    step = max(1, NUMBERS // max(images[:1].numel(), 1))
    found = []
    for queries in torch.split(images, step):
        given = queries.flatten(1).double()
        sides = (some.flatten(1).double() for some in torch.split(samples, min(step, SAMPLES)))
        found.append(torch.cat([-torch.cdist(given, side) for side in sides], 1))
    return torch.cat(found)


def _batches(net: ProvenanceNet, images: Tensor) -> Iterator[Tensor]:
    device = next(net.parameters()).device
    for batch in torch.split(images, at_once(images.shape[1:], device.type)):
        yield batch.to(device)
