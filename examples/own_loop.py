"""A model and a training loop of one's own: two lines of provnet in it, and the samples behind every answer after it.

    python examples/own_loop.py

The short way, with a network and a loop of provnet's, is `provnet.ProvenanceClassifier().fit(data)`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import provnet


class Network(nn.Module):
    """Anything that gives class scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(1600, 128), nn.ReLU(),
        )  # fmt: skip
        self.classes = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 1, 28, 28) -> (B, 10)."""
        out: Tensor = self.classes(self.layers(images))
        return out


def main(epochs: int = 5, limit: int | None = None) -> None:
    """Train, index, explain; `epochs` and `limit` make it smaller."""
    torch.manual_seed(0)
    data = provnet.open_data("embedded", limit=limit)
    test = provnet.open_data("embedded", split="test", limit=limit)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    prov = provnet.attach(model, data)
    print(prov)
    for epoch in range(epochs):
        for x, y, index in DataLoader(prov.dataset(augment="robust"), batch_size=64, shuffle=True):
            loss = F.cross_entropy(model(x), y) + prov.loss(index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: last batch, loss {loss.detach():.3f}")
    run = prov.finish()

    found = provnet.evaluate(run, test, data)
    print("class accuracy", found.class_accuracy, "- index accuracy", found.index_accuracy)
    for e in run.explain(test.images[:3], k=3):
        print(e.predicted, f"{e.confidence:.3f}", [f"{x.sample_id} {x.weight:.1%}" for x in e.exemplars])


if __name__ == "__main__":
    main()
