"""Make golden runs of backbones: `python -m tests.backbones.make NAME...` from the root of the project.

They are kept for ever, as those of tests/golden are: a later provnet must read them and say the same, since the layers
behind a name never change. Only a new name is a reason to run this again, for that name. Runs of large networks are
small here because nearly all weights are 0 and the folder is packed.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

from provnet.data.dataset import DataSpec
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, ProvenanceNet, ProvenanceVAE, build
from provnet.runs.run import Run, RunConfig, write_run
from tests.golden.make import K, exemplars, samples, scores_of

HERE = Path(__file__).parent
TWO, HEADS = {"network": "class-conditional"}, {"network": "class-conditional-heads", "input_shape": (1, 8, 4)}
SHARING = {"network": "class-independent", "input_shape": (1, 5, 3)}  # sides that pooling has to round up
NAMES: dict[str, dict[str, Any]] = {
    "paper-single": {"network": "single", "input_shape": (1, 9, 7)},
    "paper": {**TWO, "input_shape": (3, 9, 7)},
    "small": {**TWO, "input_shape": (1, 9, 7)},
    "medium": {**TWO, "input_shape": (1, 9, 7)},
    "residual": {**TWO, "input_shape": (3, 9, 7)},
    "sharing-small": {**SHARING, "level": 1},
    "sharing-medium": {**SHARING, "level": 2},
    "sharing-large": {**SHARING, "level": 3},
    "sharing-xlarge": {**SHARING, "level": 4},
    "vae-paper": HEADS,
    "vae-paper-mean": HEADS,
    "vae-faces": HEADS,
    "vae-modern": HEADS,
}
ELSEWHERE = {  # mlp: the golden runs of tests/golden; efficientnet-lite0: held to the published network in tests/models
    "mlp",
    "efficientnet-lite0",
}


def inputs(shape: tuple[int, ...]) -> torch.Tensor:
    """Six pictures of bytes."""
    return torch.randint(0, 256, (6, *shape), generator=torch.Generator().manual_seed(7), dtype=torch.uint8)


def said(network: ProvenanceNet, images: torch.Tensor) -> dict[str, Any]:
    """What a network says of pictures, and what a generator makes of latents."""
    with torch.inference_mode():
        out = network(images)
        told = {
            "logits": out.logits,
            "classes": out.classes,
            "best_score": scores_of(network, out).amax(1),
            "support": network.support(out.support_features, out.classes),
        }
        if isinstance(network, ProvenanceVAE):
            z = torch.linspace(-1, 1, 2 * network.vae.latents).reshape(2, -1)
            told["made"] = network.picture(z, torch.tensor([0, 2]))
    plain = {name: value.tolist() for name, value in told.items()}
    return {**plain, "exemplars": exemplars(network, samples(), images)}


def set_weights(network: ProvenanceNet, seed: int) -> None:
    """A few coarse weights a row; more of them where few rows decide; BatchNorm that moves values."""
    generator = torch.Generator().manual_seed(seed)
    last = [network.index_head.linear.weight, *([] if network.task_head is None else [network.task_head[1].weight])]  # type: ignore[index, union-attr]
    with torch.no_grad():
        for parameter in network.parameters():
            rows = parameter.view(len(parameter), -1)
            few = 2 if len(rows) > 512 else 4
            many = rows.shape[1] // 4 if any(parameter is one for one in last) else few
            parameter.zero_()
            if parameter.ndim > 1:
                places = torch.randint(0, rows.shape[1], (len(rows), many), generator=generator)
                rows.scatter_(1, places, torch.randint(1, 5, places.shape, generator=generator) / 4 - 0.5)
            else:
                places = torch.randint(0, len(rows), (max(1, len(rows) // 16),), generator=generator)
                parameter[places] = torch.randint(-2, 3, places.shape, generator=generator) / 4
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
                module.weight.fill_(1.5)
                module.running_mean.fill_(-0.25)
                module.running_var.fill_(0.5)


def telling(network: ProvenanceNet, images: torch.Tensor) -> bool:
    """Different answers for different inputs, and no two scores so close that rounding could swap them."""
    with torch.inference_mode():
        out = network(images)
    ranked = scores_of(network, out).sort(1, descending=True).values[:, : K + 1]
    best = out.logits.sort(1, descending=True).values
    gaps = min(float((ranked[:, :-1] - ranked[:, 1:]).min()), float((best[:, 0] - best[:, 1]).min()))
    different = len({tuple(row) for row in exemplars(network, samples(), images)})
    safe = int(network.index_map.sizes[out.classes].min()) > K
    return gaps > 0.01 and different >= 3 and len(set(out.classes.tolist())) >= 2 and safe


def golden_run(name: str) -> Run:
    """One run of a backbone, on eleven samples."""
    table = samples()
    numbers = {"classes": len(table.class_names), "mean": (0.5,), "std": (0.25,), "scale": 255.0}
    config = NetworkConfig(backbone=name, conditional=not name.startswith("sharing"), **numbers, **NAMES[name])
    network = build(config, IndexMap(table.labels, config.classes)).eval()
    for seed in range(2000):
        set_weights(network, seed)
        if telling(network, inputs(config.input_shape)):
            break
    else:
        raise SystemExit(f"{name}: no weights that tell inputs apart")
    about = RunConfig(config, DataSpec("arrays", "arrays"), support={"threshold": 0.5}, versions={"provnet": "0.1.0"})
    return Run(network, about, table)


def packed(folder: Path) -> bytes:
    """A folder as .tar.xz, the same bytes whenever it is made."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return buffer.getvalue()


if __name__ == "__main__":
    for backbone in sys.argv[1:] or NAMES:
        made = golden_run(backbone)
        pictures = inputs(made.config.network.input_shape)
        with tempfile.TemporaryDirectory() as where:
            write_run(made, where)
            (HERE / f"{backbone}.tar.xz").write_bytes(packed(Path(where)))
        told = {"inputs": pictures.tolist(), **said(made.network, pictures)}
        (HERE / f"{backbone}.json").write_text(json.dumps(told) + "\n", "utf-8")
