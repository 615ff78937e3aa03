"""An index over some samples on a GPU; by hand there: `python -m pytest -m gpu tests/training/test_subset_gpu.py`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import provnet
from provnet.training.config import train_config
from provnet.training.subset import IndexSubset
from tests.fitting import fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("network", ["class-independent", "class-conditional"])
@pytest.mark.parametrize("head", ["plain", "exemplar", "exemplar-trained"])
def test_a_recorded_step_trains_as_a_plain_one(network: str, head: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(300))
    subset = IndexSubset(np.arange(0, 300, 3))
    config = train_config("robust", epochs=8, batch_size=64, precision="32-true", lr=5e-4)
    plain, recorded = (
        fit(data, network=network, head=head, index_subset=subset, config=config, device="cuda", recorded=way)
        for way in (False, True)
    )
    assert plain.history is not None
    assert recorded.history is not None
    assert recorded.history.shape == (8, 100)
    assert abs(plain.history[1] - recorded.history[1]).max() < 0.02
    assert abs(plain.history[-1].mean() - recorded.history[-1].mean()) < 0.1
    given = data.labels[::3] if network == "class-conditional" else None
    found = provnet.explain(recorded, data.images[::3], k=1, classes=given).index[:, 0]
    assert head == "plain" or (found == np.arange(100)).all()
