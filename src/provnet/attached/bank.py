"""Bank: the keys while somebody else's loop trains, who was seen, and what each sample's own loss was.

A key is the moving average of its sample's features. It moves when the next batch comes, never before the backward pass
of its own: the loss keeps the keys that it was made with. Features are standardised by moving statistics that carry no
gradient, and projected. Where several processes train, all move the same keys and statistics.

Letters: B batch, N samples, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.base.errors import IntegrityError, UsageError
from provnet.heads.heads import CHUNK, MOMENTUM
from provnet.heads.keys import Shard, gather, shares_of
from provnet.heads.losses import block_cross_entropy, index_cross_entropy
from provnet.models.attached import SCALE, AttachedNet, directions, spread_of

MOST = 262_144  # keys that a sample is told from in one step
SLOWEST = 0.02  # of a batch in the moving statistics
MOST_WAITING = 64  # batches whose backward pass was never made: these will not be


@dataclass
class Noted:
    """What a batch has shown, until the keys may move."""

    index: Tensor  # (B,)
    features: Tensor  # (B, D) of length one
    losses: Tensor  # (B,)
    used: list[bool] = field(default_factory=list)  # holds something once the backward pass has begun


class Bank:
    """Keys (N, D) in the rows that `rows` gives for each index; `count` says how often each sample was seen.

    Rows are in an order of chance, so that any part of the keys stands for all; within classes they are by class.
    """

    def __init__(self, net: AttachedNet) -> None:
        head, n, (width, features) = net.index_head, net.index_map.n, net.space.weight.shape
        self.conditional = head.conditional
        self.rows = head.rows.cpu() if head.conditional else torch.randperm(n, generator=keyed_generator(n, 9))
        self.starts, self.sizes = head.starts.cpu(), head.index_map.sizes.cpu()
        self.keys = torch.zeros(n, width)
        self.directions = directions(features, width)
        self.mean, self.variance, self.batches = torch.zeros(features), torch.ones(features), 0
        self.last = torch.full((n,), torch.nan)  # latest loss of each sample, beside the keys
        self.count = np.zeros(n, dtype=np.int64)
        self.epochs: list[np.ndarray] = []  # (N,) float16 each
        self.since = 0  # indices seen since the last whole epoch
        self.waiting: list[Noted] = []

    @property
    def processes(self) -> int:
        """How many train together."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    def to(self, like: Tensor) -> None:
        """Keep everything beside these features, and as exactly as they are made."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        if self.keys.device != like.device or self.keys.dtype != dtype:
            for name in ("keys", "directions", "mean", "variance"):
                setattr(self, name, getattr(self, name).to(like.device, dtype))
            for name in ("rows", "starts", "sizes", "last"):
                setattr(self, name, getattr(self, name).to(like.device))

    def reduced(self, features: Tensor, *, learn: bool = False) -> Tensor:
        """(B, D) -> (B, width) of length one: standardised by the statistics so far, and projected."""
        if learn:
            self._learn(features.detach())
        with torch.autocast(features.device.type, enabled=False):
            return F.normalize(F.linear((features - self.mean) / spread_of(self.variance), self.directions), dim=1)

    @torch.no_grad()
    def _learn(self, features: Tensor) -> None:
        """Move mean and variance towards those of a batch, which all processes share."""
        sums = torch.cat([features.sum(0), features.square().sum(0), features.new_tensor([float(len(features))])])
        if self.processes > 1:
            dist.all_reduce(sums)
        width, count = len(self.mean), sums[-1]
        mean, square = sums[:width] / count, sums[width:-1] / count
        share = max(SLOWEST, 1 / (self.batches + 1))
        self.mean, before = torch.lerp(self.mean, mean, share), self.mean
        around = (square - mean.square()).clamp_min(0) + (mean - before).square() * (self.batches > 0)
        self.variance = torch.lerp(self.variance, around, share)
        self.batches += 1

    def loss(self, features: Tensor, index: Tensor, classes: Tensor, most: int) -> Tensor:
        """() mean cross-entropy over all keys, or over a part of `most`; samples seen for the first time count 0."""
        device, n = features.device, len(self.keys)
        known = torch.from_numpy(self.count[index.numpy()] > 0).to(device)
        own, queries, chunk = self.rows[index.to(device)], SCALE * features, CHUNK[features.device.type]
        with torch.autocast(device.type, enabled=False):
            if self.conditional:
                first = self.starts[classes.to(device)]
                span = first, first + self.sizes[classes.to(device)]
                each = index_cross_entropy(queries, self.keys, own, span=span, chunk=chunk).loss
            elif n <= most:
                each = index_cross_entropy(queries, self.keys, own, chunk=chunk).loss
            else:
                start = int(torch.randint(n - most + 1, (), generator=keyed_generator(n, self.batches, 10)))
                each = block_cross_entropy(queries, self.keys, own, (start, start + most), chunk=chunk)
        return (each * known).sum() / len(index)

    def note(self, index: Tensor, features: Tensor, losses: Tensor, loss: Tensor | None) -> None:
        """Keep what a batch has shown; its backward pass begins with `loss`, or there is none (None)."""
        noted = Noted(index, features.detach(), losses.detach())
        if loss is None or not loss.requires_grad:
            noted.used.append(True)
        else:
            loss.register_hook(lambda _: noted.used.append(True))  # type: ignore[no-untyped-call]
        self.waiting.append(noted)

    def settle(self, *, all_of_them: bool = False) -> None:
        """Move the keys by what earlier batches have shown, in their order, once their backward passes are done."""
        while self.waiting and (self.waiting[0].used or all_of_them or len(self.waiting) > MOST_WAITING):
            self._apply(self.waiting.pop(0))

    @torch.no_grad()
    def _apply(self, noted: Noted) -> None:
        index, features, losses = noted.index, noted.features, noted.losses
        if self.processes > 1:
            shard = Shard(0, len(self.keys), len(self.keys), dist.get_rank(), self.processes)
            shares = shares_of(len(index), shard, features.device)
            index, features, losses = (gather(part.to(features.device), shares) for part in (index, features, losses))
            index = index.cpu()
        seen = len(index)
        different, from_end = np.unique(index.numpy()[::-1], return_index=True)
        if len(different) < seen:  # a sample that was drawn twice counts as it was last
            keep = torch.from_numpy(seen - 1 - from_end)
            index, features, losses = index[keep], features[keep.to(features.device)], losses[keep.to(losses.device)]
        self.to(features)
        there, numbers = index.to(self.keys.device), index.numpy()
        rows = self.rows[there]
        first = torch.from_numpy(self.count[numbers] == 0).to(self.keys.device).unsqueeze(1)
        mixed = F.normalize(MOMENTUM * self.keys[rows] + (1 - MOMENTUM) * features, dim=1)
        self.keys[rows] = torch.where(first, features, mixed)
        self.last[there] = losses.float().to(self.last.device)
        self.count[numbers] += 1
        self.since += seen
        if self.since >= len(self.keys):
            self.since -= len(self.keys)
            self.epochs.append(self.last.cpu().numpy().copy())

    def history(self) -> np.ndarray | None:
        """(epochs, N) each sample's own loss; an epoch is as many samples as there are, and nobody is without one."""
        rows = [*self.epochs, self.last.cpu().numpy().copy()]
        if np.isnan(rows[-1]).any():
            return None
        for later, row in zip(reversed(rows[1:]), reversed(rows[:-1]), strict=True):
            np.copyto(row, later, where=np.isnan(row))  # not yet seen then
        whole = rows[: max(1, len(self.epochs))]
        found: np.ndarray = np.clip(np.stack(whole), 0, np.finfo(np.float16).max).astype(np.float16)
        return found

    def state(self) -> dict[str, Tensor]:
        """All of it as tensors, keys by index; what waits for a backward pass is among it."""
        twin = Bank.__new__(Bank)
        twin.__dict__ = {**self.__dict__, "keys": self.keys.clone(), "count": self.count.copy()}
        twin.last, twin.epochs, twin.waiting = self.last.clone(), list(self.epochs), list(self.waiting)
        twin.settle(all_of_them=True)
        n = len(twin.last)
        return {
            "keys": twin.keys[twin.rows].cpu(),
            "mean": twin.mean.cpu(),
            "variance": twin.variance.cpu(),
            "batches": torch.tensor(twin.batches),
            "count": torch.from_numpy(twin.count),
            "last": twin.last.cpu(),
            "epochs": torch.from_numpy(np.stack(twin.epochs) if twin.epochs else np.zeros((0, n), np.float32)),
            "since": torch.tensor(twin.since),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`; other sizes are refused."""
        lacking = {"keys", "mean", "variance", "batches", "count", "last", "epochs", "since"} - set(state)
        if lacking:
            raise UsageError(f"this is no state of prov.state_dict(): it lacks {', '.join(sorted(lacking))}")
        for name in ("keys", "mean"):
            if state[name].shape != getattr(self, name).shape:
                raise IntegrityError(
                    f"the state has {name} of shape {tuple(state[name].shape)}, this model and data need "
                    f"{tuple(getattr(self, name).shape)}; attach the same model to the same data"
                )
        self.to(state["keys"])
        self.keys[self.rows] = state["keys"]
        self.mean, self.variance = state["mean"].clone(), state["variance"].clone()
        self.count, self.last = state["count"].numpy().copy(), state["last"].clone()
        self.epochs = [row.copy() for row in state["epochs"].numpy()]
        self.batches, self.since, self.waiting = int(state["batches"]), int(state["since"]), []
