"""A provenance network put together by hand around a backbone of one's own, with its training loop written out.

    python examples/own_backbone.py

The short way is `provnet.ProvenanceClassifier(backbone=Backbone()).fit(data)`. This is what it does, without
checkpoints, schedule and log: every part is a plain `nn.Module` and can be replaced. Only networks that `fit` built can
be saved and loaded again: this one is refused when it is saved.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import provnet
from provnet.base.batches import bounds, order
from provnet.heads.heads import SharedHead
from provnet.heads.index_map import IndexMap
from provnet.heads.support import Support
from provnet.models.network import IndexTrunk, NetworkConfig, Normalise, ProvenanceNet
from provnet.runs.run import Run, RunConfig
from provnet.training.calibration import calibrate
from provnet.training.loop import ProvenanceObjective


class Backbone(nn.Module):
    """Anything that maps (B, C, H, W) to (B, features)."""

    features = 128

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(1600, self.features), nn.ReLU(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """(B, 1, 28, 28) -> (B, features)."""
        out: Tensor = self.layers(images)
        return out


def build_by_hand(config: NetworkConfig, index_map: IndexMap) -> ProvenanceNet:
    """A class-conditional network: class branch, index branch that sees the class, head over the largest class."""
    width = Backbone.features
    trunk = nn.Sequential(nn.Linear(width + config.classes, 256), nn.BatchNorm1d(256), nn.ReLU())
    return ProvenanceNet(
        normalise=Normalise(config),
        backbone=Backbone(),
        task_head=nn.Linear(width, config.classes),
        index_trunk=IndexTrunk(trunk, classes=config.classes),
        index_head=SharedHead(256, index_map),
        index_map=index_map,
        support=Support(config.classes, width),
    )


def main(epochs: int = 20, limit: int | None = None) -> None:
    """Build, train, calibrate, explain; `epochs` and `limit` make it smaller."""
    torch.manual_seed(0)
    data = provnet.open_data("embedded", limit=limit)
    test = provnet.open_data("embedded", split="test", limit=limit)
    index_map = IndexMap(data.samples.labels, len(data.class_names))
    config = NetworkConfig(
        "class-conditional", "custom", data.shape, len(data.class_names), mean=(0.1307,), std=(0.3081,), scale=255.0
    )
    net = build_by_hand(config, index_map)
    objective = ProvenanceObjective(task_weight=1.0, index_weight=0.7, smoothing=0.05)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    for epoch in range(epochs):
        shuffled = order(len(data), seed=0, epoch=epoch)
        for start, end in bounds(len(data), batch=64):
            index = shuffled[start:end]
            labels = data.labels[index]
            losses = objective(net, net(data.images[index], labels), labels, targets=index)
            losses.total.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: last batch, class loss {losses.task:.3f}, index loss {losses.index:.3f}")

    threshold = calibrate(net, data.images, seed=0)  # measures the features, sets when to say "no supporting sample"
    run = Run(net.eval(), RunConfig(config, data=data.spec, test=test.spec, support=threshold), data.samples)
    found = provnet.evaluate(run, test, data)
    print("class accuracy", found.class_accuracy, "- index accuracy", found.index_accuracy)
    for e in provnet.explain(run, test.images[:3], k=3):
        print(e.predicted, f"{e.confidence:.3f}", [f"{x.sample_id} {x.weight:.1%}" for x in e.exemplars])


if __name__ == "__main__":
    main()
