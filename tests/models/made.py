"""Labels and small networks for the tests of models: classes of very uneven sizes, empty ones among them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from provnet.heads.heads import IndexHead
from provnet.heads.index_map import IndexMap
from provnet.heads.support import Support
from provnet.models.network import IndexTrunk, NetworkConfig, Normalise, ProvenanceNet, ProvenanceOutput, build

NETWORKS = ("single", "class-independent", "class-conditional", "class-conditional-heads")
LAWS = settings(max_examples=60, deadline=None)
UNEVEN = (2, 0, 0, 1, 2, 0, 2, 0, 0)  # classes of 5, 1 and 3


class Labels(NamedTuple):
    labels: np.ndarray
    classes: int

    @property
    def index_map(self) -> IndexMap:
        return IndexMap(self.labels, self.classes)


@st.composite
def uneven_labels(draw: st.DrawFn, largest: int = 60) -> Labels:
    """Labels in any order: empty classes, many classes of one, one class far larger than the others."""
    sizes = draw(st.lists(st.sampled_from((0, 1, 1, 2, 7, largest)), min_size=1, max_size=8).filter(any))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return Labels(np.random.default_rng(draw(st.integers(0, 2**16))).permutation(labels), len(sizes))


def members(index_map: IndexMap, label: int) -> list[int]:
    """The samples of a class, by looking at every label."""
    return [i for i, y in enumerate(index_map.labels.tolist()) if y == label]


def vectors(network: str, index_map: IndexMap, seed: int = 0, **settings: Any) -> ProvenanceNet:
    """An untrained network for vectors of 4, ready to answer."""
    torch.manual_seed(seed)
    return build(NetworkConfig(network, "mlp", (4,), index_map.classes, **settings), index_map).eval()


def around(head: IndexHead, width: int, *, task: bool = True) -> ProvenanceNet:
    """A network that is little more than the head: what it is given are the index features."""
    index_map = head.index_map
    config = NetworkConfig("class-conditional", "mlp", (width,), index_map.classes)
    return ProvenanceNet(
        normalise=Normalise(config),
        backbone=nn.Identity(),
        task_head=nn.Linear(width, index_map.classes) if task else None,
        index_trunk=IndexTrunk(nn.Identity()),
        index_head=cast(Any, head),
        index_map=index_map,
        support=Support(index_map.classes, width),
    ).eval()


def scores_of(output: ProvenanceOutput) -> Tensor:
    """The index scores of a network that has an output layer."""
    assert output.index_scores is not None
    return output.index_scores
