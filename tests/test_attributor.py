"""Attributor: what it answers is in the numbers of the run's table, however many samples the network knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import Answered, Attributor
from provnet.base.errors import UsageError
from provnet.runs.run import Run
from tests import banked
from tests.cases import cases
from tests.models.made import NETWORKS

N = 30
HIDDEN = (0, 4, 29)


def hidden(network: str) -> Run:
    run = banked.banked_run(banked.vectors(N, seed=3), network)
    withheld = np.isin(np.arange(N), HIDDEN)
    return replace(run, samples=replace(run.samples, withheld=withheld))


@cases("weights", ["plain", "joint"])
@cases("network", NETWORKS)
def test_a_withheld_sample_has_no_weight(network: str, weights: str) -> None:
    run, images = hidden(network), banked.vectors(N, seed=3).images
    every = torch.arange(N)

    def read(answered: Answered) -> dict[str, torch.Tensor]:
        best = answered.best(N)
        rows = len(best.index)
        found = torch.zeros(rows, N + 1).scatter_(1, best.index.where(best.index >= 0, N), best.weight)[:, :N]
        mass, _ = answered.credit(every, N, -1e9)
        return {
            "listed": found,
            "asked": answered.weight(every.expand(rows, N)),
            "credited": mass.by_group.float(),
            "by_sample": mass.by_sample.unsqueeze(0),
        }

    found = Attributor(run, weights).each(images, read, batch_size=7)
    for name in ("listed", "asked", "credited"):
        assert (found[name][:, list(HIDDEN)] == 0).all()
    assert (found["by_sample"][:, list(HIDDEN)] == 0).all()
    real = found["listed"].sum(1) > 0  # else all samples of the class are withheld
    assert real.any()
    assert torch.allclose(found["asked"][real], found["listed"][real], atol=1e-5)
    assert torch.allclose(found["credited"][real], found["listed"][real], atol=1e-5)
    assert found["by_sample"].sum(0) == pytest.approx(found["credited"][real].double().sum(0), abs=1e-5)


def test_pieces_change_nothing_and_columns_keep_their_order() -> None:
    run, images = hidden("class-independent"), banked.vectors(N, seed=4).images
    seen: list[int] = []
    ask = Attributor(run)
    run.network.train()
    whole = ask.each(images, lambda answered: vars(answered.best(3)))
    parts = ask.each(images, lambda answered: vars(answered.best(3)), batch_size=4, update=seen.append)
    assert not run.network.training or ask.network is not run.network
    assert not ask.network.training
    assert torch.equal(whole["index"], parts["index"])
    assert seen == [4, 8, 12, 16, 20, 24, 28, 30]
    assert provnet.explain(run, images, k=3).index.tolist() == whole["index"].tolist()


def test_weights_share_a_network_and_unknown_ones_are_refused() -> None:
    plain = Attributor(hidden("single"))
    joint = plain.weighing("joint")
    assert joint.network is plain.network
    assert (plain.weights, joint.weights) == ("plain", "joint")
    with pytest.raises(UsageError, match="heavy"):
        Attributor(hidden("single"), "heavy")
