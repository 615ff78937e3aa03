"""Run by `torchrun` as two processes on one machine: trains, and leaves what each process holds.

`python -m torch.distributed.run --nproc-per-node 2 -m tests.training.two_processes FOLDER`
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from provnet.base.errors import UsageError
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.runs.run import Run
from provnet.training import fit as fitting
from provnet.training.subset import IndexSubset
from tests.fitting import fit

from .made import pictures, recipe

RAGGED = 19
SOME = IndexSubset(np.array([1, 2, 3, 7, 8, 12, 18, 20]))

# No BatchNorm in app. 7.6: without dropout, what two processes do together is what one does.
COMPARABLE: dict[str, dict[str, Any]] = {
    "class-independent": {"network": "class-independent", "backbone": "sharing-small", "level": 3},
    "single": {"network": "single", "backbone": "sharing-small", "alpha": 0.5},
    "class-conditional": {"network": "class-conditional", "backbone": "sharing-small", "conditional": False},
    "keys": {"network": "class-independent", "backbone": "sharing-small", "head": "exemplar"},
    "keys-single": {"network": "single", "backbone": "sharing-small", "head": "exemplar", "alpha": 0.5},
    "keys-conditional": {"network": "class-conditional", "backbone": "sharing-small", "head": "exemplar"},
    "subset": {"network": "class-independent", "backbone": "sharing-small", "index_subset": SOME},
    "subset-keys": {
        "network": "class-independent",
        "backbone": "sharing-small",
        "head": "exemplar",
        "index_subset": SOME,
    },
}
USUAL: dict[str, Any] = {"network": "class-conditional", "backbone": "small"}


@contextmanager
def without_dropout() -> Any:
    """Every process draws dropout of its own."""
    real = torch.nn.Dropout.forward
    torch.nn.Dropout.forward = lambda self, x: x  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Dropout.forward = real  # type: ignore[method-assign]


@contextmanager
def interrupted_after(step: int) -> Any:
    """Both processes are interrupted once this step, the last of an epoch, is saved."""
    real = fitting.train

    def train(*parts: Any, on_epoch: Any, **rest: Any) -> None:
        def stop(state: Any) -> None:
            on_epoch(state)
            if state.step == step:
                raise KeyboardInterrupt

        real(*parts, on_epoch=stop, **rest)

    fitting.train = train  # type: ignore[assignment]
    try:
        with suppress(KeyboardInterrupt):
            yield
            raise AssertionError("it was not interrupted")
    finally:
        fitting.train = real


def keep(folder: Path, name: str, run: Run) -> None:
    """Leave everything that this process holds of a run."""
    assert run.history is not None
    tensors = {key: value.contiguous() for key, value in run.network.state_dict().items()}
    tensors["history"] = torch.tensor(np.asarray(run.history))
    tensors["threshold"] = torch.tensor(run.config.support["threshold"], dtype=torch.float64)
    save_file(tensors, folder / f"{name}-{os.environ.get('RANK', 'alone')}.safetensors")


def parts(folder: Path, conditional: bool) -> None:
    """Loss, gradients and the best keys of a bank of 11 that is split over the processes, each with its own queries."""
    rank = int(os.environ["RANK"])
    head, features, index = bank(conditional)
    head.split_keys(rank, 2)
    own = slice(rank, None, 2)  # three queries for the first, two for the second
    mine = features[own].clone().requires_grad_()
    classes = head.index_map.labels[index[own]]
    loss, hit = head.loss(mine, classes, None, index[own], 0.1)
    loss.sum().backward()
    found = head.best(mine, classes, 4)
    totals = head.class_totals(mine)
    assert mine.grad is not None
    assert head.log_scale.grad is not None
    head.observe(index[own], features[own])
    head.join_keys()
    tensors = {"loss": loss.detach(), "hit": hit, "grad": mine.grad, "scale": head.log_scale.grad, "totals": totals}
    tensors |= {"index": found.index, "share": found.log_share, "keys": head.keys}
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / f"parts-{conditional}-{rank}.safetensors")


def bank(conditional: bool) -> tuple[ExemplarHead, torch.Tensor, torch.Tensor]:
    """Eleven keys of three classes, five queries and the samples that they should find."""
    torch.manual_seed(3)
    head = ExemplarHead(6, IndexMap([0, 1, 2, 0, 1, 2, 0, 0, 2, 2, 2]), conditional=conditional)
    head.set_keys(torch.arange(11), torch.randn(11, 6))
    return head, torch.randn(5, 6), torch.tensor([2, 10, 0, 7, 5])


def main(folder: Path) -> None:
    """Everything that is trained by two processes, and (without torchrun) by one."""
    together = "RANK" in os.environ
    with without_dropout():
        for name, wishes in COMPARABLE.items():
            keep(folder, name, fit(pictures(), config=recipe(), **wishes))
    if not together:
        return
    keep(folder, "usual", fit(pictures(), config=recipe(), out=folder / "run", **USUAL))
    for resume in (False, True):
        with nullcontext() if resume else interrupted_after(6):
            run = fit(pictures(), config=recipe(), out=folder / "again", resume=resume, checkpoint_seconds=0, **USUAL)
            keep(folder, "again", run)
    with without_dropout(), interrupted_after(3):  # an epoch by two, the rest by one process: see the test
        fit(pictures(), config=recipe(), out=folder / "handed", checkpoint_seconds=0, **COMPARABLE["keys"])
    with interrupted_after(2):  # batches of 8 and 11, where one process has 8, 8 and 3: see the test
        fit(pictures(RAGGED), config=recipe(), out=folder / "ragged", checkpoint_seconds=0, **USUAL)
    for conditional in (False, True):
        parts(folder, conditional)
    for n, batch in ((3, 8), (23, 3)):
        try:
            fit(pictures(n), config=recipe(batch_size=batch))
        except UsageError as error:
            (folder / f"refused-{n}-{os.environ['RANK']}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
