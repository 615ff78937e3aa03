"""The weight of a sample that is asked for by name is the one that it has in the whole list."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from provnet.answers.attributor import attribute, weights_of
from provnet.base.errors import UsageError
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.models.keys import restrict_network
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from tests.cases import cases
from tests.models.made import NETWORKS, UNEVEN, vectors

BATCH, N = 6, len(UNEVEN)


def answered(network: str, head: str) -> tuple[ProvenanceNet, ProvenanceOutput]:
    """A network and what it says of six inputs."""
    net = vectors(network, IndexMap(UNEVEN), head=head)
    chance = torch.Generator().manual_seed(1)
    if isinstance(net.index_head, ExemplarHead):
        net.index_head.set_keys(torch.arange(N), torch.randn(N, net.index_head.keys.shape[1], generator=chance))
    x = torch.randn(BATCH, 4, generator=chance) * 9
    with torch.no_grad():
        net.support.fit(net(x).support_features, torch.arange(BATCH) % 3)
        return net, net(x)


def listed(net: ProvenanceNet, output: ProvenanceOutput, weights: str) -> np.ndarray:
    """(B, N) weights as `attribute` lists them, 0 for samples that it does not name."""
    found = attribute(net, output, N, weights)
    whole = np.zeros((BATCH, N))
    for row in range(BATCH):
        for index, weight in zip(found.index[row].tolist(), found.weight[row].tolist(), strict=True):
            if index >= 0:
                whole[row, index] = weight
    return whole


@cases("network", NETWORKS)
@cases("head", ["plain", "exemplar"])
@cases("weights", ["plain", "joint"])
def test_every_weight_is_that_of_the_list(network: str, head: str, weights: str) -> None:
    net, output = answered(network, head)
    every = torch.arange(N).expand(BATCH, -1)
    found = weights_of(net, output, every, weights).detach().numpy()
    assert found == pytest.approx(listed(net, output, weights), abs=1e-5)
    assert found.sum(1) == pytest.approx(np.ones(BATCH), abs=1e-4)
    some = weights_of(net, output, every[:, [4, 1]], weights).detach().numpy()
    assert some == pytest.approx(found[:, [4, 1]], abs=1e-6)


@pytest.mark.parametrize("weights", ["plain", "joint"])
def test_samples_are_counted_among_those_that_may_be_named(weights: str) -> None:
    net, _ = answered("class-independent", "exemplar")
    kept = torch.tensor([8, 0, 3, 4])
    few = restrict_network(net, kept)
    output = few(torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(2)))
    found = attribute(few, output, len(kept), weights)
    expected = torch.zeros(BATCH, len(kept)).scatter_(1, found.index, found.weight)
    every = torch.arange(len(kept)).expand(BATCH, -1)
    assert weights_of(few, output, every, weights).tolist() == pytest.approx(expected.numpy(), abs=1e-5)
    with pytest.raises(UsageError, match=r"index must lie in 0\.\.3"):
        weights_of(few, output, every + 1, weights)


def test_other_weights_are_refused() -> None:
    net, output = answered("single", "plain")
    with pytest.raises(UsageError, match="heavy"):
        weights_of(net, output, torch.zeros(BATCH, 1, dtype=torch.int64), "heavy")


@cases("head", ["plain", "exemplar"])
@cases(
    ("index", "said"),
    [
        (torch.tensor([[0, -1]]), r"index must lie in 0\.\.8, the samples of this network; got -1\.\.0"),
        (torch.tensor([[0, N]]), r"got 0\.\.9"),
        (torch.tensor([[0.0]]), r"index must be int64 of shape \(6, L\).* got torch.float32"),
        (torch.tensor([[0]], dtype=torch.int32), "got torch.int32"),
    ],
)
def test_positions_that_name_no_sample_are_refused(head: str, index: torch.Tensor, said: str) -> None:
    net, output = answered("class-independent", head)
    with pytest.raises(UsageError, match=said):
        weights_of(net, output, index.expand(BATCH, -1))


def test_one_row_of_samples_for_each_input() -> None:
    net, output = answered("class-independent", "plain")
    for shape in ((BATCH - 1, 2), (BATCH,), ()):
        with pytest.raises(UsageError, match=r"of shape \(6, L\), a row of samples for each input; got torch.int64"):
            weights_of(net, output, torch.zeros(shape, dtype=torch.int64))
    assert weights_of(net, output, torch.zeros((BATCH, 0), dtype=torch.int64)).shape == (BATCH, 0)
