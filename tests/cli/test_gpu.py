"""The command line on a GPU; run by hand there: `python -m pytest -m gpu tests/cli/test_gpu.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from .conftest import Call

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("network", ["single", "class-conditional"])
def test_train_and_evaluate(network: str, data: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    wishes = ("--network", network, "--alpha", 0.2, "--epochs", 14, "--batch-size", 8, "--device", "cuda")
    assert call("train", data, "--out", out, *wishes).code == 0
    on_gpu = call("evaluate", out, "--json", "--device", "cuda")
    on_cpu = call("evaluate", out, "--json", "--device", "cpu")
    assert on_gpu.code == on_cpu.code == 0
    assert abs(on_gpu.json["index_accuracy"]["value"] - on_cpu.json["index_accuracy"]["value"]) < 0.1
