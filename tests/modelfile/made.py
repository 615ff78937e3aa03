"""Small runs made for the tests of model files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provnet.data.dataset import DataSpec
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from provnet.runs.fileset import NAME
from provnet.runs.run import Run, RunConfig
from provnet.runs.safe import write_json
from provnet.samples.identity import SampleTable

NETWORKS = ("single", "class-independent", "class-conditional", "class-conditional-heads")
ODD = ("plain", "é/ü", "a\nb", "p\udcff", "\U0001f600", "", "con.png", "x" * 255)


def sample_table(n: int = 13, classes: int = 3) -> SampleTable:
    """Every kind of name that a file may have; one class is empty."""
    rng = np.random.default_rng(n)
    labels = rng.integers(0, classes, n)
    names = [*(f"class {c}" for c in range(classes)), "empty <b>|\x1b[2J"]
    return SampleTable(
        sample_ids=tuple(f"{ODD[i % len(ODD)]}{i}" for i in range(n)),
        sha256=rng.integers(0, 256, (n, 32), dtype=np.uint8),
        pixel_sha256=rng.integers(0, 256, (n, 32), dtype=np.uint8),
        labels=labels.astype(np.int64),
        class_names=tuple(names),
        paths=tuple(ODD[i % len(ODD)] if i % 3 else None for i in range(n)),
        sources=tuple("" if i % 2 else None for i in range(n)),
    )


def make_run(network: str = "class-conditional", seed: int = 0, n: int = 13, **settings: Any) -> Run:
    """An untrained run with weights that depend on the seed."""
    samples = sample_table(n)
    shape = settings.pop("shape", (4,))
    config = NetworkConfig(network, settings.pop("backbone", "mlp"), shape, len(samples.class_names), **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build(config, IndexMap(samples.labels, config.classes))
        for name, value in net.named_buffers():
            if "running" in name:
                value.uniform_(0.5, 1.5)
        history = torch.rand(2, n).to(torch.float16).numpy()
    extra = RunConfig(
        network=config,
        data=DataSpec("/data/\udcff", "folder", options={"size": [8, 8]}),
        training={"seed": seed, "epochs": 2},
        support={"statistic": "logit", "threshold": -0.25, "level": 0.05},
        versions={"provnet": "0.1.0"},
        evaluation={"class_accuracy": {"value": 0.5, "n": 10, "low": 0.2, "high": 0.8}},
    )
    return Run(net.eval(), extra, samples, history)


def weights_digest(run: Run) -> str:
    """One hash of all weights."""
    digest = hashlib.sha256()
    for name, value in sorted(run.network.state_dict().items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def remake_manifest(folder: Path, change: Callable[[dict[str, Any]], Any] | None = None) -> None:
    """What a hostile maker would do: a manifest that fits the changed files (or was itself changed)."""
    names = json.loads((folder / NAME).read_text())["files"]
    files = {}
    for name in names:
        raw = (folder / name).read_bytes()
        files[name] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    content: dict[str, Any] = {"format_version": 1, "files": files}
    if change is not None:
        change(content)
    own = hashlib.sha256(write_json(content, NAME)).hexdigest()
    (folder / NAME).write_bytes(write_json({**content, "sha256": own}, NAME))
