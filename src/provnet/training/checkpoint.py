"""Checkpoints: weights, optimiser and progress as safetensors + JSON, written whole or not at all, hashed.

`checkpoints/step-00000123/` holds state.safetensors, state.json and manifest.json. A folder is made under a temporary
name, synced and renamed; the last two are kept. Nothing in it can run code.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from provnet.atomic import Content, sweep, write_files
from provnet.errors import IntegrityError, ProvnetError
from provnet.safefile import open_checked, read_tensors, sha256_file
from provnet.safejson import read_json, write_json
from provnet.training.loop import TrainState

FOLDER = "checkpoints"
KEEP = 2
STATE, META, MANIFEST = "state.safetensors", "state.json", "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back, its hashes checked."""

    path: Path
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]


def save_checkpoint(
    run: Path, net: nn.Module, optimizer: torch.optim.Optimizer, state: TrainState, settings: Mapping[str, Any]
) -> Path:
    """Write the state of training after `state.step` steps and drop all but the last two."""
    tensors = {f"model/{name}": value for name, value in net.state_dict().items()}
    for number, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{number}/{name}": value for name, value in slots.items()}
    tensors |= {"sums": state.sums, "record": state.record}
    if state.history:
        tensors["history"] = torch.from_numpy(np.stack(state.history))
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    meta = {"step": state.step, "log": state.log, "settings": dict(settings)}
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{state.step:010d}"
    files: dict[str, Content] = {
        STATE: lambda goal: save_file(tensors, goal),
        META: json.dumps(meta).encode(),
        MANIFEST: _write_manifest,  # last: it hashes the others
    }
    write_files(path, files, needs=sum(t.numel() * t.element_size() for t in tensors.values()), replace=True)
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old)
    return path


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
    places = {name: goal.with_name(name) for name in (STATE, META)}
    files = {name: {"sha256": sha256_file(p), "bytes": p.stat().st_size} for name, p in places.items()}
    goal.write_bytes(write_json({"files": files}, str(goal)))


def _read(path: Path) -> Checkpoint:
    try:
        listed = read_json((path / MANIFEST).read_bytes(), str(path / MANIFEST))["files"]
        with open_checked(path / META, size=listed[META]["bytes"], sha256=listed[META]["sha256"]) as file:
            meta = json.loads(file.read())
        with open_checked(path / STATE, size=listed[STATE]["bytes"], sha256=listed[STATE]["sha256"]) as file:
            return Checkpoint(path, read_tensors(file), meta)
    except (OSError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}") from error


def restore(
    checkpoint: Checkpoint, net: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> TrainState:
    """Put a checkpoint's values into a network and an optimiser; return where training was."""
    tensors = checkpoint.tensors
    weights = {n.removeprefix("model/"): v for n, v in tensors.items() if n.startswith("model/")}
    net.load_state_dict(weights)
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer/"):
            _, number, slot = name.split("/")
            slots.setdefault(int(number), {})[slot] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    history = list(tensors["history"].numpy()) if "history" in tensors else []
    return TrainState(
        step=checkpoint.meta["step"],
        sums=tensors["sums"].to(device),
        record=tensors["record"].to(device),
        log=list(checkpoint.meta["log"]),
        history=history,
    )


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and p.name.startswith("step-"))
