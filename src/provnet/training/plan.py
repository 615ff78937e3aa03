"""From data and wishes to a NetworkConfig, and the settings that a resumed run is compared with."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import nn

import provnet
from provnet.data.imagedata import ImageData
from provnet.errors import DataError, NonFiniteError, UsageError, choose
from provnet.indexing import IndexMap
from provnet.models.backbones import auto_backbone
from provnet.models.config import NetworkConfig
from provnet.models.made import GENERATORS
from provnet.models.provenance import NETWORKS
from provnet.training.config import TrainConfig
from provnet.training.generating import between_0_and_1
from provnet.training.setup import normalisation


def plan(
    data: ImageData,
    network: str,
    backbone: str | nn.Module,
    preset: str,
    *,
    conditional: bool = True,
    alpha: float = 0.0,
    level: int = 3,
    head: str = "auto",
    key_type: str = "fp32",
    key_width: int = 0,
) -> tuple[NetworkConfig, IndexMap]:
    """The network that these data and names ask for, "auto" resolved.

    >>> data = provnet.open_data("embedded")
    >>> plan(data, "class-conditional", "auto", "paper")[0].backbone
    'paper'
    """
    choose("network", network, NETWORKS)
    if len(data) == 0:
        raise DataError("there are no samples to train on")
    if data.images.is_floating_point() and not bool(torch.isfinite(data.images).all()):
        raise NonFiniteError("the data hold NaN or infinite values; clean them first")
    if not isinstance(backbone, str | nn.Module):
        raise UsageError(f"backbone must be a name or a module that was made (nn.Module()), got {backbone!r}")
    if isinstance(backbone, nn.Module):
        name = "custom"
    else:
        name = auto_backbone(data.shape, network, preset, len(data)) if backbone == "auto" else backbone
    mean, std, scale = between_0_and_1(data) if name in GENERATORS else normalisation(data)
    config = NetworkConfig(
        network=network,
        backbone=name,
        input_shape=data.shape,
        classes=len(data.class_names),
        mean=mean,
        std=std,
        scale=scale,
        conditional=conditional,
        alpha=alpha,
        level=level,
        head=auto_head(preset) if head == "auto" else head,
        key_type=key_type,
        key_width=key_width,
    )
    return config, IndexMap(data.samples.labels, len(data.class_names))


def auto_head(preset: str) -> str:
    """The index head that "auto" stands for.

    >>> auto_head("robust"), auto_head("paper")
    ('exemplar', 'plain')
    """
    return "exemplar" if preset == "robust" else "plain"


def settings_of(data: ImageData, network: NetworkConfig, config: TrainConfig, fabric: Any) -> dict[str, Any]:
    """Everything that decides the result: two runs with equal settings on one machine give equal weights."""
    return {
        "network": network.to_json() | {"input_shape": list(network.input_shape)},
        "training": config.to_json(),
        "data": {"fingerprint": data.samples.fingerprint, "samples": len(data)},
        "machine": {
            "device": fabric.device.type,
            "threads": torch.get_num_threads() if fabric.device.type == "cpu" else 0,
            "processes": fabric.world_size,
            "precision": str(getattr(fabric._precision, "precision", "32-true")),
            "torch": torch.__version__,
        },
    }


def versions() -> dict[str, str]:
    """What made the run, for its card."""
    return {"provnet": provnet.__version__, "torch": torch.__version__, "python": platform.python_version()}
