"""StepCheck: what a step of somebody else's loop is looked at for, before anything is noted of it.

Letters: B batch, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.dataset import Dataset
from provnet.models.attached import AttachedNet
from provnet.models.tap import Taken

LOOKED = 3  # steps whose input is held against what the dataset yields
COMPARED = 64  # samples of each
FAR = 2.0  # times as large or as small: another unit
SAY = "say with transform= how a stored sample becomes the model's input"


class _Later:
    """A flag on its way from a GPU: who asks waits for it, not for the work that was queued since."""

    def __init__(self, flag: Tensor) -> None:
        self.flag, self.copied = flag, None
        if flag.is_cuda:
            self.flag = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(flag, non_blocking=True)
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
            self.copied.record()  # type: ignore[attr-defined, unused-ignore]

    def known(self) -> bool:
        """What it says."""
        if self.copied is not None:
            self.copied.synchronize()
        return bool(self.flag)


class StepCheck:
    """Refuses steps that would write wrong keys; `steps` counts those that were fine."""

    def __init__(self, net: AttachedNet, data: Dataset, *, trained: bool) -> None:
        self.net, self.data, self.trained, self.steps = net, data, trained, 0
        self._finite = _Later(torch.ones((), dtype=torch.bool))

    @property
    def at(self) -> str:
        """Where the features are read."""
        return str(self.net.tap.place)

    def numbers(self, index: Any) -> Tensor:
        """(B,) int64 on the CPU, all of them samples of the data."""
        if isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        if isinstance(index, list | tuple) and index and all(isinstance(i, int | np.integer) for i in index):
            index = torch.tensor([int(i) for i in index])
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1 or len(index) == 0:
            given = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else f"{index!r:.80}"
            raise UsageError(
                "index must be the int64 numbers of the batch's samples, (B,), as prov.dataset() yields them; got "
                f"{given}"
            )
        numbers = index.detach().cpu()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(self.data):
            raise UsageError(
                f"index must lie in 0..{len(self.data) - 1}, the samples that the model was attached to; got "
                f"{low if low < 0 else high}. Take it from prov.dataset(), or attach to all samples that you train on"
            )
        return numbers

    def step(self, numbers: Tensor, taken: Taken) -> bool:
        """Refuse a step in words; False where its features, or on a GPU those of the step before, are not finite."""
        features, width = taken.features, int(self.net.support.mean.shape[1])
        if not self.net.tap.model.training:
            raise UsageError("the model is in evaluation mode; call model.train() before you train it")
        if len(features) != len(numbers):
            raise UsageError(
                f"index names {len(numbers)} samples, the model's last forward pass had {len(features)}; call "
                "prov.loss(index) with the numbers of the very batch that the model has just seen"
            )
        if features.shape[1] != width:
            raise UsageError(
                f"{self.at} gives {features.shape[1]} features in training and {width} when it was attached; name a "
                "layer of one width"
            )
        classes = self.net.index_map.classes
        if taken.logits.shape[1] != classes:
            raise UsageError(
                f"the model gives {taken.logits.shape[1]} class scores now, {classes} when it was attached"
            )
        if self.trained:
            self._graded(features)
        before, self._finite = self._finite, _Later(torch.isfinite(features.detach()).all())
        if not before.known() or not (features.is_cuda or self._finite.known()):  # a GPU is asked a step later
            return False
        if self.steps < LOOKED:
            self._same_input(numbers, taken.given)
        self.steps += 1
        return True

    def refuse_not_finite(self, dtype: torch.dtype) -> None:
        """Say that a step was not finite; the next one begins anew."""
        self._finite = _Later(torch.ones((), dtype=torch.bool))
        half = " (float16 ends at 65,504: use bfloat16)" if dtype == torch.float16 else ""
        raise NonFiniteError(
            f"the features hold NaN or infinity{half} ({self.at}); no key was moved by them. Lower the learning rate, "
            "or skip such batches"
        )

    def _graded(self, features: Tensor) -> None:
        if not torch.is_grad_enabled():
            raise UsageError("gradients are switched off (torch.no_grad): call prov.loss where you train, or weight=0")
        if not features.requires_grad:
            raise UsageError(
                f"the features carry no gradient ({self.at}): the layers below are frozen, or run under reentrant "
                "gradient checkpointing (use_reentrant=False). Or only record: attach(..., weight=0)"
            )

    def _same_input(self, numbers: Tensor, given: Any) -> None:
        """Refuse a model that is fed otherwise than the dataset yields: later it would be asked something else."""
        due = self.net.prepare(self.data.inputs[numbers[:COMPARED]])
        if isinstance(due, Tensor) and isinstance(given, Mapping):
            given = next((one for one in given.values() if isinstance(one, Tensor) and one.ndim == due.ndim), None)
        if isinstance(due, Tensor) and isinstance(given, Tensor):
            problem = _difference(given.detach()[:COMPARED], due)
            if problem:
                raise UsageError(
                    f"the model was fed input {problem}: it would be asked about other input than it learned; {SAY}, "
                    "and train on prov.dataset()"
                )
            return
        lacks = isinstance(given, Mapping) and not set(due) <= set(given)
        if isinstance(due, Mapping) and (lacks or isinstance(given, Tensor)):
            words = f"a tensor of {given.dtype}" if isinstance(given, Tensor) else ", ".join(given)
            raise UsageError(f"the model was called with {words}, prov.dataset() yields {', '.join(due)}; {SAY}")


def _difference(given: Tensor, due: Tensor) -> str:
    """How the input of a model differs in kind from that which is due; "" where it does not."""
    if given.is_floating_point() != due.is_floating_point():
        return f"of {given.dtype}, prov.dataset() yields {due.dtype}"
    if given.ndim != due.ndim or (due.ndim == 4 and given.shape[1] != due.shape[1]):
        return f"of shape {tuple(given.shape)}, prov.dataset() yields {tuple(due.shape)}"
    if not due.is_floating_point() or due.numel() < 2:
        return ""
    (mean, spread), (here, wide) = ((float(one.float().mean()), float(one.float().std())) for one in (due, given))
    largest = max(spread, wide)
    if largest == 0 or (wide / FAR <= spread <= wide * FAR and abs(here - mean) <= FAR * largest):
        return ""
    return f"of mean {here:.3g} and spread {wide:.3g}, prov.dataset() yields {mean:.3g} and {spread:.3g}"
