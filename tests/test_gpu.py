"""What must hold on a GPU; run by hand there: `python -m pytest -m gpu tests/test_gpu.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import provnet
from provnet.heads.heads import WideLinear
from provnet.models.network import NETWORKS
from provnet.training.config import train_config
from tests.fitting import fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_trains_and_explains_as_the_cpu_does(network: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(400))
    run = fit(data, network=network, config=train_config("fast", epochs=30), device="cuda")
    on_cpu = provnet.explain(run, data.images, k=3)
    run.network.to("cuda")
    on_gpu = provnet.explain(run, data.images, k=3)
    assert (on_cpu.index[:, 0] == torch.arange(400).numpy()).mean() > 0.95
    assert (on_cpu.index[:, 0] == on_gpu.index[:, 0]).mean() > 0.99
    assert (on_cpu.supported == on_gpu.supported).mean() > 0.99


def test_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    data = provnet.open_data("embedded").select(torch.arange(400))
    config = train_config("fast", epochs=4)

    def stop(row: object) -> None:
        if row["epoch"] == 2:  # type: ignore[index]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(data, config=config, device="cuda", out=tmp_path / "run", checkpoint_seconds=0, on_epoch=stop)
    run = fit(data, config=config, device="cuda", out=tmp_path / "run", resume=True)
    assert run.history is not None
    assert run.history.shape == (4, 400)
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("head", ["plain", "exemplar", "exemplar-trained"])
def test_a_recorded_step_trains_as_a_plain_one(network: str, head: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(300))
    config = train_config("robust", epochs=8, batch_size=64, precision="32-true", lr=5e-4)
    plain, recorded = (
        fit(data, network=network, head=head, config=config, device="cuda", recorded=way) for way in (False, True)
    )
    assert plain.history is not None
    assert recorded.history is not None
    # sums of floats in another order grow apart over the steps: the first epoch is all but equal
    assert abs(plain.history[1] - recorded.history[1]).max() < 0.02
    assert abs(plain.history[-1].mean() - recorded.history[-1].mean()) < 0.1
    given = data.labels if network.startswith("class-conditional") else None
    found = provnet.explain(recorded, data.images, k=1, classes=given).index[:, 0]
    assert head == "plain" or (found == torch.arange(300).numpy()).all()


def test_a_recorded_step_draws_anew() -> None:
    """Augmentation and dropout of a replay follow epoch and step: two epochs of the same samples differ."""
    data = provnet.open_data("embedded").select(torch.arange(256))
    config = train_config("robust", epochs=12, batch_size=256, lr=1e-12, weight_decay=0.0)
    history = fit(data, network="class-independent", config=config, device="cuda").history
    assert history is not None
    assert abs(history[-1] - history[-2]).max() > 0.01


def test_sampled_keys_can_be_recorded() -> None:
    data = provnet.open_data("embedded").select(torch.arange(600))
    config = train_config("robust", epochs=6, batch_size=64, negatives=100)
    run = fit(data, network="class-independent", config=config, device="cuda")
    assert (provnet.explain(run, data.images, k=1).index[:, 0] == torch.arange(600).numpy()).all()


def test_a_wide_layer_multiplies_its_own_weights_in_small_batches() -> None:
    layer = WideLinear(1024, 2048, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        small, large = layer(torch.zeros(8, 1024, device="cuda")), layer(torch.zeros(512, 1024, device="cuda"))
    assert (small.dtype, large.dtype) == (torch.float32, torch.bfloat16)


def test_the_papers_network_trains_in_mixed_precision_and_leaves_settings_alone() -> None:
    data = provnet.open_data("embedded").select(torch.arange(512))
    before = torch.backends.cuda.matmul.allow_tf32
    run = fit(data, network="single", config=train_config("paper", epochs=12, batch_size=64), device="cuda")
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert (provnet.explain(run, data.images, k=1).index[:, 0] == torch.arange(512).numpy()).mean() > 0.5
    assert all(p.is_contiguous() for p in run.network.parameters())
