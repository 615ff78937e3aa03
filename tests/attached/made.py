"""Models and loops of somebody else: nothing in them knows provnet but the two lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import provnet
from provnet.attached.provenance import Provenance
from provnet.data.dataset import Dataset, ImageData
from tests.digits import training


def cnn(classes: int = 10) -> nn.Sequential:
    """A small convolutional network; its features are what layer "7" is given."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def mlp(inputs: int = 6, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, classes))


def vectors(n: int = 40) -> ImageData:
    """Vectors of three classes, one of them twice."""
    rows = torch.randn(n, 6, generator=torch.Generator().manual_seed(1))
    rows[5] = rows[2]
    return provnet.open_data(rows.numpy(), [i % 3 for i in range(n)])


def attach(model: nn.Module, data: Dataset, **given: Any) -> Provenance:
    """With an index loss, which the default has not."""
    return provnet.attach(model, data, **{"weight": 0.03} | given)


def loader(prov: Provenance, batch: int = 16, **given: Any) -> DataLoader[Any]:
    return DataLoader(prov.dataset(given.pop("augment", None)), batch_size=batch, shuffle=True, **given)


def train(model: nn.Module, prov: Provenance, epochs: int = 2, **given: Any) -> list[float]:
    """The loop that the user has, with the two lines in it."""
    return list(steps(model, prov, epochs, **given))


def steps(model: nn.Module, prov: Provenance, epochs: int = 2, **given: Any) -> Iterator[float]:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(epochs):
        for x, y, index in loader(prov, **given):
            loss: Tensor = F.cross_entropy(model(x), y) + prov.loss(index)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            yield float(loss.detach())


__all__ = ["attach", "cnn", "loader", "mlp", "steps", "train", "training", "vectors"]
