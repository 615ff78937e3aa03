"""provnet's own class-conditional network, trained by the preset `fast`, many at once.

Its halves hold half of each class, so that all of them have one map of samples and one shape of the index branch. What
is foretold is the margin of the class branch. `fit` trains the network that is attributed; the loss here is that of
`fit` (class branch, index branch with its smoothing and weight), and so are the rates and BatchNorm's averages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from subjects import QUERIES, Data, Recipe, Subject, normalised
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from provnet import open_data
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from provnet.training.config import learning_rate, train_config
from provnet.training.loop import ProvenanceObjective

CLASSES, EACH = 10, 250  # and half of the samples of a class
MEAN, SPREAD = 0.1307, 0.3081
CONFIG = train_config("fast")


class Ready(nn.Module):
    """Inputs are normalised already: torch.func cannot write into another memory format, as `Normalise` does."""

    pictures = False

    def forward(self, x: Tensor) -> Tensor:
        """As they are."""
        return x


class Own(nn.Module):
    """The network of a half; `forward` gives the class branch's logits."""

    def __init__(self) -> None:
        super().__init__()
        layers = NetworkConfig("class-conditional", "small", (1, 28, 28), CLASSES, (MEAN,), (SPREAD,), 255.0)
        self.net = build(layers, IndexMap(np.repeat(np.arange(CLASSES), EACH)))
        self.net.normalise = Ready()  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        """Normalised digits to logits."""
        found = self.net.graded_scores(images)
        assert found is not None
        return found


class Objective(nn.Module):
    """What `fit` trains a batch on; a target is the sample's place in its half, classes one after another."""

    def __init__(self, own: Own) -> None:
        super().__init__()
        self.own = own
        given = CONFIG.task_weight, CONFIG.index_weight, CONFIG.smoothing
        self.objective = ProvenanceObjective(*given)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        net, labels = self.own.net, targets // EACH
        return self.objective(net, net(images, labels), labels, targets).total


def pace(step: int, per_epoch: int, base: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The rate of this step, and BatchNorm's plain averages at first."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(CONFIG, step, per_epoch)
    for norm in base.modules():
        if isinstance(norm, _BatchNorm):
            norm.momentum = max(0.1, 1 / (step + 1))


def balanced(labels: np.ndarray, count: int, seed: int = 1) -> np.ndarray:
    """(S, n) samples of halves that hold half of each class, classes one after another."""
    chance = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == each) for each in range(CLASSES)]
    return np.stack([np.concatenate([np.sort(chance.permutation(m)[:EACH]) for m in members]) for _ in range(count)])


def digits(folder: Path) -> Data:
    """5,000 normalised digits and 1,000 unseen ones."""
    train = open_data("mnist", data_dir=folder, limit=2 * EACH * CLASSES)
    test = open_data("mnist", split="test", data_dir=folder, limit=QUERIES)
    ready = (normalised(each.images, (255 * MEAN,), (255 * SPREAD,)) for each in (train, test))
    x, query_x = ready
    return Data(x, train.labels, query_x, test.labels)


RECIPE = Recipe(CONFIG.epochs, 64, CONFIG.lr, decay=CONFIG.weight_decay, betas=CONFIG.betas, cycle=0.0)
OWN = Subject("own", digits, Own, RECIPE, 50, 50, 10, 0, True)
