"""The training loop: one function, read from top to bottom.

Letters: B batch, N samples. Order, targets, dropout and learning rate are pure functions of (seed, epoch, step), so a
run that stops anywhere goes on from its last checkpoint to the same final weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import get_total_norm

from provnet.base.batches import bounds, epoch_salt, fold, order
from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.dataset import Pair, ResidentData
from provnet.data.modalities.augment import POLICIES, Policy, augment
from provnet.heads.index_map import TargetSampler
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.training.config import TrainConfig, learning_rate
from provnet.training.subset import Indexed

WARM = 3  # steps before a recording, in which libraries choose their algorithms and make room


@dataclass(frozen=True)
class Losses:
    """Mean losses of a batch, and the task's loss of each sample (no gradient) for the record of training."""

    total: Tensor
    task: Tensor
    index: Tensor
    per_sample: Tensor  # (B,)
    found: Tensor  # (B,) bool: whether the target was the best sample; times the weight where there is one
    parts: Tensor | None = None  # of what the task adds, see `Task.parts`


@dataclass(frozen=True)
class ProvenanceObjective:
    """Weighted sum of the task's and the index loss (§3.2; weights and smoothing as app. 7.2).

    A single-branch network has no task loss: its total is the index loss. With `negatives` an exemplar head is trained
    against so many keys a step instead of all. `task_smoothing` is part of the total alone: the losses that are
    reported and kept are those of the targets as given.
    """

    task_weight: float = 0.3
    index_weight: float = 0.7
    smoothing: float = 0.05
    negatives: int = 0
    task_smoothing: float = 0.0

    def __post_init__(self) -> None:
        weights = self.task_weight, self.index_weight
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or sum(weights) == 0:
            raise UsageError(f"loss weights must be 0 or more, finite, not both 0; got {weights[0]}, {weights[1]}")
        for smoothing in (self.smoothing, self.task_smoothing):
            if not 0 <= smoothing < 1:
                raise UsageError(f"label smoothing must lie in [0, 1), got {smoothing}")

    def __call__(
        self,
        net: ProvenanceNet,
        output: ProvenanceOutput,
        labels: Tensor,
        targets: Tensor,
        weight: Tensor | None = None,
    ) -> Losses:
        """Losses of a batch: labels (B,) and target indices (B,); `weight` (B,) is what each index loss counts."""
        each, found = net.index_loss(output, targets, self.smoothing, self.negatives)
        if weight is not None:
            each, found = each * weight, found * weight
        index = each.mean()
        per_sample = net.task.loss(output.logits, labels)
        task = smoothed = per_sample.mean()
        if self.task_smoothing:  # over the classes that have samples
            there = (net.index_map.sizes > 0).expand_as(output.logits) if net.has_empty else None
            smoothed = net.task.loss(output.logits, labels, self.task_smoothing, there).mean()
        total = index if net.task_head is None else self.task_weight * smoothed + self.index_weight * index
        extra, parts = net.task.extra(output.made) or (None, None)
        total = total if extra is None else total + extra
        return Losses(total, task.detach(), index.detach(), per_sample.detach(), found, parts)


@dataclass(frozen=True)
class Places:
    """Where a step reads and writes; these tensors stay where they are, so that a recorded step finds them."""

    targets: Tensor  # (N,) int64, of this epoch
    salt: Tensor  # () int64, `epoch_salt` of this epoch
    sums: Tensor  # (5,) float64, see `logged`
    record: Tensor  # (N,) float32, loss of each sample in this epoch
    indexed: Indexed | None = None  # where some samples have no index


@dataclass(frozen=True)
class Stepper:
    """Everything that takes part in a step."""

    fabric: Any
    net: ProvenanceNet
    model: Any  # `net` as set up by Fabric
    optimizer: Any
    objective: ProvenanceObjective
    policy: Policy
    data: ResidentData
    places: Places

    def __call__(self, index: Tensor, batch: Pair | None = None, share: float = 1.0) -> Tensor:
        """Train on these samples, fetched already or not yet; returns loss and (on a CPU) norm of the gradient, (2,).

        Nothing here depends on the values of a tensor, so all of it can be recorded. `share` is what this process's
        part of the batch counts.
        """
        with _tf32(self.fabric):
            return self._train(index, batch, share)

    def _train(self, index: Tensor, batch: Pair | None, share: float) -> Tensor:
        net, places = self.net, self.places
        images, labels = self.data.batch(index) if batch is None else batch
        images = augment(images, index, self.policy, seed=0, epoch=places.salt, std=net.normalise.spread)
        output = self.model(images, labels)
        with self.fabric.autocast():
            indexed = places.indexed
            weight = None if indexed is None else indexed.weight[index]
            losses = self.objective(net, output, labels, places.targets[index], weight)
        self.fabric.backward(losses.total * share)
        steepness = losses.total.detach() * 0  # a GPU looks at losses alone: bad gradients show in the next one
        if steepness.device.type == "cpu":
            steepness = get_total_norm([p.grad for p in net.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        own = index if indexed is None else indexed.own[index]
        net.index_head.observe(own, output.index_features, weight)
        with torch.no_grad():
            right = net.task.right(output.logits, labels)
            scale = 1.0 if indexed is None else indexed.scale  # the figures of the index are over indexed samples
            means = torch.stack([losses.total.detach(), losses.task, losses.index * scale]).double() * len(index)
            hits = torch.stack([right.sum().double(), losses.found.sum().double() * scale])
            parts = [] if losses.parts is None else [losses.parts.double() * len(index)]
            places.sums.add_(torch.cat([means, hits, *parts]))
            places.record[index] = losses.per_sample
        return torch.stack([losses.total.detach(), steepness])


@contextmanager
def _tf32(fabric: Any) -> Iterator[None]:
    """Mixed precision lets products of fp32 factors be rounded, too; the caller's setting is put back."""
    if fabric.device.type != "cuda" or fabric._precision.precision != "bf16-mixed":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def record(step: Stepper, index: Tensor) -> Callable[[Tensor], Tensor]:
    """Record a step for batches of the size of `index`; what is returned replays it for other samples.

    A step of a small network is hundreds of short programs, and a GPU waits for each to be launched; a recording is
    launched at once. Dropout and other draws follow torch's generator at each replay, as in a plain step.
    """
    place = index.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(place)

    def replay(index: Tensor, kept: Stepper = step) -> Tensor:  # `step` holds the memory that the recording uses
        place.copy_(index)
        graph.replay()
        return result.clone()

    return replay


SUMS = ("loss", "task_loss", "index_loss", "class_accuracy", "index_accuracy")
DROPOUT = 3  # third kind of randomness beside order (1) and targets (2)


@dataclass
class TrainState:
    """Where training is: everything beside weights and optimiser that a checkpoint must hold."""

    step: int
    sums: Tensor  # (5,) float64, running sums of this epoch over samples, see `logged`
    record: Tensor  # (N,) float32, class loss of each sample in this epoch
    log: list[dict[str, Any]] = field(default_factory=list)  # one row a finished epoch
    history: list[np.ndarray] = field(default_factory=list)  # one (N,) float16 a finished epoch
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)  # weights by epoch, for influence


def logged(net: ProvenanceNet) -> tuple[str, ...]:
    """What is summed up for a network: SUMS, and the parts of what its task adds to the loss."""
    return SUMS + net.task.parts


def fresh_state(n: int, device: torch.device, names: tuple[str, ...] = SUMS) -> TrainState:
    """The state before the first step."""
    return TrainState(0, torch.zeros(len(names), dtype=torch.float64, device=device), torch.zeros(n, device=device))


@dataclass(frozen=True)
class TrainingSet:
    """Images and labels, wherever they lie; ids to name samples in errors; which of them have an index, if not all."""

    samples: ResidentData
    sample_ids: tuple[str, ...]
    indexed: Indexed | None = None


class Learner(NamedTuple):
    """What is trained; `model` is `net` as set up by Fabric."""

    fabric: Any
    net: ProvenanceNet
    model: Any
    optimizer: Any


def train(
    learner: Learner,
    data: TrainingSet,
    sampler: TargetSampler,
    config: TrainConfig,
    state: TrainState,
    *,
    on_step: Callable[[TrainState, Mapping[str, float]], None],
    on_epoch: Callable[[TrainState], None],
    recorded: bool = False,
) -> None:
    """Train from `state.step` to the end.

    With `recorded` whole batches are trained on by a recorded step, see `record`; it needs a GPU that holds the
    data, one process, and layers that never look at values.

    `on_step` is called whenever losses were checked to be finite (every step on a CPU, every 50 on a GPU);
    `on_epoch` after an epoch's row was added to the log.
    """
    fabric, net, model, optimizer = learner
    n, device, names = len(data.samples), fabric.device, logged(net)
    batches = bounds(n, config.batch_size, least=2 * fabric.world_size)
    check_every = 1 if device.type == "cpu" else 50
    step = _stepper(learner, data, config, state)
    places, replay, begun = step.places, None, state.step
    recent: list[Tensor] = []  # losses and norms of gradients not yet checked
    _train_mode(net, model)
    with _plain_averages(net) as (settled, average):
        for epoch in range(state.step // len(batches), config.epochs):
            permutation = order(n, config.seed, epoch).to(data.samples.images.device)
            drawn = sampler.draw(config.seed, epoch)
            places.targets.copy_(drawn if data.indexed is None else drawn[data.indexed.own.cpu()])
            places.salt.fill_(epoch_salt(config.seed, epoch))
            left = batches[state.step % len(batches) :]
            chosen = [_share(permutation[start:end], fabric) for start, end in left]
            ready = itertools.repeat(None) if data.samples.resident else data.samples.batches(chosen)
            for (start, end), index, batch in zip(left, chosen, ready, strict=False):
                index = index.to(device)
                torch.manual_seed(fold(config.seed, state.step, DROPOUT, fabric.global_rank))
                for group in optimizer.param_groups:
                    _set_rate(group, learning_rate(config, state.step, len(batches)))
                average(state.step)
                if recorded and len(index) == config.batch_size and state.step >= max(begun + WARM, settled):
                    replay = replay or record(step, index)
                    recent.append(replay(index))
                else:
                    # DDP averages over processes: weigh uneven shares
                    share = len(index) * fabric.world_size / (end - start) if end - start > 1 else 1.0
                    recent.append(step(index, batch, share))
                state.step += 1
                if len(recent) >= check_every or end == n:
                    _check_finite(fabric, recent, state.step, batches, data, config)
                    recent.clear()
                    if end < n:
                        seen = max(end / fabric.world_size, 1)
                        on_step(state, dict(zip(names, (state.sums / seen).tolist(), strict=True)))
            _finish_epoch(fabric, state, epoch, n, names)
            _share_statistics(fabric, net)
            on_epoch(state)


@contextmanager
def _plain_averages(net: ProvenanceNet) -> Iterator[tuple[int, Callable[[int], None]]]:
    """BatchNorm takes plain averages at first, as the values that it starts with are far off.

    Gives the step from which on it takes its usual ones, and what is to be called before each step.
    """
    norms = [(m, m.momentum) for m in net.modules() if isinstance(m, _BatchNorm) and m.momentum is not None]

    def average(step: int) -> None:
        for norm, momentum in norms:
            norm.momentum = max(momentum, 1 / (step + 1))

    yield max((math.ceil(1 / momentum) for _, momentum in norms if momentum), default=0), average
    for norm, momentum in norms:
        norm.momentum = momentum


def _stepper(learner: Learner, data: TrainingSet, config: TrainConfig, state: TrainState) -> Stepper:
    """A step of this recipe, with places of its own for what an epoch changes."""
    fabric, net, model, optimizer = learner
    weights = config.task_weight, config.index_weight
    objective = ProvenanceObjective(*weights, config.smoothing, config.negatives, config.task_smoothing)
    n, device = len(data.samples), fabric.device
    salt, targets = (torch.zeros(shape, dtype=torch.int64, device=device) for shape in ((), (n,)))
    places = Places(targets, salt, state.sums, state.record, data.indexed)
    return Stepper(fabric, net, model, optimizer, objective, POLICIES[config.augment], data.samples, places)


def _train_mode(net: ProvenanceNet, model: Any) -> None:
    """Training mode, but for what is frozen: a part of the backbone none of whose parameters is trained stays as it is.

    Else BatchNorm would go on measuring there, and a pretrained backbone would not be the one that was pretrained.
    """
    model.train()
    for part in net.backbone.modules():
        own = list(part.parameters())
        if own and not any(p.requires_grad for p in own):
            part.eval()


def _set_rate(group: dict[str, Any], rate: float) -> None:
    """Set a learning rate; where it is a tensor a recorded step reads it from there."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _share(index: Tensor, fabric: Any) -> Tensor:
    """What of a batch this process trains on; a data set of one sample is shown twice, as BatchNorm needs two."""
    return index.repeat(2) if len(index) == 1 else index[fabric.global_rank :: fabric.world_size]


def _finish_epoch(fabric: Any, state: TrainState, epoch: int, n: int, names: tuple[str, ...]) -> None:
    """Add the epoch's row and per-sample losses, and clear the running values."""
    sums, record = state.sums, state.record
    if fabric.world_size > 1:
        sums = fabric.all_reduce(sums, reduce_op="sum")
        record = fabric.all_reduce(record, reduce_op="sum")
    count = n if n > 1 else 2  # a single sample is shown twice
    row = dict(zip(names, (sums / count).tolist(), strict=True))
    state.log.append({"epoch": epoch + 1, "step": state.step, **row})
    state.history.append(record.clamp(max=60_000.0).half().cpu().numpy())
    state.sums.zero_()  # in place: a recorded step goes on adding there
    state.record.zero_()


def _share_statistics(fabric: Any, net: ProvenanceNet) -> None:
    """Each process measured BatchNorm's statistics on samples of its own: all go on with the mean."""
    if fabric.world_size > 1:
        for norm in (m for m in net.modules() if isinstance(m, _BatchNorm) and m.training):  # frozen ones measure none
            for value in (norm.running_mean, norm.running_var):
                if value is not None:
                    value.copy_(fabric.all_reduce(value, reduce_op="mean"))


def _check_finite(
    fabric: Any, recent: list[Tensor], step: int, batches: list[tuple[int, int]], data: TrainingSet, config: TrainConfig
) -> None:
    """Stop at the first loss or gradient that is not finite, naming its step and samples."""
    finite = torch.isfinite(torch.stack(recent))  # (steps, 2)
    good = finite.all(1)
    if bool(good.all()):
        return
    first = int((~good).nonzero()[0])
    bad = step - len(recent) + first
    what = "gradient" if bool(finite[first, 0]) else "loss"
    epoch, number = divmod(bad, len(batches))
    index = order(len(data.samples), config.seed, epoch)[slice(*batches[number])].tolist()
    names = ", ".join(data.sample_ids[i] for i in index[:8]) + (
        f", and {len(index) - 8} more" if len(index) > 8 else ""
    )
    raise NonFiniteError(
        f"the {what} is not finite at step {bad} (epoch {epoch + 1}); samples of the batch: {names}. "
        f"Lower the learning rate (now {config.lr}) or look at these samples"
    )
