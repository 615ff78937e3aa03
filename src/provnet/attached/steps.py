"""Steps of somebody else's loop: what is refused of one, and what is noted of it.

Where the index loss has a weight there are keys: the moving average of each sample's features. A key moves when the
next batch comes, never before the backward pass of its own: the loss keeps the keys that it was made with. Features are
standardised by moving statistics that carry no gradient, and projected. Where several processes train, all move the
same keys and statistics. Nothing here waits for a GPU.

Letters: B batch, N samples, D features, K numbers of a key.
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
from provnet.base.errors import IntegrityError, NonFiniteError, UsageError
from provnet.data.dataset import Dataset
from provnet.heads.heads import CHUNK, MOMENTUM
from provnet.heads.keys import Shard, gather, shares_of
from provnet.heads.losses import block_cross_entropy, index_cross_entropy
from provnet.models.attached import SCALE, AttachedNet
from provnet.models.network import NARROW_KEY
from provnet.models.tap import Taken

LOOKED = 3  # steps whose input is held against what the dataset yields
COMPARED = 64  # samples of each
FAR = 2.0  # times as large or as small: another unit
SAY = "say with transform= how a stored sample becomes the model's input"
FLOOR, TINY = 1e-4, 1e-12  # of the mean variance, and of no variance at all
MOST = 262_144  # keys that a sample is told from in one step
SLOWEST = 0.02  # of a batch in the moving statistics
MOST_WAITING = 64  # batches whose backward pass was never made: these will not be


class _Later:
    """A flag on its way from a GPU: who asks waits for it, not for the work that was queued since."""

    def __init__(self, flag: Tensor) -> None:
        self.flag, self.copied = flag, None
        if flag.is_cuda:
            self.flag = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(flag, non_blocking=True)
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
            self.copied.record()  # type: ignore[attr-defined, unused-ignore]

    def known(self) -> bool:
        """What it says."""
        if self.copied is not None:
            self.copied.synchronize()
        return bool(self.flag)


class StepCheck:
    """Refuses steps that would write wrong keys; `steps` counts those that were fine."""

    def __init__(self, net: AttachedNet, data: Dataset, *, trained: bool) -> None:
        self.net, self.data, self.trained, self.steps = net, data, trained, 0
        self._finite = _Later(torch.ones((), dtype=torch.bool))

    @property
    def at(self) -> str:
        """Where the features are read."""
        return str(self.net.tap.place)

    def numbers(self, index: Any) -> Tensor:
        """(B,) int64 on the CPU, all of them samples of the data."""
        if isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        if isinstance(index, list | tuple) and index and all(isinstance(i, int | np.integer) for i in index):
            index = torch.tensor([int(i) for i in index])
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1 or len(index) == 0:
            given = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else f"{index!r:.80}"
            raise UsageError(
                "index must be the int64 numbers of the batch's samples, (B,), as prov.dataset() yields them; got "
                f"{given}"
            )
        numbers = index.detach().cpu()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(self.data):
            raise UsageError(
                f"index must lie in 0..{len(self.data) - 1}, the samples that the model was attached to; got "
                f"{low if low < 0 else high}. Take it from prov.dataset(), or attach to all samples that you train on"
            )
        return numbers

    def step(self, numbers: Tensor, taken: Taken) -> bool:
        """Refuse a step in words; False where its features, or on a GPU those of the step before, are not finite."""
        features, width = taken.features, int(self.net.support.mean.shape[1])
        if not self.net.tap.model.training:
            raise UsageError("the model is in evaluation mode; call model.train() before you train it")
        if len(features) != len(numbers):
            raise UsageError(
                f"index names {len(numbers)} samples, the model's last forward pass had {len(features)}; call "
                "prov.loss(index) with the numbers of the very batch that the model has just seen"
            )
        if features.shape[1] != width:
            raise UsageError(
                f"{self.at} gives {features.shape[1]} features in training and {width} when it was attached; name a "
                "layer of one width"
            )
        classes = self.net.index_map.classes
        if taken.logits.shape[1] != classes:
            raise UsageError(
                f"the model gives {taken.logits.shape[1]} class scores now, {classes} when it was attached"
            )
        if self.trained:
            self._graded(features)
        before, self._finite = self._finite, _Later(torch.isfinite(features.detach()).all())
        if not before.known() or not (features.is_cuda or self._finite.known()):  # a GPU is asked a step later
            return False
        if self.steps < LOOKED:
            self._same_input(numbers, taken.given)
        self.steps += 1
        return True

    def refuse_not_finite(self, dtype: torch.dtype) -> None:
        """Say that a step was not finite; the next one begins anew."""
        self._finite = _Later(torch.ones((), dtype=torch.bool))
        half = " (float16 ends at 65,504: use bfloat16)" if dtype == torch.float16 else ""
        raise NonFiniteError(
            f"the features hold NaN or infinity{half} ({self.at}); no key was moved by them. Lower the learning rate, "
            "or skip such batches"
        )

    def _graded(self, features: Tensor) -> None:
        if not torch.is_grad_enabled():
            raise UsageError("gradients are switched off (torch.no_grad): call prov.loss where you train, or weight=0")
        if not features.requires_grad:
            raise UsageError(
                f"the features carry no gradient ({self.at}): the layers below are frozen, or run under reentrant "
                "gradient checkpointing (use_reentrant=False). Or only record: attach(..., weight=0)"
            )

    def _same_input(self, numbers: Tensor, given: Any) -> None:
        """Refuse a model that is fed otherwise than the dataset yields: later it would be asked something else."""
        due = self.net.prepare(self.data.inputs[numbers[:COMPARED]])
        if isinstance(due, Tensor) and isinstance(given, Mapping):
            given = next((one for one in given.values() if isinstance(one, Tensor) and one.ndim == due.ndim), None)
        if isinstance(due, Tensor) and isinstance(given, Tensor):
            problem = _difference(given.detach()[:COMPARED], due)
            if problem:
                raise UsageError(
                    f"the model was fed input {problem}: it would be asked about other input than it learned; {SAY}, "
                    "and train on prov.dataset()"
                )
            return
        lacks = isinstance(given, Mapping) and not set(due) <= set(given)
        if isinstance(due, Mapping) and (lacks or isinstance(given, Tensor)):
            words = f"a tensor of {given.dtype}" if isinstance(given, Tensor) else ", ".join(given)
            raise UsageError(f"the model was called with {words}, prov.dataset() yields {', '.join(due)}; {SAY}")


def _difference(given: Tensor, due: Tensor) -> str:
    """How the input of a model differs in kind from that which is due; "" where it does not."""
    if given.is_floating_point() != due.is_floating_point():
        return f"of {given.dtype}, prov.dataset() yields {due.dtype}"
    if given.ndim != due.ndim or (due.ndim == 4 and given.shape[1] != due.shape[1]):
        return f"of shape {tuple(given.shape)}, prov.dataset() yields {tuple(due.shape)}"
    if not due.is_floating_point() or due.numel() < 2:
        return ""
    (mean, spread), (here, wide) = ((float(one.float().mean()), float(one.float().std())) for one in (due, given))
    largest = max(spread, wide)
    if largest == 0 or (wide / FAR <= spread <= wide * FAR and abs(here - mean) <= FAR * largest):
        return ""
    return f"of mean {here:.3g} and spread {wide:.3g}, prov.dataset() yields {mean:.3g} and {spread:.3g}"


@dataclass
class Noted:
    """What a batch has shown, until the keys may move."""

    index: Tensor  # (B,) on the CPU
    features: Tensor | None  # (B, K) of length one, where there are keys
    losses: Tensor  # (B,)
    used: list[bool] = field(default_factory=list)  # holds something once the backward pass has begun


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values of the CPU on a device; nobody waits for the work that is queued there."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


class Bank:
    """Who was seen, and how often; each sample's own loss; and where the index loss has a weight (`pulls`), the keys.

    Keys (N, K) lie in the rows that `rows` gives for each index, in an order of chance, so that any part of the keys
    stands for all; within classes they are by class.
    """

    def __init__(self, net: AttachedNet, *, pulls: bool) -> None:
        head, n, features = net.index_head, net.index_map.n, int(net.support.mean.shape[1])
        width = min(features, NARROW_KEY)  # every step looks at all keys
        self.conditional, self.pulls = head.conditional, pulls
        self.rows = head.rows.cpu() if head.conditional else torch.randperm(n, generator=keyed_generator(n, 9))
        self.starts, self.sizes = head.starts.cpu(), head.index_map.sizes.cpu()
        self.keys = torch.zeros(n if pulls else 0, width)
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
        """Keep everything beside these values, and as exactly as they are made."""
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
            return F.normalize((features - self.mean) / spread_of(self.variance) @ self.directions, dim=1)

    @torch.no_grad()
    def _learn(self, features: Tensor) -> None:
        """Move mean and variance towards those of a batch, which all processes share."""
        sums = torch.cat([features.sum(0), features.square().sum(0), features.new_full((1,), len(features))])
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
        """() mean cross-entropy over all keys, or over a part of `most`; samples seen for the first time count 0.

        `index` lies on the CPU, features and `classes` where the model does.
        """
        device, n = features.device, len(self.keys)
        if n < 2:  # there is no other to be told from
            return 0 * features.sum()
        known = sent(torch.from_numpy(self.count[index.numpy()] > 0), device)
        own, queries, chunk = self.rows[sent(index, device)], SCALE * features, CHUNK[device.type]
        with torch.autocast(device.type, enabled=False):
            if self.conditional:
                span = self.starts[classes], self.starts[classes] + self.sizes[classes]
                each = index_cross_entropy(queries, self.keys, own, span=span, chunk=chunk).loss
            else:
                block = min(most, n)
                start = int(torch.randint(n - block + 1, (), generator=keyed_generator(n, self.batches, 10)))
                each = block_cross_entropy(queries, self.keys, own, (start, start + block), chunk=chunk)
        return (each * known).sum() / len(index)

    def note(self, index: Tensor, features: Tensor | None, losses: Tensor, loss: Tensor | None) -> None:
        """Keep what a batch has shown; its backward pass begins with `loss`, or there is none (None)."""
        noted = Noted(index, None if features is None else features.detach(), losses.detach())
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
        device, n = losses.device, len(self.last)
        if self.processes > 1:
            shares = shares_of(len(index), Shard(0, n, n, dist.get_rank(), self.processes), device)
            index, losses = gather(index.to(device), shares).cpu(), gather(losses, shares)
            features = None if features is None else gather(features, shares)
        seen = len(index)
        different, from_end = np.unique(index.numpy()[::-1], return_index=True)
        if len(different) < seen:  # a sample that was drawn twice counts as it was last
            keep = torch.from_numpy(seen - 1 - from_end)
            index, losses = index[keep], losses[sent(keep, device)]
            features = None if features is None else features[sent(keep, device)]
        self.to(losses if features is None else features)
        there, numbers = sent(index, device), index.numpy()
        if features is not None:
            rows, first = self.rows[there], sent(torch.from_numpy(self.count[numbers] == 0), device).unsqueeze(1)
            mixed = F.normalize(MOMENTUM * self.keys[rows] + (1 - MOMENTUM) * features, dim=1)
            self.keys[rows] = torch.where(first, features, mixed)
        self.last[there] = losses.float()
        self.count[numbers] += 1
        self.since += seen
        if self.since >= n:
            self.since -= n
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
            "keys": (twin.keys[twin.rows] if twin.pulls else twin.keys).cpu(),
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
                    f"{tuple(getattr(self, name).shape)}; attach the same model to the same data, with the same weight"
                )
        self.to(state["keys"])
        self.keys[self.rows if self.pulls else slice(0)] = state["keys"]
        self.mean, self.variance = state["mean"].clone(), state["variance"].clone()
        self.count, self.last = state["count"].numpy().copy(), state["last"].clone()
        self.epochs = [row.copy() for row in state["epochs"].numpy()]
        self.batches, self.since, self.waiting = int(state["batches"]), int(state["since"]), []


def spread_of(variance: Tensor) -> Tensor:
    """(D,) variances -> standard deviations, none of them so small that dividing by it makes noise of nothing."""
    return (variance + FLOOR * variance.mean() + TINY).sqrt()


def directions(features: int, made: int) -> Tensor:
    """(D, K) fixed orthogonal directions, the same for every model of this width; the axes where there are as many.

    >>> directions(600, 4).shape, bool((directions(3, 3) == torch.eye(3)).all())
    (torch.Size([600, 4]), True)
    """
    if made == features:
        return torch.eye(features)
    drawn = torch.randn(features, made, dtype=torch.float64, generator=keyed_generator(features, made, 7))
    return torch.linalg.qr(drawn).Q.float().contiguous()  # type: ignore[no-any-return, unused-ignore]
