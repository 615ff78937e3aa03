"""Make golden runs: `python -m tests.golden.make NAME...` from the root of the project.

They are kept for ever: a later provnet must read them and say the same. Only a new format version, or a new network,
is a reason to run this again, and then into a new folder. Weights are multiples of 1/4 and mostly 0, so that sums
are exact in any order and the files compress well.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provnet.data.dataset import DataSpec
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, ProvenanceNet, ProvenanceOutput, build
from provnet.runs.run import Run, RunConfig, write_run
from provnet.samples.identity import SampleTable

HERE = Path(__file__).parent
PLAIN = ("single", "class-independent", "class-conditional", "class-conditional-heads")
NETWORKS: dict[str, dict[str, Any]] = {
    **{name: {"network": name} for name in PLAIN},
    "keys": {"network": "class-independent", "head": "exemplar", "key_width": 8},
    "keys-conditional-int8": {"network": "class-conditional", "head": "exemplar", "key_width": 8, "key_type": "int8"},
}
LABELS = (0, 1, 0, 2, 2, 1, 0, 2, 0, 1, 2)
K = 2


def inputs() -> torch.Tensor:
    """Six queries of four values, multiples of 1/8."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(-16, 17, (6, 4), generator=generator) / 8


def samples() -> SampleTable:
    """Eleven samples with hashes of their names; the last class is empty."""
    names = tuple(f"train/{i}" for i in range(len(LABELS)))
    raw = np.stack([np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint8) for name in names])
    return SampleTable(
        sample_ids=names,
        sha256=raw,
        pixel_sha256=raw[::-1].copy(),
        labels=np.array(LABELS, dtype=np.int64),
        class_names=("cat", "dog", "héron", "empty"),
        paths=tuple(None if i % 2 else f"p/{i}.png" for i in range(len(LABELS))),
        sources=tuple("" if i % 3 else None for i in range(len(LABELS))),
    )


def exemplars(network: ProvenanceNet, table: SampleTable, images: torch.Tensor) -> list[list[str]]:
    """Ids of the best K samples of each query."""
    with torch.inference_mode():
        out = network(images)
    index = network.index_head.to_index(scores_of(network, out).topk(K, dim=1).indices, out.classes)
    if isinstance(network.index_head, ExemplarHead):
        best = network.index_head.best(out.index_features, out.classes, K).index
        assert torch.equal(best, index)
    return [[table.sample_ids[int(i)] for i in row] for row in index]


def scores_of(network: ProvenanceNet, out: ProvenanceOutput) -> torch.Tensor:
    """(B, slots), also of keys."""
    if out.index_scores is not None:
        return out.index_scores
    with torch.inference_mode():
        return network.index_head(out.index_features, out.classes)


def set_weights(network: ProvenanceNet, seed: int) -> None:
    """Coarse weights, sparse beyond the first layer; variances that make every normalisation an exact 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            coarse = torch.randint(-4, 5, parameter.shape, generator=generator) / 4
            share = 0.5 if parameter.ndim == 2 and parameter.shape[1] == 4 else 0.06 if parameter.ndim == 2 else 0.02
            kept = torch.rand(parameter.shape, generator=generator) < share
            parameter.copy_(torch.where(kept, coarse, torch.zeros(())))
        head = network.index_head
        if isinstance(head, ExemplarHead):
            head.open_keys(trained=False)
            index = torch.arange(len(LABELS))
            head.set_keys(index, torch.randn(len(index), head.keys.shape[1], generator=generator))
            head.close_keys()
            head.log_scale.fill_(3.0)
            head.learned.copy_(torch.tensor([9, len(LABELS)]))
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.weight.fill_(1.0)
                module.running_mean.copy_(torch.randint(-1, 2, module.running_mean.shape, generator=generator) / 4)
                module.running_var.fill_(1.0 - module.eps)


def telling(network: ProvenanceNet, table: SampleTable) -> bool:
    """Different answers for different inputs, and no two scores so close that rounding could swap them."""
    with torch.inference_mode():
        out = network(inputs())
    ranked = scores_of(network, out).sort(1, descending=True).values[:, : K + 1]
    gaps = (ranked[:, :-1] - ranked[:, 1:]).min()
    different = len({tuple(row) for row in exemplars(network, table, inputs())})
    safe = int((network.index_map.sizes[out.classes]).min()) > K
    return bool(gaps > 0.05) and different >= 3 and len(set(out.classes.tolist())) >= 2 and safe


def golden_run(name: str) -> Run:
    """One tiny run of a network."""
    table = samples()
    settings = {"backbone": "mlp", "input_shape": (4,), "classes": len(table.class_names), "alpha": 0.25}
    config = NetworkConfig(**NETWORKS[name], **settings, mean=(0.5,), std=(2.0,), scale=1.0)
    network = build(config, IndexMap(table.labels, config.classes)).eval()
    for seed in range(1000):
        set_weights(network, seed)
        if telling(network, table):
            break
    history = (np.arange(2 * len(table)).reshape(2, -1) / 16).astype(np.float16)
    about = RunConfig(
        network=config,
        data=DataSpec("arrays", "arrays"),
        training={"epochs": 2, "seed": 0},
        support={"statistic": "logit", "threshold": 0.5, "level": 0.05, "calibrated_on": "noise", "n": 9},
        versions={"provnet": "0.1.0"},
    )
    return Run(network, about, table, history)


def expected(run: Run) -> dict[str, object]:
    """What a later provnet must say of the inputs."""
    images = inputs()
    with torch.inference_mode():
        out = run.network(images)
    best = exemplars(run.network, run.samples, images)
    return {
        "inputs": images.tolist(),
        "logits": out.logits.tolist(),
        "classes": out.classes.tolist(),
        "best_score": scores_of(run.network, out).amax(1).tolist(),
        "exemplars": best,
        "fingerprint": run.samples.fingerprint,
        "content_root": run.samples.content_root,
    }


if __name__ == "__main__":
    for network_name in sys.argv[1:] or NETWORKS:
        made = golden_run(network_name)
        write_run(made, HERE / network_name)
        (HERE / f"{network_name}.json").write_text(json.dumps(expected(made), indent=1) + "\n", "utf-8")
