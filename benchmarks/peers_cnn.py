"""The small plain CNN that `peers.py` has gradient methods attribute, trained on all samples or on some.

No BatchNorm and no dropout, so that every library can differentiate it sample by sample and none has to leave layers
out. Its last layer is named `classes`, as those libraries ask for it by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, RATE, DECAY = 64, 2e-3, 1e-3
PARTS = 4  # of training, with a checkpoint at the end of each


class Cnn(nn.Module):
    """Two strided convolutions and 32 features: some 55,000 parameters for digits of 28 x 28."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        convs = [nn.Conv2d(shape[0], 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1)]
        sides = [-(-side // 4) for side in shape[1:]]
        hidden = nn.Linear(32 * sides[0] * sides[1], 32)
        self.body = nn.Sequential(*convs, nn.ReLU(), nn.Flatten(), hidden, nn.ReLU())
        self.classes = nn.Linear(32, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of normalised pictures."""
        found: Tensor = self.classes(self.body(inputs))
        return found


@dataclass(frozen=True, eq=False)
class Trained:
    """A CNN, its checkpoints, each with the mean learning rate before it, and (E, N) losses of its training samples."""

    net: Cnn
    checkpoints: list[tuple[dict[str, Tensor], float]]
    course: np.ndarray
    seconds: float


@dataclass(frozen=True, eq=False)
class Subject:
    """What is attributed: networks trained on the same samples, each from other initial weights; the first answers."""

    inputs: Tensor
    labels: Tensor
    trained: list[Trained]
    prepared: Callable[[Tensor], Tensor]
    seed: int  # of what libraries draw

    @property
    def net(self) -> Cnn:
        """The network that answers."""
        return self.trained[0].net

    def queries(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised pictures and, as queries carry no label, the classes that the network predicts."""
        inputs = self.prepared(images)
        return inputs, logits(self.net, inputs).argmax(1)


def normaliser(images: Tensor) -> Callable[[Tensor], Tensor]:
    """Bytes to floats with the mean and spread of these pictures.

    >>> normaliser(torch.tensor([0, 255], dtype=torch.uint8))(torch.tensor([255], dtype=torch.uint8)).item() > 0
    True
    """
    values = images.float() / 255
    mean, spread = float(values.mean()), float(values.std())
    return lambda pictures: (pictures.float() / 255 - mean) / spread


def train_cnn(inputs: Tensor, labels: Tensor, classes: int, *, epochs: int, seed: int) -> Trained:
    """Train from scratch: AdamW, one cycle, no augmentation."""
    began = time.perf_counter()
    torch.manual_seed(seed)
    net = Cnn(tuple(inputs.shape[1:]), classes).train()
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    steps = epochs * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    course = np.zeros((epochs, len(inputs)), np.float32)
    rates: list[float] = []
    states = []
    ends = {round(epochs * part / PARTS) for part in range(1, PARTS + 1)}
    for epoch in range(epochs):
        rates.append(float(schedule.get_last_lr()[0]))
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            loss = F.cross_entropy(net(inputs[rows]), labels[rows], reduction="none")
            optimizer.zero_grad(set_to_none=True)
            loss.mean().backward()
            optimizer.step()
            schedule.step()
            course[epoch, rows.numpy()] = loss.detach().numpy()
        if epoch + 1 in ends:
            states.append((epoch + 1, {name: value.clone() for name, value in net.state_dict().items()}))
    edges = [0, *(end for end, _ in states)]
    weights = [float(np.mean(rates[first:last])) for first, last in pairwise(edges)]
    kept = [(state, weight) for (_, state), weight in zip(states, weights, strict=True)]
    return Trained(net.eval(), kept, course, time.perf_counter() - began)


@torch.no_grad()
def logits(net: Cnn, inputs: Tensor) -> Tensor:
    """(B, C), a few hundred at a time."""
    return torch.cat([net(part) for part in torch.split(inputs, 512)])


@torch.no_grad()
def features(net: Cnn, inputs: Tensor) -> Tensor:
    """(B, 32) of unit length: what the last layer sees."""
    return F.normalize(torch.cat([net.body(part) for part in torch.split(inputs, 512)]), dim=1)


def margins(scores: Tensor, classes: Tensor) -> Tensor:
    """(B,) how far the logit of a class lies above the log-sum-exp of the others: what TRAK and its kin predict.

    >>> margins(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([2.])
    """
    own = scores.gather(1, classes.unsqueeze(1)).squeeze(1)
    return own - scores.scatter(1, classes.unsqueeze(1), -torch.inf).logsumexp(1)
