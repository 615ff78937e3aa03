"""What training needs before its first step: device, precision, normalisation, and room in memory and on disk."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from provnet.data.imagedata import ImageData
from provnet.errors import DiskError, MemoryLimitError, UsageError, one_of
from provnet.indexing import IndexMap
from provnet.models.backbones import StandIn, check_alone
from provnet.models.config import NetworkConfig
from provnet.models.provenance import Normalise, build, parameter_count
from provnet.processes import check_environment, local_world_size, world_size
from provnet.training.activations import kept_bytes
from provnet.training.config import TrainConfig

DEVICES = ("auto", "cpu", "cuda")
AS_ONE = 2**26  # values whose mean and spread are taken at once; those of more pictures are added up part by part


def make_fabric(device: str, devices: int, precision: str) -> Any:
    """Lightning Fabric for one process, or several under `torchrun` or with `devices` above 1."""
    import logging

    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its hints are not for our users
    one_of("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError('device "cuda" was asked for, but no GPU is visible; use "cpu" or "auto"')
    if devices < 1:
        raise UsageError(f"devices must be 1 or more, got {devices}")
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if precision == "auto":
        precision = "bf16-mixed" if cuda and torch.cuda.is_bf16_supported() else "32-true"
    several = devices > 1 or world_size() > 1
    check_environment(several=several)
    count = local_world_size(devices) if several else 1
    fabric = Fabric(
        accelerator="cuda" if cuda else "cpu",
        devices=count,
        num_nodes=max(1, world_size() // count),
        strategy=_own_buffers() if several else "auto",
        precision=precision,  # type: ignore[arg-type, unused-ignore]
    )
    if several:
        fabric.launch()
    return fabric


def _own_buffers() -> Any:
    """DDP that leaves each process its own buffers; what it calls their copying was renamed in torch 2.13."""
    from lightning_fabric.strategies.ddp import DDPStrategy

    known = inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters
    name = next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in known)
    setting: dict[str, Any] = {name: False}
    return DDPStrategy(**setting)


def check_shares(n: int, batch: int, processes: int, head: str) -> None:
    """Refuse what cannot be split: trained keys, and batches with less than two samples a process, as BatchNorm needs.

    >>> check_shares(n=100, batch=32, processes=4, head="exemplar")
    """
    if processes > 1 and head == "exemplar-trained":
        raise UsageError("trained keys cannot be split over processes; use head exemplar, or one process")
    if processes > 1 and min(n, batch) < 2 * processes:
        raise UsageError(
            f"{processes} processes need {2 * processes} samples in every batch; got a batch of {batch}, {n} samples; "
            "use fewer processes or a larger batch"
        )


def normalisation(data: ImageData) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """(mean, std, scale): the paper's statistics for the data sets it names, else measured on the data.

    >>> import provnet
    >>> normalisation(provnet.open_data("embedded"))
    ((0.1307,), (0.3081,), 255.0)
    """
    scale = 255.0 if data.images.dtype == torch.uint8 else 1.0
    known = STATISTICS.get(data.spec.source)
    if known is not None and scale == 255.0 and len(known[0]) == data.shape[0]:
        return (*known, scale)
    values = data.images if len(data) <= 10_000 else data.images[:: len(data) // 10_000]
    mean, std = _mean_and_spread(values, scale)
    std = torch.where(std > 1e-6, std, torch.ones_like(std))  # a constant feature stays at zero
    return tuple(mean.tolist()), tuple(std.tolist()), scale


def _mean_and_spread(values: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    axes = [0, *range(2, values.ndim)]
    if values.numel() <= AS_ONE:
        values = values.double() / scale
        return values.mean(axes), values.std(axes, correction=0)
    parts = torch.split(values, max(1, AS_ONE // (16 * values[0].numel())))
    count = values.numel() // values.shape[1]
    mean = torch.stack([part.double().div_(scale).sum(axes) for part in parts]).sum(0) / count
    middle = mean.view(-1, *[1] * (values.ndim - 2))
    squares = [part.double().div_(scale).sub_(middle).square_().sum(axes) for part in parts]
    return mean, (torch.stack(squares).sum(0) / count).sqrt()


def check_backbone(config: NetworkConfig, custom: nn.Module | None, data: ImageData) -> None:
    """Refuse a backbone given as object that tells more than the sample, asked about two of the data."""
    if custom is not None:
        check_alone(custom, Normalise(config, own=False)(data.images[[0, -1]].cpu()))


def check_memory(
    config: NetworkConfig,
    index_map: IndexMap,
    train: TrainConfig,
    custom: nn.Module | None,
    device: str = "auto",
    devices: int = 1,
) -> int:
    """Refuse a network that cannot fit, with the figure, before anything is allocated; return its parameter count.

    Counted are weights, gradients, moments, keys or scores, and what is kept of a batch (`training.activations`): less
    than training takes in the end, so that nothing is refused that fits.
    """
    own = None if custom is None else StandIn(custom, config.input_shape)
    with torch.device("meta"):
        net = build(config, index_map, own)
    count = parameter_count(net) + (parameter_count(custom) if custom else 0)
    batch = min(train.batch_size, index_map.n)
    # weights, gradients, two moments; then either keys and the scores of a part, or all scores and their gradients
    if config.head != "plain":
        need = count * 16 + 8 * index_map.n * (config.key_width or 512) * (
            4 if config.head == "exemplar-trained" else 1
        )
    else:
        slots = index_map.n if config.network in ("single", "class-independent") else index_map.largest
        table = index_map.n * index_map.classes if config.network == "single" else 0  # which sample is in which class
        need = count * 16 + 12 * batch * slots + 4 * table
    free = available_memory(device)
    kept = _kept(kept_bytes(net, custom), batch, train.precision, device, devices)
    # gradients of the weights are made while what was kept is let go
    if max(need, need - 4 * count + kept) > free:
        need = max(need, need - 4 * count + kept)
        advice = "use a smaller backbone or batch, or head exemplar"
        if kept > 4 * count:
            advice = "use smaller batches, smaller pictures or a smaller backbone"
        raise MemoryLimitError(
            f"training needs about {need / 2**30:.1f} GiB ({count:,} parameters, {index_map.n:,} samples), of which "
            f"{kept / 2**30:.1f} are kept of each batch of {batch}; {free / 2**30:.1f} GiB are free; {advice}"
        )
    return count


def _kept(each: int, batch: int, precision: str, device: str, devices: int) -> int:
    """Bytes kept of one process's part of a batch; mixed precision halves most of them."""
    processes = max(devices, world_size())
    cuda = device != "cpu" and torch.cuda.is_available()
    halved = precision != "32-true" if cuda else precision not in ("auto", "32-true")
    return each * -(-batch // processes) // (2 if halved else 1)


def available_memory(device: str = "auto") -> int:
    """Bytes that can be allocated: of the GPU where one is used, else of main memory, `ulimit -v` included."""
    if device != "cpu" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return min(free, limit - used) if limit != resource.RLIM_INFINITY else free


def check_disk(folder: Path, parameters: int, n: int, epochs: int) -> None:
    """Refuse a folder (there or not yet) whose disk cannot hold the model and two checkpoints."""
    need = parameters * 4 * (1 + 3 * 3) + n * epochs * 2 * 4
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if need > free:
        raise DiskError(
            f"{folder} needs about {need / 2**20:.0f} MB for the model and its checkpoints, {free / 2**20:.0f} MB free"
        )


_MNIST = ((0.1307,), (0.3081,))
_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "embedded": _MNIST,
    "mnist": _MNIST,
    "fashion-mnist": _MNIST,
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    "stanford-dogs": _IMAGENET,
    "lfw": _IMAGENET,
}
