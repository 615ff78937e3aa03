"""fit: from data to a run. Resumable, locked, checked before and after."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from provnet.base.batches import bounds, carried, fold
from provnet.base.errors import MemoryLimitError
from provnet.base.files import as_path
from provnet.base.progress import progress_bar
from provnet.data.dataset import DataSpec, ImageData, ResidentData, refuse_changed, spec_of
from provnet.heads.index_map import TargetSampler
from provnet.models.keys import fill_keys, open_keys, refresh, split_keys, whole_keys
from provnet.models.network import ProvenanceNet, build
from provnet.runs.files import float32_default, own_copy
from provnet.runs.run import Run, RunConfig, read_run, write_run
from provnet.tasks.generate import measured, settle
from provnet.training import session as run_folder
from provnet.training.calibration import calibrate
from provnet.training.checkpoint import Checkpoint, Clock, load_checkpoint, restore, save_checkpoint
from provnet.training.config import TrainConfig, for_samples, train_config
from provnet.training.loop import TrainingSet, TrainState, fresh_state, logged, train
from provnet.training.session import Held, run_lock, stop_on_signal
from provnet.training.setup import (
    available_memory,
    check_backbone,
    check_disk,
    check_memory,
    check_shares,
    kept_memory,
    make_fabric,
    plan,
    settings_of,
    versions,
)
from provnet.training.subset import Indexed, IndexSubset, narrowed

EpochCallback = Callable[[Mapping[str, Any]], None]
SCALE = "index_head.log_scale"  # decay would draw it to 0, and all samples would look alike


@dataclass(frozen=True)
class Session:
    """How a run is carried out; nothing here changes its result."""

    held: Held | None  # the run's folder, in the process that writes there
    settings: Mapping[str, Any]
    checkpoint_seconds: float
    progress: bool
    on_epoch: EpochCallback | None
    recorded: bool


def fit(
    data: ImageData,
    *,
    network: str = "class-conditional",
    backbone: str | nn.Module = "auto",
    conditional: bool = True,
    alpha: float = 0.0,
    level: int = 3,
    head: str = "auto",
    key_type: str = "fp32",
    key_width: int = 0,
    index_subset: IndexSubset | None = None,
    config: TrainConfig | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    test: DataSpec | ImageData | None = None,
    device: str = "auto",
    devices: int = 1,
    checkpoint_seconds: float = 60.0,
    progress: bool = False,
    on_epoch: EpochCallback | None = None,
    recorded: bool = True,
) -> Run:
    """Train a provenance network on `data` and return the run; with `out` it is also written there, step by step.

    `recorded` has a GPU record a step once and replay it, which is faster; it is left out where that cannot be: on a
    CPU, in several processes, with data that do not fit the GPU, with a backbone of your own (a copy of it is trained).
    With `index_subset` only some samples are indexed, and the run's table holds those alone (`training.subset`).

    >>> import provnet
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> run = fit(data, config=train_config("fast", epochs=1))
    >>> len(run.samples), run.history.shape
    (40, (1, 40))
    """
    data, indexed = narrowed(data, index_subset, network)
    config, test = for_samples(config or train_config(), len(data), data.shape), spec_of(test)
    custom = own_copy(backbone) if isinstance(backbone, nn.Module) else None
    shape, index_map = plan(
        data, network, backbone, config.preset, key_type=key_type, key_width=key_width, conditional=conditional,
        alpha=alpha, level=level, head=head,
    )  # fmt: skip
    index_map = indexed.map(index_map)
    refuse_changed("the training data", data)
    with ExitStack() as stack, float32_default(), torch.inference_mode(False), torch.enable_grad():
        parameters = check_memory(shape, index_map, config, custom, device, devices)
        check_backbone(shape, custom, data)
        fabric = make_fabric(device, devices, config.precision)
        check_shares(len(data), config.batch_size, fabric.world_size, shape.head)
        path = None if out is None else as_path("the run's folder", out)
        settings = settings_of(data, shape, config, fabric) | dict(indexed.settings)
        checkpoint, held = None, None
        if path is not None:
            if fabric.global_rank == 0:
                check_disk(path, parameters, len(data), config.epochs)
                run_folder.prepare(path, overwrite=overwrite)
                held = stack.enter_context(run_lock(path))
                run_folder.check_before(path, resume=resume, overwrite=overwrite)
            fabric.barrier()
            if resume and run_folder.finished(path):
                run = read_run(path, backbone=custom)
                run_folder.refuse_differences(run.config.training, settings)
                if fabric.global_rank == 0:
                    run_folder.tidy(run, path)
                return run
            checkpoint = load_checkpoint(path) if resume else None
            if checkpoint is not None:
                run_folder.refuse_differences(checkpoint.meta["settings"], settings)
        stack.enter_context(_randomness_put_back(fabric.device))
        stack.enter_context(kept_memory() if fabric.device.type == "cpu" else nullcontext())
        torch.manual_seed(fold(config.seed, 0))
        net = build(shape, index_map, custom)
        shown = progress and fabric.global_rank == 0
        session = Session(held, settings, checkpoint_seconds, shown, on_epoch, recorded and custom is None)
        with _memory_errors_named():
            training = _training_set(data, indexed, fabric.device)
            sampler = indexed.sampler(index_map, alpha, data.labels)
            state = _run(fabric, net, training, sampler, config, session, checkpoint)
            images, bar = training.samples.images, partial(progress_bar, enabled=session.progress)
            refresh(net, images, indexed.table(data.samples), indexed.rows, progress=session.progress)
            support = calibrate(net, images, config.seed, labels=training.samples.labels, progress=bar)
        run = Run(
            network=_plain(net),
            config=RunConfig(shape, data.spec, test, settings, support, versions(), None),
            samples=indexed.table(data.samples),
            history=indexed.columns(np.stack(state.history)),
            folder=path,
        )
        if path is not None:
            if held is not None:
                write_run(run, held.check())
                run_folder.clean(held.check())
            fabric.barrier()
        return run


def _run(
    fabric: Any,
    net: ProvenanceNet,
    training: TrainingSet,
    sampler: TargetSampler,
    config: TrainConfig,
    session: Session,
    checkpoint: Checkpoint | None,
) -> TrainState:
    """Set up, train with checkpoints, progress and log; return the final state."""
    open_keys(net, trained=session.settings["network"]["head"] == "exemplar-trained")
    cuda = fabric.device.type == "cuda"
    adamw = _optimizer(net, config, fabric.device)
    if cuda and net.normalise.channels_last:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model, optimizer = fabric.setup(net, adamw)
    n = len(training.samples)
    state = fresh_state(n, fabric.device, logged(net))
    if checkpoint is not None:
        state = _restored(fabric, checkpoint, net, adamw, (n, config.batch_size))
    split_keys(net, fabric.global_rank, fabric.world_size)
    if checkpoint is None:
        fill_keys(net, training.samples.images, training.indexed.rows)
    steps = len(bounds(n, config.batch_size, least=2 * fabric.world_size)) * config.epochs
    writes = session.held is not None
    clock = Clock(session.checkpoint_seconds)
    with (
        stop_on_signal(enabled=writes and fabric.world_size == 1) as stop,
        progress_bar("training", steps, session.progress) as update,
        warnings.catch_warnings(),
    ):
        # the weights of a first layer for one channel have the same memory under both strides that DDP compares
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")

        def keep(state: TrainState) -> None:
            due = writes and (clock.due() or stop.asked)
            if fabric.world_size > 1 and fabric.broadcast(due):
                with whole_keys(net):  # of which each process holds a part
                    if writes:
                        save_checkpoint(_folder(session), net, adamw, state, session.settings)
            elif due:
                save_checkpoint(_folder(session), net, adamw, state, session.settings)
            if due:
                clock.reset()
            if stop.asked:
                raise KeyboardInterrupt

        def on_step(state: TrainState, row: Mapping[str, float]) -> None:
            update(state.step, _text(row))
            if fabric.world_size == 1:  # other processes hold their own share of an unfinished epoch
                keep(state)

        def on_epoch(state: TrainState) -> None:
            state.log[-1] |= measured(net, training.samples, config.seed, len(state.log))
            update(state.step, _text(state.log[-1]))
            if writes:
                run_folder.write_log(_folder(session), state.log)
            if session.on_epoch is not None and fabric.global_rank == 0:
                session.on_epoch(state.log[-1])
            keep(state)

        train(
            fabric,
            net=net,
            model=model,
            optimizer=optimizer,
            data=training,
            sampler=sampler,
            config=config,
            state=state,
            on_step=on_step,
            on_epoch=on_epoch,
            recorded=session.recorded and cuda and fabric.world_size == 1 and training.samples.resident,
        )
    settle(net, training.samples.images, training.samples.labels)
    return state


def _restored(
    fabric: Any, checkpoint: Checkpoint, net: ProvenanceNet, optimizer: torch.optim.Optimizer, size: tuple[int, int]
) -> TrainState:
    """Where training was, in steps of this number of processes; `size` is that of the data and of a batch."""
    state = restore(checkpoint, net, optimizer, fabric.device)
    then = checkpoint.meta["settings"]["machine"]["processes"]
    before, now = (bounds(*size, least=2 * processes) for processes in (then, fabric.world_size))
    state.step = carried(divmod(state.step, len(before)), before, now)
    if fabric.global_rank > 0:  # what an unfinished epoch has summed up counts once
        state.sums.zero_()
        state.record.zero_()
    return state


def _optimizer(net: ProvenanceNet, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW over all that is trained; on a GPU a recorded step reads the learning rate anew."""
    named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": [p for name, p in named if name != SCALE]}]
    groups += [{"params": [p], "weight_decay": 0.0} for name, p in named if name == SCALE]
    cuda = device.type == "cuda"
    rate = torch.tensor(config.lr, device=device) if cuda else config.lr
    return torch.optim.AdamW(groups, rate, config.betas, weight_decay=config.weight_decay, fused=True, capturable=cuda)


def _folder(session: Session) -> Path:
    """Where to write, asked again before every write."""
    assert session.held is not None
    return session.held.check()


def _text(row: Mapping[str, float]) -> str:
    return f"loss {row['loss']:.3f}  class {row['class_accuracy']:.1%}  index {row['index_accuracy']:.1%}"


def _training_set(data: ImageData, indexed: Indexed, device: torch.device) -> TrainingSet:
    """The pictures are put on the device where they take less than half of its free memory, else streamed to it."""
    budget = available_memory() // 2 if device.type == "cuda" else None
    return TrainingSet(ResidentData(data.images, data.labels, device, budget), data.samples.sample_ids, indexed)


@contextmanager
def _randomness_put_back(device: torch.device) -> Iterator[None]:
    """Training seeds torch at every step; the caller's random state is put back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@contextmanager
def _memory_errors_named() -> Iterator[None]:
    """Turn an allocation failure into a plain error with advice."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MemoryLimitError(f"out of memory: {error}; use a smaller batch or backbone") from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            raise MemoryLimitError(f"out of memory: {error}; use a smaller batch or backbone") from error
        raise


def _plain(net: ProvenanceNet) -> ProvenanceNet:
    """On the CPU, weights in the usual order, ready to answer."""
    net.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return net.eval()
