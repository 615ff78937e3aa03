"""What training needs before its first step: device, precision, normalisation, and room in memory and on disk."""

from __future__ import annotations

import copy
import ctypes
import inspect
import logging
import os
import platform
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import provnet
from provnet.base.batches import all_finite
from provnet.base.errors import DataError, DiskError, MemoryLimitError, NonFiniteError, UsageError, choose, one_of
from provnet.base.files import file_size
from provnet.base.options import NetworkOptions
from provnet.base.processes import check_environment, local_world_size, world_size
from provnet.data.dataset import ImageData, ResidentData
from provnet.data.modalities.table import Table
from provnet.data.modalities.text import is_text
from provnet.heads.index_map import IndexMap
from provnet.models.backbones import StandIn, auto_backbone, check_alone
from provnet.models.network import NETWORKS, NetworkConfig, Normalise, ProvenanceNet, build, parameter_count
from provnet.models.pretrained import (
    FOLDER,
    NAMES,
    folder_architecture,
    load_folder,
    load_published,
    own_normalisation,
)
from provnet.models.text import TEXT, architecture_of
from provnet.tasks import TASKS
from provnet.training.config import TrainConfig

MANY = 1024  # samples gone through: shapes cost nothing, and what does not grow with the batch is lost in the mean


def seconds_of_step(net: ProvenanceNet, samples: ResidentData, batch: int) -> float:
    """About how long a step of training takes here: the backbone of a copy, forward and backward, the second time."""
    body = copy.deepcopy(net.backbone).train()
    trained = [p for p in body.parameters() if p.requires_grad]
    device, seconds = next(net.parameters()).device, 0.0
    if not trained:
        return seconds
    rows = torch.arange(max(2, min(batch, len(samples)))) % len(samples)  # BatchNorm needs two, of one sample as well
    images, _ = samples.batch(rows.to(samples.images.device))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        for _ in range(2):
            began = time.perf_counter()
            torch.autograd.grad(body(net.normalise(images)).float().sum(), trained, allow_unused=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = time.perf_counter() - began
    return seconds


def kept_bytes(net: ProvenanceNet, custom: nn.Module | None = None) -> int:
    """Bytes that are kept for each sample of a batch, in fp32, by a network on the device "meta".

    `custom` takes the place of its backbone; it is copied without its weights. 0 where layers cannot be gone through
    without numbers: nothing is known of those.

    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> index_map = IndexMap([0, 1, 1])
    >>> with torch.device("meta"):
    ...     nets = [build(NetworkConfig("single", "small", (1, s, s), classes=2), index_map) for s in (16, 64)]
    >>> round(kept_bytes(nets[1]) / kept_bytes(nets[0]))  # for sixteen times the pixels
    15
    """
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            if custom is None:
                return _saved(net, net.backbone, MANY) // MANY
            # asked, not trained, as for the shape of its features: it may do more than compute where it is trained
            other = _without_weights(custom).eval()
            return (_saved(net, other, 4) - _saved(net, other, 2)) // 2
    except Exception:  # whatever a layer says that needs numbers: no count is no reason not to train
        return 0


def _saved(net: ProvenanceNet, backbone: nn.Module, n: int) -> int:
    """Bytes of all that is saved for the gradients of n samples, without weights; what is saved twice counts once."""
    seen: dict[int, torch.UntypedStorage] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        seen[storage._cdata] = storage  # held, so that no other takes its place
        return value

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = backbone(torch.empty(n, *net.normalise.input_shape, device="meta"))
        none = torch.zeros(n, dtype=torch.int64, device="meta")
        _held = net.index_trunk(features, none), None if net.task_head is None else net.task_head(features)
    own = {weight.untyped_storage()._cdata for part in (net, backbone) for weight in part.parameters()}
    return sum(storage.nbytes() for place, storage in seen.items() if place not in own)


def _without_weights(module: nn.Module) -> nn.Module:
    """A copy whose weights are shapes alone: it costs no memory, and what it notes in itself stays with it."""
    shapes: dict[int, Any] = {}
    for weight in module.parameters():
        empty = torch.empty_like(weight, device="meta")
        shapes[id(weight)] = nn.Parameter(empty, requires_grad=weight.requires_grad)
    for values in module.buffers():
        shapes[id(values)] = torch.empty_like(values, device="meta")
    return copy.deepcopy(module, shapes)


DEVICES = ("auto", "cpu", "cuda")
AS_ONE = 2**26  # values whose mean and spread are taken at once; those of more pictures are added up part by part


def pick_device(name: str | None) -> str:
    """`cpu` or `cuda`, whatever was asked for."""
    wanted = one_of("device", name or "auto", DEVICES)
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError('device "cuda" was asked for, but no GPU is visible; use --device cpu')
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


def make_fabric(device: str, devices: int, precision: str) -> Any:
    """Lightning Fabric for one process, or several under `torchrun` or with `devices` above 1."""
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
    if is_text(data.inputs):  # bytes that stand for letters
        return (0.0,), (1.0,), 1.0
    scale = 255.0 if data.images.dtype == torch.uint8 else 1.0
    known = STATISTICS.get(data.spec.source)
    if known is not None and scale == 255.0 and len(known[0]) == data.shape[0]:
        return (*known, scale)
    values = data.images if len(data) <= 10_000 else data.images[:: len(data) // 10_000]
    mean, std = _mean_and_spread(values, scale)
    std = torch.where(std > 1e-6, std, torch.ones_like(std))  # a constant feature stays at zero
    numbers = data.modality.numeric() if isinstance(data.modality, Table) else None
    if numbers is not None:  # categories and marks of gaps stay 0 and 1
        mean, std = mean.where(numbers, 0.0), std.where(numbers, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist()), scale


def between_0_and_1(data: ImageData) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """(mean, std, scale) where the input is given back: bytes divided by 255, as the paper has it."""
    if data.images.dtype != torch.uint8 or data.images.ndim != 4:
        raise DataError(f"a generator learns from pictures of bytes; these data are {data.images.dtype} {data.shape}")
    return (0.0,), (1.0,), 255.0


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
            f"{folder} needs about {file_size(need)} for the model and its checkpoints, {file_size(free)} free"
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


def plan(data: ImageData, wanted: NetworkOptions, preset: str) -> tuple[NetworkConfig, IndexMap]:
    """The network that is wanted for these data, "auto" resolved.

    >>> data = provnet.open_data("embedded")
    >>> plan(data, NetworkOptions(), "paper")[0].backbone
    'paper'
    """
    network, backbone = wanted.network, wanted.backbone
    choose("network", network, NETWORKS)
    if len(data) == 0:
        raise DataError("there are no samples to train on")
    labels = data.samples.labels
    if not all_finite(data.inputs):
        raise NonFiniteError("the data hold NaN or infinite values; clean them first")
    if not isinstance(backbone, str | nn.Module):
        raise UsageError(f"backbone must be a name or a module, such as nn.Sequential(...), got {backbone!r}")
    architecture = ""
    if isinstance(backbone, nn.Module):
        name = "custom"
    elif is_folder(backbone):
        name, architecture = FOLDER, folder_architecture(Path(backbone))
    elif is_text(data.inputs) and backbone in ("auto", TEXT):
        name, architecture = TEXT, architecture_of(data.images, len(data.class_names))
    elif backbone == TEXT:
        raise UsageError(f'backbone "{TEXT}" reads texts as bytes, these samples are {data.inputs.dtype} {data.shape}')
    else:
        name = auto_backbone(data.shape, network, preset, len(data)) if backbone == "auto" else backbone
    config = NetworkConfig(
        network=network,
        backbone=name,
        input_shape=data.shape,
        classes=len(data.class_names),
        conditional=wanted.conditional,
        alpha=wanted.alpha,
        level=wanted.level,
        head=auto_head(preset, name) if wanted.head == "auto" else wanted.head,
        key_type=wanted.key_type,
        key_width=wanted.key_width,
        architecture=architecture,
    )
    if name in NAMES:
        mean, std, scale = _as_pretrained(data, config)
    else:
        mean, std, scale = between_0_and_1(data) if TASKS[config.task].rebuilds else normalisation(data)
    config = replace(config, mean=mean, std=std, scale=scale)
    return config, IndexMap(labels, len(data.class_names))


def auto_head(preset: str, backbone: str = "") -> str:
    """The index head that "auto" stands for.

    >>> auto_head("robust"), auto_head("paper"), auto_head("fast", "text")
    ('exemplar', 'plain', 'exemplar')
    """
    return "exemplar" if preset in ("default", "robust") or backbone in (*NAMES, TEXT) else "plain"


def is_folder(backbone: str) -> bool:
    """Whether a backbone that was asked for is a folder with a model.

    >>> is_folder("small"), is_folder("./my-model/")
    (False, True)
    """
    return "/" in backbone or os.sep in backbone


def _as_pretrained(data: ImageData, config: NetworkConfig) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """The normalisation that a pretrained backbone was trained with."""
    if data.shape[0] != 3 or len(data.shape) != 3:
        raise UsageError(f"a pretrained backbone takes colour pictures, got {data.shape}; make them rgb (--mode rgb)")
    if data.images.dtype != torch.uint8:
        raise DataError(f"a pretrained backbone takes pictures of bytes (uint8); these data are {data.images.dtype}")
    return own_normalisation(config.backbone, config.architecture)


def load_pretrained(net: ProvenanceNet, wanted: NetworkOptions, config: NetworkConfig, *, finetune: bool) -> None:
    """Give a pretrained backbone its weights, and have them trained where that was asked for; others stay as drawn."""
    if config.backbone not in NAMES:
        if finetune:
            raise UsageError(
                f'finetune (--finetune) is for pretrained backbones; "{config.backbone}" has no weights to start from'
            )
        return
    if config.backbone == FOLDER:
        load_folder(net.backbone, Path(wanted.backbone))
    else:
        load_published(net.backbone)
    net.backbone.requires_grad_(finetune)


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


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters in malloc.h
LARGEST = 2**27  # bytes of a block: a larger one that found no hole of its size could take much more than there is
KEPT = 2**30  # bytes of free memory
USUAL = 2**25  # bytes: where glibc's own thresholds end up in a process that frees large blocks, trimming at twice that
SET_BY_USER = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for the next step; afterwards what is free goes back to the system.

    Nothing happens where memory is not glibc's (macOS, Windows, musl), or where its thresholds are set from outside.

    >>> with kept_memory():
    ...     pass
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in SET_BY_USER):
        yield
        return
    libc = ctypes.CDLL(None)
    _thresholds(libc, LARGEST, KEPT)
    try:
        yield
    finally:
        _thresholds(libc, USUAL, 2 * USUAL)
        libc.malloc_trim(0)


def _thresholds(libc: ctypes.CDLL, mmap: int, trim: int) -> None:
    """Older versions of glibc refuse more than USUAL for single blocks."""
    libc.mallopt(MMAP_THRESHOLD, mmap) or libc.mallopt(MMAP_THRESHOLD, USUAL)
    libc.mallopt(TRIM_THRESHOLD, trim)
