"""fit: from data to a run. Resumable, locked, checked before and after."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.batches import bounds, fold, steps_before
from provnet.base.errors import MemoryLimitError
from provnet.base.files import as_path
from provnet.base.options import RunOptions
from provnet.base.progress import forecast, progress_bar
from provnet.data.dataset import DataSpec, ImageData, ResidentData, refuse_changed, spec_of
from provnet.heads.index_map import IndexMap, TargetSampler
from provnet.influence.of_run import MOST_BYTES, epochs_kept, snapshot, snapshot_bytes
from provnet.models.keys import fill_keys, open_keys, refresh, split_keys, whole_keys
from provnet.models.network import ProvenanceNet, build
from provnet.models.pretrained import NAMES as PRETRAINED
from provnet.models.pretrained import Pretrained, features_of_all, frozen
from provnet.models.text import TEXT, TextEncoder
from provnet.models.whitening import measure
from provnet.runs.files import float32_default, own_copy
from provnet.runs.run import Run, RunConfig, read_run, write_run
from provnet.training import session as run_folder
from provnet.training.calibration import calibrate
from provnet.training.checkpoint import Checkpoint, Clock, load_checkpoint, restore, save_checkpoint
from provnet.training.config import TrainConfig, as_config, for_pretrained, for_samples, for_texts
from provnet.training.loop import Learner, TrainingSet, TrainState, fresh_state, logged, train
from provnet.training.session import Held, run_lock, stop_on_signal
from provnet.training.setup import (
    available_memory,
    check_backbone,
    check_disk,
    check_memory,
    check_shares,
    kept_memory,
    load_pretrained,
    make_fabric,
    plan,
    seconds_of_step,
    settings_of,
    versions,
)
from provnet.training.subset import IndexSubset, indexed_among, narrowed

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
    snapshots: bool | None  # None: where they are small


def fit(
    data: ImageData,
    config: TrainConfig | None = None,
    where: RunOptions | None = None,
    *,
    test: DataSpec | ImageData | None = None,
    index_subset: IndexSubset | None = None,
    on_epoch: EpochCallback | None = None,
) -> Run:
    """Train a provenance network on `data` and return the run; `where.out` is a folder to write it to.

    `where.recorded` lets a GPU record a training step once and replay it, which is faster. It has no effect on a CPU,
    in several processes, with data that do not fit on the GPU, or with your own backbone (a copy of it is trained).
    With `index_subset` only some samples are indexed, and the run's table holds only those (`training.subset`).

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> run = fit(data, train_config("fast", epochs=1))
    >>> len(run.samples), run.history.shape
    (40, (1, 40))
    """
    config, where, test = as_config(config), where or RunOptions(), spec_of(test)
    wanted = config.wanted
    data, rows, about = narrowed(data, index_subset, wanted.network)
    config = for_samples(config, len(data), data.shape)
    custom = own_copy(wanted.backbone) if isinstance(wanted.backbone, nn.Module) else None
    shape, index_map = plan(data, wanted, config.preset)
    config = for_pretrained(config) if shape.backbone in PRETRAINED else config
    config = for_texts(config) if shape.backbone == TEXT else config
    samples = data.samples if rows is None else data.samples.select(rows.numpy())
    index_map = index_map if rows is None else IndexMap(samples.labels, shape.classes)
    refuse_changed("the training data", data)
    with ExitStack() as stack, float32_default(), torch.inference_mode(False), torch.enable_grad():
        parameters = check_memory(shape, index_map, config, custom, where.device, where.devices)
        check_backbone(shape, custom, data)
        fabric = make_fabric(where.device, where.devices, config.precision)
        check_shares(len(data), config.batch_size, fabric.world_size, shape.head)
        path = None if where.out is None else as_path("the run's folder", where.out)
        settings = settings_of(data, shape, config, fabric) | about
        if path is not None and fabric.global_rank == 0:
            check_disk(path, parameters, len(data), config.epochs)
        held, checkpoint, finished = _begin(stack, fabric, path, where, settings)
        if path is not None and finished:
            return _finished(fabric, path, settings, custom)
        stack.enter_context(_randomness_put_back(fabric.device))
        stack.enter_context(kept_memory() if fabric.device.type == "cpu" else nullcontext())
        torch.manual_seed(fold(config.seed, 0))
        net = build(shape, index_map, custom)
        load_pretrained(net, wanted, shape, finetune=config.finetune)
        if isinstance(net.backbone, TextEncoder):
            net.backbone.learn(data.images, data.labels)
        shown = where.progress and fabric.global_rank == 0
        recorded = where.recorded and custom is None and shape.backbone != TEXT  # whose batches differ in length
        session = Session(held, settings, where.checkpoint_seconds, shown, on_epoch, recorded, where.snapshots)
        with _memory_errors_named():
            learner, inputs = _on_features(net, data, fabric.device, progress=shown)
            training = _training_set(data, inputs, rows, index_map, fabric.device)
            state = _run(fabric, learner, training, config, session, checkpoint)
            refresh(learner, training.samples.images, samples, rows, progress=shown)
            bar, labels = partial(progress_bar, enabled=shown), training.samples.labels
            support = calibrate(
                learner, training.samples.images, config.seed, labels=labels, modality=data.modality, progress=bar
            )
        history = np.ascontiguousarray(np.stack(state.history)[:, slice(None) if rows is None else rows.numpy()])
        run_config = RunConfig(shape, data.spec, test, settings, support, versions(), None)
        run = Run(_plain(net), run_config, samples, history, path, snapshots=state.snapshots)
        return _written(run, fabric, held)


def _begin(
    stack: ExitStack, fabric: Any, path: Path | None, where: RunOptions, settings: Mapping[str, Any]
) -> tuple[Held | None, Checkpoint | None, bool]:
    """The run's folder, locked; where training goes on from; and whether there is nothing left to do."""
    if path is None:
        return None, None, False
    held = None
    if fabric.global_rank == 0:
        run_folder.prepare(path, overwrite=where.overwrite)
        held = stack.enter_context(run_lock(path))
        run_folder.check_before(path, resume=where.resume, overwrite=where.overwrite)
    fabric.barrier()
    if where.resume and run_folder.finished(path):
        return held, None, True
    checkpoint = load_checkpoint(path) if where.resume else None
    if checkpoint is not None:
        run_folder.refuse_differences(checkpoint.meta["settings"], settings)
    return held, checkpoint, False


def _written(run: Run, fabric: Any, held: Held | None) -> Run:
    """The run, in its folder where it has one, when every process is done."""
    if held is not None:
        write_run(run, held.check())
        run_folder.clean(held.check())
    fabric.barrier()
    return run


def _finished(fabric: Any, path: Path, settings: Mapping[str, Any], custom: nn.Module | None) -> Run:
    """A run that was finished before, if it is the one that is asked for."""
    run = read_run(path, backbone=custom)
    run_folder.refuse_differences(run.config.training, settings)
    if fabric.global_rank == 0:
        run_folder.tidy(run, path)
    return run


def _run(
    fabric: Any,
    net: ProvenanceNet,
    training: TrainingSet,
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
    learner = Learner(fabric, net, *fabric.setup(net, adamw))
    n = len(training.samples)
    state = fresh_state(n, fabric.device, logged(net))
    if checkpoint is not None:
        state = _restored(fabric, checkpoint, net, adamw, (n, config.batch_size))
    split_keys(net, fabric.global_rank, fabric.world_size)
    if checkpoint is None:
        fill_keys(net, training.samples.images, None if training.indexed is None else training.indexed.rows)
    recorded = session.recorded and cuda and fabric.world_size == 1 and training.samples.resident
    if session.progress:
        steps = len(bounds(n, config.batch_size, least=2)) * config.epochs - state.step
        forecast("training", steps * seconds_of_step(net, training.samples, config.batch_size), enabled=True)
    with _watched(learner, training, config, session, adamw) as (on_step, on_epoch):
        sampler = TargetSampler(net.index_map, config.wanted.alpha)
        train(learner, training, sampler, config, state, on_step=on_step, on_epoch=on_epoch, recorded=recorded)
    net.after_training(training.samples.images, training.samples.labels)
    return state


OnStep = Callable[[TrainState, Mapping[str, float]], None]
OnEpoch = Callable[[TrainState], None]


@contextmanager
def _watched(
    learner: Learner, training: TrainingSet, config: TrainConfig, session: Session, adamw: torch.optim.Optimizer
) -> Iterator[tuple[OnStep, OnEpoch]]:
    """What is done after a step and after an epoch: the bar moves, the log and due checkpoints are written."""
    fabric, net = learner.fabric, learner.net
    steps = len(bounds(len(training.samples), config.batch_size, least=2 * fabric.world_size)) * config.epochs
    writes = session.held is not None
    clock = Clock(session.checkpoint_seconds)
    with (
        stop_on_signal(enabled=writes and fabric.world_size == 1) as stop,
        progress_bar("training", steps, session.progress, every=steps // config.epochs) as update,
        warnings.catch_warnings(),
    ):
        # the weights of a first layer for one channel have the same memory under both strides that DDP compares
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")

        along = _epochs_kept(net, config.epochs, session)

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
            state.log[-1] |= net.after_epoch(training.samples, config.seed, len(state.log))
            update(state.step, _text(state.log[-1]))
            if writes:
                run_folder.write_log(_folder(session), state.log)
            if session.on_epoch is not None and fabric.global_rank == 0:
                session.on_epoch(state.log[-1])
            if len(state.log) in along:
                state.snapshots[len(state.log)] = snapshot(net)
            keep(state)

        yield on_step, on_epoch


def _epochs_kept(net: ProvenanceNet, epochs: int, session: Session) -> tuple[int, ...]:
    """The epochs after which weights are kept for influence: none where that takes much, unless it was asked for."""
    along = epochs_kept(epochs) if snapshot_bytes(net) else ()
    size = snapshot_bytes(net) * len(along)
    if session.snapshots is None and size > MOST_BYTES and session.progress:
        words = f"snapshots for influence would take {size / 1e6:,.0f} MB and are left out; --snapshots keeps them\n"
        sys.stderr.write(words)
    wanted = size <= MOST_BYTES if session.snapshots is None else session.snapshots
    return along if wanted else ()


def _restored(
    fabric: Any, checkpoint: Checkpoint, net: ProvenanceNet, optimizer: torch.optim.Optimizer, size: tuple[int, int]
) -> TrainState:
    """Where training was, in steps of this number of processes; `size` is that of the data and of a batch."""
    state = restore(checkpoint, net, optimizer, fabric.device)
    then = checkpoint.meta["settings"]["machine"]["processes"]
    before, now = (bounds(*size, least=2 * processes) for processes in (then, fabric.world_size))
    state.step = steps_before(divmod(state.step, len(before)), before, now)
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


def _on_features(
    net: ProvenanceNet, data: ImageData, device: torch.device, *, progress: bool
) -> tuple[ProvenanceNet, Tensor]:
    """What is trained, and on what: behind a frozen backbone the features of all samples, which are made once."""
    if not isinstance(net.backbone, Pretrained):
        return net, data.images
    net.to(device)
    features = features_of_all(net.backbone, net.normalise, data.images, progress=progress)
    measure(net.cpu(), features)
    return (net.on_features(features.shape[1]), features) if frozen(net.backbone) else (net, data.images)


def _training_set(
    data: ImageData, inputs: Tensor, rows: Tensor | None, index_map: IndexMap, device: torch.device
) -> TrainingSet:
    """The inputs are put on the device where they take less than half of its free memory, else streamed to it."""
    budget = available_memory() // 2 if device.type == "cuda" else None
    indexed = None if rows is None else indexed_among(rows, data.labels, index_map, device)
    return TrainingSet(ResidentData(inputs, data.labels, device, budget), data.samples.sample_ids, indexed)


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
