"""Small runs with keys for the tests of the bank: not trained, but every key is its sample's own vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import provnet
from provnet.data.dataset import ImageData
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.models.keys import fill_keys
from provnet.models.network import NetworkConfig, build
from provnet.runs.run import Run, RunConfig

WIDTH, CLASSES = 6, 4


def vectors(n: int, seed: int, classes: int = CLASSES) -> ImageData:
    """Random vectors with labels in turn; ids train/0, train/1, ..."""
    values = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)
    return provnet.open_data(values, np.arange(n) % classes, class_names=[f"class {c}" for c in range(CLASSES)])


def banked_run(
    data: ImageData, network: str = "class-independent", *, seed: int = 0, head: str = "exemplar", **settings: Any
) -> Run:
    """A run on `data` whose weights depend on the seed alone."""
    config = NetworkConfig(
        network, "mlp", data.shape, len(data.class_names), head=head, **{"key_width": 16, **settings}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build(config, IndexMap(data.samples.labels, config.classes)).eval()
        net.support.fit(net(data.images).support_features.detach(), data.labels)
    if isinstance(net.index_head, ExemplarHead):
        net.index_head.open_keys(trained=False)
        fill_keys(net, data.images)
        net.index_head.close_keys()
    history = np.random.default_rng(seed).random((2, len(data))).astype(np.float16)
    return Run(net, RunConfig(config, data.spec, support={"threshold": -9.0}), data.samples, history)


def ids(*numbers: int) -> list[str]:
    """The ids of some samples of BASE."""
    return [f"train/{number}" for number in numbers]


def pieces(data: ImageData) -> list[ImageData]:
    """Each sample alone."""
    return [data.select(np.array([row])) for row in range(len(data))]


NETWORKS = ("single", "class-independent", "class-conditional")
BASE, MORE, LAST = vectors(12, seed=1), vectors(5, seed=2), vectors(4, seed=3)
RUNS = {(n, t): banked_run(BASE, n, key_type=t) for n in NETWORKS for t in ("fp32", "bf16", "int8")}  # all of BASE
