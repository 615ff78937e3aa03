"""Networks with some of their weights drawn anew, from the index head down to the first layer.

Letters: Q queries, n samples compared, D features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from provnet.answers.attributor import Attributor
from provnet.base.batches import at_once, fold
from provnet.heads.keys import pack, unit
from provnet.models.keys import exemplar_head, features_of, key_head, restricted, with_keys
from provnet.models.network import ProvenanceNet
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable
from provnet.tools.membership.compute import blank_network

SAMPLES, NUMBERS = 256, 2**24  # of pixels compared at a time: samples, and float64 numbers on each side


class Redrawn(NamedTuple):
    """A network whose weights are drawn anew down to a layer, that layer in words, and where the samples are in it."""

    words: str
    net: ProvenanceNet
    places: Tensor


def cascade(net: ProvenanceNet, chosen: Tensor, seed: int) -> Iterator[Redrawn]:
    """The same network again and again, with one layer more drawn anew each time: head, index trunk, then the backbone.

    Of a network with keys only those of the samples `chosen` (n,) are copied, in that order. The network given stays as
    it is; those that come are one network, changed further with each step.
    """
    keyed = key_head(net) is not None
    made = copy.deepcopy(restricted(net, chosen) if keyed else net).eval()
    places = torch.arange(len(chosen)) if keyed else chosen
    device = next(net.parameters()).device
    state = torch.Generator().manual_seed(fold(seed, 62)).get_state()
    for words, parts in layers(made):
        made.cpu()  # draws of a GPU are others
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(state)
            for part in parts:
                _draw(part)
            state = torch.random.get_rng_state()
        yield Redrawn(words, made.to(device), places)


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
    for each in part.modules():
        reset = getattr(each, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            for values in each.parameters(recurse=False):
                nn.init.normal_(values, 0.0, 0.02)


def index_scores(net: ProvenanceNet, images: Tensor, classes: Tensor, chosen: Tensor) -> Tensor:
    """(Q, n) scores of the samples `chosen` for raw images, as the index branch orders them; NaN outside the class."""
    given = classes if net.task_head is not None else None
    found = Attributor(net).each(images, lambda answered: {"scores": answered.ranking(chosen).cpu()}, classes=given)
    return found["scores"]


@torch.no_grad()
def feature_scores(net: ProvenanceNet, images: Tensor, samples: Tensor) -> Tensor:
    """(Q, n) cosines with keys that are made anew out of raw samples (n, ...), as this network sees them."""
    return (own_keys(net, images) @ own_keys(net, samples).t()).cpu()


@torch.no_grad()
def own_keys(net: ProvenanceNet, samples: Tensor) -> Tensor:
    """(n, D) keys out of raw samples (n, ...), as this network sees them: of length one, in fp32."""
    return torch.cat([unit(features_of(net, batch)) for batch in _batches(net, samples)])


def untrained_with_keys(run: Run, members: SampleTable, images: Tensor, seed: int = 0) -> ProvenanceNet | None:
    """The run's network with weights drawn anew and a key that it makes itself for each member that the run knows.

    At the end of training keys are set to the samples' features. So any network, trained or not, finds a picture whose
    key it keeps; only what a run finds beyond this one was learned.

    `images` are the members' raw pictures. It looks among all keys, also where the run looks within a class:
    its own classes mean nothing. None for an output layer, which stores no sample, for a backbone given as an
    object, which cannot be drawn anew, and where the run knows none of them.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, train_config(epochs=1, head="exemplar"))
    >>> untrained_with_keys(run, data.samples, data.images).index_map.n
    40
    """
    if key_head(run.network) is None or run.config.network.backbone == "custom":
        return None
    known = {row.tobytes(): number for number, row in enumerate(run.samples.pixel_sha256)}
    rows = np.array([known.get(row.tobytes(), -1) for row in members.pixel_sha256], dtype=np.int64)
    if not (rows >= 0).any():
        return None
    net = blank_network(run.config.network, run.network, seed)
    keys = pack(own_keys(net, images[torch.from_numpy(rows >= 0)]), exemplar_head(net).stored)
    made = with_keys(net, torch.from_numpy(run.samples.labels[rows[rows >= 0]]), keys)
    exemplar_head(made).conditional = False
    return made


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
