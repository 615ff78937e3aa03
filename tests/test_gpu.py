"""What must hold on a GPU; run by hand there: `python -m pytest -m gpu tests/test_gpu.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import provnet
from provnet.models.provenance import NETWORKS
from provnet.training.config import train_config
from provnet.training.fit import fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_trains_and_explains_as_the_cpu_does(network: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(400))
    run = fit(data, network=network, config=train_config(epochs=30), device="cuda")
    on_cpu = provnet.explain(run, data.images, k=3)
    run.network.to("cuda")
    on_gpu = provnet.explain(run, data.images, k=3)
    assert (on_cpu.index[:, 0] == torch.arange(400).numpy()).mean() > 0.95
    assert (on_cpu.index[:, 0] == on_gpu.index[:, 0]).mean() > 0.99
    assert (on_cpu.supported == on_gpu.supported).mean() > 0.99


def test_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    data = provnet.open_data("embedded").select(torch.arange(400))
    config = train_config(epochs=4)

    def stop(row: object) -> None:
        if row["epoch"] == 2:  # type: ignore[index]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(data, config=config, device="cuda", out=tmp_path / "run", checkpoint_seconds=0, on_epoch=stop)
    run = fit(data, config=config, device="cuda", out=tmp_path / "run", resume=True)
    assert run.history is not None
    assert run.history.shape == (4, 400)
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 4
