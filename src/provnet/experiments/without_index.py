"""The same network without its index branch, and one way to train both: what differs in time is the branch alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from provnet.data.imagedata import ImageData
from provnet.data.resident import ResidentData
from provnet.data.targets import TargetSampler
from provnet.models.heads import IndexHead
from provnet.models.provenance import IndexTrunk, ProvenanceNet, build
from provnet.models.support import Support
from provnet.training.config import TrainConfig
from provnet.training.loop import TrainingSet, fresh_state, train
from provnet.training.plan import plan
from provnet.training.setup import make_fabric


@final
class NoIndex(IndexHead):
    """One slot that every sample has, without a weight: its loss is 0, its cost next to nothing."""

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) -> (B, 1), all zero."""
        return features.new_zeros(len(features), 1)

    def valid(self, classes: Tensor) -> None:
        """The slot is always there."""

    def to_slot(self, index: Tensor) -> Tensor:
        """The first and only one."""
        return torch.zeros_like(index)

    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """It names nobody."""
        return torch.full_like(slots, -1)


def network(data: ImageData, kind: str | None, preset: str, seed: int) -> ProvenanceNet:
    """A network of the paper by its name; None is the class-independent one without its index branch.

    >>> import provnet
    >>> few = provnet.open_data("embedded", limit=20)
    >>> [sum(p.numel() for p in network(few, kind, "fast", 0).parameters()) for kind in (None, "class-independent")]
    [353418, 496286]
    """
    torch.manual_seed(seed)
    shape, index_map = plan(data, kind or "class-independent", "auto", preset)
    net = build(shape, index_map)
    if kind is not None:
        return net
    head: Any = NoIndex()
    return ProvenanceNet(
        normalise=net.normalise,
        backbone=net.backbone,
        task_head=net.task_head,
        index_trunk=IndexTrunk(nn.Identity()),
        index_head=head,
        index_map=index_map,
        support=Support(shape.classes, 1),
    )


def trained(
    net: ProvenanceNet, data: ImageData, config: TrainConfig, device: str, on_epoch: Callable[[int], None]
) -> list[float]:
    """Train it by the loop of `fit`, recorded on a GPU; returns the seconds of each epoch."""
    fabric = make_fabric(device, 1, config.precision)
    cuda = fabric.device.type == "cuda"
    rate = torch.tensor(config.lr, device=fabric.device) if cuda else config.lr
    adamw = torch.optim.AdamW(
        net.parameters(), rate, config.betas, weight_decay=config.weight_decay, fused=True, capturable=cuda
    )
    if cuda:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model, optimizer = fabric.setup(net, adamw)
    samples = ResidentData(data.images, data.labels, fabric.device, None)
    ends = [_now(fabric.device)]

    def ended(state: Any) -> None:
        ends.append(_now(fabric.device))
        on_epoch(len(ends) - 1)

    train(
        fabric,
        net=net,
        model=model,
        optimizer=optimizer,
        data=TrainingSet(samples, data.samples.sample_ids),
        sampler=TargetSampler(net.index_map, 0.0),
        config=config,
        state=fresh_state(len(data), fabric.device),
        on_step=lambda state, row: None,
        on_epoch=ended,
        recorded=cuda,
    )
    net.eval()
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
