"""Small data sets and runs for the tests of training, and what makes two runs the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.training import fit as fitting
from provnet.training.checkpoint import load_checkpoint
from provnet.training.config import TrainConfig, train_config
from provnet.training.session import LOG
from tests.fitting import fit

# Batches of 8, 8 and 7: the last one is ragged. Three epochs are nine steps.
SAMPLES, BATCH, EPOCHS, STEPS = 23, 8, 3, 9

NETWORKS: dict[str, dict[str, Any]] = {
    "single": {"network": "single"},
    "single, mixed": {"network": "single", "alpha": 0.5},
    "class-independent": {"network": "class-independent"},
    "class-conditional": {"network": "class-conditional"},
    "class-conditional, mixed": {"network": "class-conditional", "alpha": 0.3},
    "class-conditional, off": {"network": "class-conditional", "conditional": False},
    "class-conditional-heads": {"network": "class-conditional-heads"},
    "sharing": {"network": "class-independent", "backbone": "sharing-small", "level": 2},
    "keys": {"network": "class-independent", "head": "exemplar"},
    "keys, trained": {"network": "single", "head": "exemplar-trained", "alpha": 0.3},
    "keys, conditional": {"network": "class-conditional", "head": "exemplar", "key_type": "int8"},
}


def pictures(n: int = SAMPLES, classes: int = 3, seed: int = 0, shape: tuple[int, ...] = (1, 8, 8)) -> ImageData:
    """Random pictures of bytes with labels in turn."""
    images = np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
    return provnet.open_data(images, np.arange(n) % classes)


def recipe(**changes: Any) -> TrainConfig:
    """Nine steps."""
    return train_config(**{"preset": "fast", "epochs": EPOCHS, "batch_size": BATCH, **changes})


def tensor_hashes(run: Run) -> dict[str, str]:
    """SHA-256 of every tensor that a run keeps: weights, buffers and the snapshots along the training."""
    along = {f"{epoch}/{name}": value for epoch, state in run.snapshots.items() for name, value in state.items()}
    state = run.network.state_dict() | along
    return {k: hashlib.sha256(v.contiguous().flatten().view(torch.uint8).numpy()).hexdigest() for k, v in state.items()}


def same_bits(one: Run, other: Run) -> None:
    """Refuse two runs that differ in a bit: weights, statistics, snapshots, history of every sample, threshold, log."""
    hashes, others = tensor_hashes(one), tensor_hashes(other)
    assert hashes.keys() == others.keys()
    assert [name for name in hashes if hashes[name] != others[name]] == []
    assert one.history is not None
    assert other.history is not None
    assert one.history.dtype == other.history.dtype == np.float16
    assert one.history.tobytes() == other.history.tobytes()
    assert one.config.support == other.config.support
    if one.folder is not None and other.folder is not None:
        assert (one.folder / LOG).read_bytes() == (other.folder / LOG).read_bytes()


@contextmanager
def interrupted(at: int, saved: Collection[int] | None = None) -> Iterator[None]:
    """Within: fit writes checkpoints after the steps `saved` (`at` alone if None) and is interrupted after step `at`.

    To be used with checkpoint_seconds=0, where fit offers to save after every step.
    """
    real: Callable[..., Path] = fitting.save_checkpoint

    def save(folder: Path, net: Any, optimizer: Any, state: Any, settings: Any) -> None:
        if state.step in ((at,) if saved is None else saved):
            real(folder, net, optimizer, state, settings)
        if state.step == at:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "save_checkpoint", save)
        with pytest.raises(KeyboardInterrupt):
            yield


def interrupt(data: ImageData, out: Path, at: int, saved: Collection[int] | None = None, **wishes: Any) -> None:
    """Begin (or go on with) a run and interrupt it after step `at`."""
    with interrupted(at, saved):
        fit(data, **{"config": recipe(), "resume": True, "checkpoint_seconds": 0, **wishes}, out=out)


def step_of(out: Path) -> int | None:
    """The step of the checkpoint that a resumed run would start from."""
    found = load_checkpoint(out)
    return None if found is None else int(found.meta["step"])


def names(folder: Path) -> list[str]:
    """Everything in a folder and below, relative and sorted."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def fit_quietly(**wishes: Any) -> Run:
    """A run without a folder."""
    return fit(pictures(), config=recipe(), **wishes)
