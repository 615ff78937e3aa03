"""Whole pictures of samples whose inputs are views of them: how to read them again, and what the views were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Read = Callable[[], bytes | np.ndarray]  # the bytes of a picture file, or pixels (H, W) or (H, W, 3)


@dataclass(frozen=True, eq=False)
class Originals:
    """One row per sample.

    Attributes:
        views: (N, 32) SHA-256 of the inputs as they were opened; the sample table has those of the whole pictures.
        read: reads the picture once more, where it has no file of its own (`SampleTable.paths`); else None.
    """

    views: np.ndarray
    read: tuple[Read | None, ...]

    def select(self, rows: np.ndarray) -> Originals:
        """Those of some samples, in the order given."""
        return Originals(self.views[rows], tuple(self.read[i] for i in rows.tolist()))


def joined(parts: Sequence[Any]) -> Originals | None:
    """Those of several data sets, one after the other; None where all inputs are the whole samples."""
    if all(part.originals is None for part in parts):
        return None
    views = [part.samples.pixel_sha256 if part.originals is None else part.originals.views for part in parts]
    read = [(None,) * len(part) if part.originals is None else part.originals.read for part in parts]
    return Originals(np.concatenate(views), tuple(one for each in read for one in each))
