"""Bank: the keys while somebody else's loop trains, who was seen, and what each sample's own loss was.

A key is the moving average of its sample's features. It moves when the next batch comes, never before the backward pass
of its own: the loss keeps the keys that it was made with. Where several processes train, all move the same keys.

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

from provnet.base.errors import IntegrityError, UsageError
from provnet.heads.exemplar import CHUNK, MOMENTUM, ExemplarHead
from provnet.heads.keys import Shard, gather, shares_of
from provnet.heads.losses import index_cross_entropy, sampled_cross_entropy


@dataclass
class Noted:
    """What a batch has shown, until the keys may move."""

    index: Tensor  # (B,)
    features: Tensor  # (B, D) of length one
    losses: Tensor  # (B,)
    used: list[bool] = field(default_factory=list)  # holds something once the backward pass has begun


class Bank:
    """Keys (N, D) in the order of the head; `seen` counts how often each sample was."""

    def __init__(self, head: ExemplarHead) -> None:
        n = head.index_map.n
        self.head = head
        self.keys = torch.zeros(n, head.keys.shape[1])
        self.count = np.zeros(n, dtype=np.int64)
        self.last = torch.full((n,), torch.nan)  # latest loss of each sample, beside the keys
        self.epochs: list[np.ndarray] = []  # (N,) float16 each
        self.since = 0  # indices seen since the last whole epoch
        self.waiting: list[Noted] = []

    @property
    def processes(self) -> int:
        """How many train together."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    def to(self, like: Tensor) -> None:
        """Keep the keys beside these features, and as exactly as they are made."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        if self.keys.device != like.device or self.keys.dtype != dtype:
            self.keys, self.last = self.keys.to(like.device, dtype), self.last.to(like.device)
        if self.head.rows.device != like.device:
            self.head = self.head.to(like.device)

    def loss(self, features: Tensor, index: Tensor, classes: Tensor, negatives: int) -> Tensor:
        """() mean cross-entropy over all keys, or over so many drawn ones; samples seen for the first time count 0."""
        head, known = self.head, torch.from_numpy(self.count[index.cpu().numpy()] > 0).to(features.device)
        rows, queries = head.rows[index.to(features.device)], head.scale.to(features.dtype) * features
        with torch.autocast(features.device.type, enabled=False):
            if 0 < negatives < len(self.keys) and not head.conditional:
                device = features.device
                generator = (
                    torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
                )
                found = sampled_cross_entropy(
                    queries, self.keys, rows, rate=negatives / len(self.keys), generator=generator,
                    chunk=CHUNK[device.type],
                )  # fmt: skip
            else:
                span = None
                if head.conditional:
                    given = classes.to(features.device)
                    span = head.starts[given], head.starts[given] + head.index_map.sizes[given]
                found = index_cross_entropy(queries, self.keys, rows, span=span, chunk=CHUNK[features.device.type])
        return (found.loss * known).sum() / len(index)

    def note(self, index: Tensor, features: Tensor, losses: Tensor, loss: Tensor | None) -> None:
        """Keep what a batch has shown; its backward pass begins with `loss`, or there is none (None)."""
        noted = Noted(index.cpu(), features.detach(), losses.detach())
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
            where = features.device
            shares = shares_of(len(index), shard, where)
            index, features, losses = (gather(part.to(where), shares) for part in (index, features, losses))
            index = index.cpu()
        count, last = np.unique(index.numpy()[::-1], return_index=True)
        if len(count) < len(index):  # a sample that was drawn twice counts as it was last
            keep = torch.from_numpy(len(index) - 1 - last)
            seen_now = len(index)
            index, features, losses = index[keep], features[keep.to(features.device)], losses[keep.to(losses.device)]
        else:
            seen_now = len(index)
        self.to(features)
        rows, numbers = self.head.rows[index.to(self.keys.device)], index.numpy()
        first = torch.from_numpy(self.count[numbers] == 0).to(self.keys.device).unsqueeze(1)
        old = self.keys[rows]
        mixed = F.normalize(MOMENTUM * old + (1 - MOMENTUM) * features, dim=1)
        self.keys[rows] = torch.where(first, features, mixed)
        self.count[numbers] += 1
        self.last[index.to(self.last.device)] = losses.float().to(self.last.device)
        self.since += seen_now
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
        """All of it as tensors; what waits for a backward pass is among it."""
        twin = Bank.__new__(Bank)
        twin.__dict__ = {**self.__dict__, "keys": self.keys.clone(), "count": self.count.copy()}
        twin.last, twin.epochs, twin.waiting = self.last.clone(), list(self.epochs), list(self.waiting)
        twin.settle(all_of_them=True)
        self.head = twin.head
        n = len(twin.last)
        return {
            "keys": twin.keys.cpu(),
            "count": torch.from_numpy(twin.count),
            "last": twin.last.cpu(),
            "epochs": torch.from_numpy(np.stack(twin.epochs) if twin.epochs else np.zeros((0, n), np.float32)),
            "since": torch.tensor(twin.since),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`; other sizes are refused."""
        wanted = {"keys", "count", "last", "epochs", "since"}
        lacking = wanted - set(state)
        if lacking:
            raise UsageError(f"this is no state of prov.state_dict(): it lacks {', '.join(sorted(lacking))}")
        if state["keys"].shape != self.keys.shape:
            raise IntegrityError(
                f"the state has keys of shape {tuple(state['keys'].shape)}, this model and data need "
                f"{tuple(self.keys.shape)}; attach the same model to the same data"
            )
        self.keys = state["keys"].clone().to(self.keys.device)
        self.count, self.last = state["count"].numpy().copy(), state["last"].clone().to(self.keys.device)
        self.epochs = [row.copy() for row in state["epochs"].numpy()]
        self.since, self.waiting = int(state["since"]), []


MOST_WAITING = 64  # batches whose backward pass was never made: these will not be
