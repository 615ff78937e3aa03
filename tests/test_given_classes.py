"""Classes given to explain: those that do not fit are refused, none is wrapped or ignored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import UsageError
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

NETWORKS = ("single", "class-independent", "class-conditional", "class-conditional-heads")
RUNS: dict = {}


def run(network: str, conditional: bool = True):
    key = network, conditional
    if key not in RUNS:
        x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
        data = provnet.open_data(x, np.array(["a", "b", "c"])[np.arange(12) % 3], class_names=["a", "b", "c", "empty"])
        RUNS[key] = (
            fit(data, network=network, conditional=conditional, config=train_config("fast", epochs=1, batch_size=8)),
            x,
        )
    return RUNS[key]


@cases("network", NETWORKS)
@cases("conditional", [True, False])
@cases("classes", [[0], [0, 1], [0] * 13, [-1] * 12, [4] * 12, [3] * 12])
def test_classes_that_do_not_fit_are_refused(network: str, conditional: bool, classes: list[int]) -> None:
    made, x = run(network, conditional)
    with pytest.raises(UsageError):
        provnet.explain(made, x, k=2, classes=torch.tensor(classes))


def test_one_class_for_twelve_queries_is_refused() -> None:
    made, x = run("class-conditional-heads")
    with pytest.raises(UsageError, match="one for each of 12"):
        provnet.explain(made, x, k=2, classes=torch.tensor([0]))


@pytest.mark.parametrize("network", ["single", "class-independent"])
def test_networks_that_look_at_all_classes_take_none(network: str) -> None:
    made, x = run(network)
    with pytest.raises(UsageError, match="class-conditional"):
        provnet.explain(made, x, k=3, classes=torch.full((12,), 1))
