"""The training samples of somebody's own loop: each with its index, and hashed when it is first fetched.

Letters: B batch, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from provnet.base.batches import Fields
from provnet.base.errors import DataError, UsageError, choose
from provnet.base.files import shown
from provnet.data.dataset import Dataset as Data
from provnet.data.modalities.augment import POLICIES, Policy, augment, auto_policy
from provnet.models.attached import Prepare, stacked
from provnet.models.tap import rows_of

Augment = str | Policy | Callable[[Any], Any]
ROBUST = "robust"  # the policy for samples of this shape
AT_ONCE = 256  # samples that are hashed at a time


def policy_of(given: Augment | None, shape: tuple[int, ...]) -> Policy | Callable[[Any], Any] | None:
    """What happens to a sample before it is transformed.

    >>> policy_of("robust", (3, 32, 32)) is POLICIES["photos"], policy_of(None, (4,))
    (True, None)
    """
    if isinstance(given, str):
        name = auto_policy(shape) if given == ROBUST else given
        return choose("augment policy", name, POLICIES | {ROBUST: POLICIES["none"]})
    if given is None or isinstance(given, Policy) or callable(given):
        return given
    raise UsageError(
        f"augment must be {ROBUST}, {', '.join(POLICIES)} or a function of a stored sample, got {given!r:.80}"
    )


def refuse_others(data: Data, rows: Tensor) -> None:
    """Refuse samples whose content no longer has the hash that it was opened with."""
    changed = np.flatnonzero(data.changed(rows))
    if len(changed):
        name = shown(data.samples.sample_ids[int(rows[changed[0]])])
        raise DataError(
            f'"{name}" has changed since it was opened, so its hash no longer names it; open the changed data '
            "again: provnet.open_data(...)"
        )


class IndexedSamples(Dataset[tuple[Any, ...]]):
    """(x, y, index) of each sample, or (x, index) where there are no labels; x went through `augment` and `transform`.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> x, y, index = IndexedSamples(data, Prepare(torch.uint8, 255.0))[7]
    >>> x.shape, x.dtype, index
    (torch.Size([1, 28, 28]), torch.float32, 7)
    """

    def __init__(self, data: Data, prepare: Prepare, augment: Augment | None = None) -> None:
        self.data, self.prepare = data, prepare
        self.augment = policy_of(augment, data.shape)
        self.fetched = np.zeros(len(data), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """One sample; -1 is the last."""
        return self.__getitems__([index])[0]

    def __getitems__(self, index: Sequence[int]) -> list[tuple[Any, ...]]:
        """Several samples, as a DataLoader asks for them."""
        rows = self._rows(index)
        inputs = self.batch(rows)
        ones = [rows_of(inputs, one) for one in range(len(rows))]  # type: ignore[arg-type]
        grouping = self.data.samples.grouping
        if grouping is None:
            return list(zip(ones, rows.tolist(), strict=True))
        return list(zip(ones, grouping.of[rows.numpy()].tolist(), rows.tolist(), strict=True))

    def batch(self, rows: Tensor) -> Any:
        """The model's input of some samples (B,), each looked at when it is first fetched."""
        values: Any = self.data.inputs[rows]
        new = torch.from_numpy(~self.fetched[rows.numpy()])
        if bool(new.any()):
            refuse_others(self.data, rows[new])
            self.fetched[rows[new].numpy()] = True
        if self.augment is not None and isinstance(values, Fields):
            raise UsageError(f"augment= is for one tensor per sample; these have several ({', '.join(values.keys())})")
        if isinstance(self.augment, Policy):
            salt = int(torch.randint(2**31, ()))  # of the loader's own randomness: another copy in every epoch
            values = augment(values, rows, self.augment, seed=0, epoch=salt)
        elif self.augment is not None:
            values = stacked([self._kept(self.augment(one.clone())) for one in values])
        return self.prepare(values)

    def _kept(self, value: Any) -> Any:
        """What a function made of a stored sample: of the same type, or transform= would not see it as one."""
        if not isinstance(value, Tensor) or value.dtype != self.prepare.stored:
            given = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(
                f"augment must give what it is given, a stored sample of {self.prepare.stored}; it gives {given}. What "
                "makes the model's input of it is transform="
            )
        return value

    def _rows(self, index: Sequence[int]) -> Tensor:
        n = len(self)
        rows = torch.as_tensor([int(i) for i in index], dtype=torch.int64)
        if len(rows) and not -n <= int(rows.min()) <= int(rows.max()) < n:
            raise IndexError(f"samples are numbered from 0 to {n - 1}; asked for {rows.min()}..{rows.max()}")
        return torch.where(rows < 0, rows + n, rows)
