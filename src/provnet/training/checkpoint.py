"""Checkpoints: weights, optimiser and progress as safetensors + JSON, written whole or not at all, hashed.

`checkpoints/step-0000000123/` holds the weights, the optimiser's moments (a file each, so that a network of any size
that provnet writes can be read back), the record of the epoch, the snapshots so far, state.json and manifest.json. A
folder is made under a temporary name, synced and renamed; the last two are kept. Nothing in it can run code.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from provnet.base.atomic import Content, discard, sweep, write_files
from provnet.base.errors import IntegrityError, NonFiniteError, ProvnetError, UsageError
from provnet.runs.safe import all_finite, open_checked, read_json, read_tensors, sha256_file, write_json
from provnet.training.loop import TrainState

FOLDER = "checkpoints"
KEEP = 2
META, MANIFEST, TENSORS = "state.json", "manifest.json", ".safetensors"
MODEL, PROGRESS, OPTIMIZER, SNAPSHOT = "model", "progress", "optimizer-", "snapshot-"  # groups of tensors: a file each
_STEP = re.compile(r"step-\d{10,}")
_STEP_FILE = re.compile(rf"(?:{MODEL}|{PROGRESS}|{OPTIMIZER}\w+|{SNAPSHOT}\d+){TENSORS}")

Groups = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back, its hashes checked."""

    path: Path
    groups: Mapping[str, Mapping[str, Tensor]]
    meta: Mapping[str, Any]


def save_checkpoint(
    run: Path, net: nn.Module, optimizer: torch.optim.Optimizer, state: TrainState, settings: Mapping[str, Any]
) -> Path:
    """Write the state of training after `state.step` steps and drop all but the last two."""
    groups = _groups(net, optimizer, state)
    meta = {"step": state.step, "log": state.log, "settings": dict(settings)}
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{state.step:010d}"
    files: dict[str, Content] = {
        META: json.dumps(meta).encode(),
        **{f"{name}{TENSORS}": partial(save_file, tensors) for name, tensors in groups.items()},
        MANIFEST: _write_manifest,  # last: it hashes the others
    }
    needs = sum(tensor.nbytes for tensors in groups.values() for tensor in tensors.values())
    if path.exists() and not is_step(path):
        raise UsageError(
            f"{path} has the name of a checkpoint, but provnet did not write it; move it away, then use --resume"
        )
    write_files(path, files, needs=needs, replace=True)
    _drop_others(folder, path)
    return path


def _groups(net: nn.Module, optimizer: torch.optim.Optimizer, state: TrainState) -> Groups:
    """Everything to save, on the CPU; weights with two names are saved twice, NaN or infinity not at all."""
    groups: Groups = {MODEL: dict(net.state_dict()), PROGRESS: {"sums": state.sums, "record": state.record}}
    if state.history:
        groups[PROGRESS]["history"] = torch.from_numpy(np.stack(state.history))
    groups |= {f"{SNAPSHOT}{epoch}": dict(weights) for epoch, weights in state.snapshots.items()}
    for number, slots in optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            groups.setdefault(f"{OPTIMIZER}{slot}", {})[str(number)] = value
    for group, tensors in groups.items():
        seen: set[int] = set()
        for name, value in tensors.items():
            tensor = value.detach().cpu().contiguous()
            if not all_finite(tensor):
                raise NonFiniteError(
                    f"after step {state.step} the {group} holds NaN or infinity ({name}): this state is not saved, the "
                    "last good checkpoint is kept. Lower the learning rate or look at the data"
                )
            place = tensor.untyped_storage().data_ptr()
            tensors[name] = tensor.clone() if place in seen else tensor
            seen.add(place)
    return groups


def _drop_others(folder: Path, newest: Path) -> None:
    """Keep the newest and the one before; those of later steps were left out as damaged and are made anew.

    What somebody else put there stays, whatever it is called.
    """
    others = [path for path in _all(folder) if path != newest and is_step(path)]
    before = [path for path in others if path.name < newest.name]
    for path in others:
        if path not in before[-(KEEP - 1) :]:
            discard(path)


def is_step(folder: Path, *, whole: bool = False) -> bool:
    """Whether a folder is a checkpoint of ours; one that is not `whole` may have lost files."""
    if folder.is_symlink() or not _STEP.fullmatch(folder.name):
        return False
    try:
        names, least = {path.name for path in folder.iterdir()}, {META, MANIFEST}
    except OSError:  # no folder, or one that cannot be looked into
        return False
    found = names >= least if whole else bool(names & least)
    return found and all(name in least or _STEP_FILE.fullmatch(name) for name in names)


def load_checkpoint(run: Path) -> Checkpoint | None:
    """The newest checkpoint whose hashes hold, or None where there is none. A bad one is named on stderr."""
    folder = run / FOLDER
    if not folder.is_dir():
        return None
    sweep(folder)
    found = _all(folder)
    for path in reversed(found):
        try:
            return _read(path)
        except ProvnetError as error:
            sys.stderr.write(f"checkpoint {path.name} is damaged and is left out: {error}\n")
    if found:
        raise IntegrityError(
            f"none of the {len(found)} checkpoints in {folder} can be read; start again without --resume"
        )
    return None


def _write_manifest(goal: Path) -> None:
    places = [path for path in sorted(goal.parent.iterdir()) if path != goal]
    files = {path.name: {"sha256": sha256_file(path), "bytes": path.stat().st_size} for path in places}
    goal.write_bytes(write_json({"files": files}, str(goal)))


def _read(path: Path) -> Checkpoint:
    try:
        listed = read_json((path / MANIFEST).read_bytes(), str(path / MANIFEST))["files"]
        meta, groups = None, {}
        for name, entry in listed.items():
            with open_checked(path / name, size=entry["bytes"], sha256=entry["sha256"]) as file:
                if name == META:
                    meta = json.loads(file.read())
                else:
                    groups[name.removesuffix(TENSORS)] = read_tensors(file)
        if meta is None or not {MODEL, PROGRESS} <= groups.keys():
            raise IntegrityError(f"{path / MANIFEST} is damaged: it does not list all files")
        return Checkpoint(path, groups, meta)
    except (OSError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}") from error


def restore(
    checkpoint: Checkpoint, net: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> TrainState:
    """Put a checkpoint's values into a network and an optimiser; return where training was."""
    try:
        net.load_state_dict(checkpoint.groups[MODEL])
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise IntegrityError(f"{checkpoint.path} was made with another backbone: {why}") from error
    slots: dict[int, dict[str, Tensor]] = {}
    for group, tensors in checkpoint.groups.items():
        if group.startswith(OPTIMIZER):
            for number, value in tensors.items():
                slots.setdefault(int(number), {})[group.removeprefix(OPTIMIZER)] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    for weight, moments in optimizer.state.items():  # in memory they lie as the weight does, which files do not say
        for slot, value in moments.items():
            if value.shape == weight.shape:
                moments[slot] = torch.empty_like(weight).copy_(value)
    progress = checkpoint.groups[PROGRESS]
    return TrainState(
        step=checkpoint.meta["step"],
        sums=progress["sums"].to(device),
        record=progress["record"].to(device),
        log=list(checkpoint.meta["log"]),
        history=list(progress["history"].numpy()) if "history" in progress else [],
        snapshots={
            int(group.removeprefix(SNAPSHOT)): dict(tensors)
            for group, tensors in checkpoint.groups.items()
            if group.startswith(SNAPSHOT)
        },
    )


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and p.name.startswith("step-"))


class Clock:
    """Due not before `seconds`, nor before 20 times what the last checkpoint cost.

    >>> Clock(0.0).due(), Clock(3600.0).due()
    (True, False)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = self.wait = seconds
        self.asked = self.last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time."""
        self.asked = time.monotonic()
        return self.asked - self.last >= self.wait

    def reset(self) -> None:
        """A checkpoint was written since `due` was asked."""
        self.last = time.monotonic()
        cost = self.last - self.asked
        self.wait = max(self.seconds, 20 * cost) if self.seconds > 0 else 0.0
