"""One training step as a function of tensors alone, and the same step recorded once and replayed on a GPU.

Letters: B batch, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from provnet.data.augment import augment
from provnet.data.policy import Policy
from provnet.data.resident import Batch, ResidentData
from provnet.models.provenance import ProvenanceNet
from provnet.objective import ProvenanceObjective
from provnet.training.subset import Counted, observe

WARM = 3  # steps before a recording, in which libraries choose their algorithms and make room


@dataclass(frozen=True)
class Places:
    """Where a step reads and writes; these tensors stay where they are, so that a recorded step finds them."""

    targets: Tensor  # (N,) int64, of this epoch
    salt: Tensor  # () int64, `epoch_salt` of this epoch
    sums: Tensor  # (5,) float64, see loop.logged
    record: Tensor  # (N,) float32, class loss of each sample in this epoch
    counted: Counted | None = None  # where some samples have no index


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

    def __call__(self, index: Tensor, batch: Batch | None = None, share: float = 1.0) -> Tensor:
        """Train on these samples, fetched already or not yet; returns loss and (on a CPU) norm of the gradient, (2,).

        Nothing here depends on the values of a tensor, so all of it can be recorded. `share` is what this process's
        part of the batch counts.
        """
        with _tf32(self.fabric):
            return self._train(index, batch, share)

    def _train(self, index: Tensor, batch: Batch | None, share: float) -> Tensor:
        net, places = self.net, self.places
        images, labels = self.data.batch(index) if batch is None else batch
        images = augment(images, index, self.policy, seed=0, epoch=places.salt, std=net.normalise.spread)
        output = self.model(images, labels)
        with self.fabric.autocast():
            counted = places.counted
            weight = None if counted is None else counted.weight[index]
            losses = self.objective(net, output, labels, places.targets[index], weight)
        self.fabric.backward(losses.total * share)
        steepness = losses.total.detach() * 0  # a GPU looks at losses alone: bad gradients show in the next one
        if steepness.device.type == "cpu":
            steepness = get_total_norm([p.grad for p in net.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        observe(net.index_head, counted, index, output.index_features)
        with torch.no_grad():
            right = output.logits.argmax(1) == labels
            scale = 1.0 if counted is None else counted.scale  # the figures of the index are over indexed samples
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
