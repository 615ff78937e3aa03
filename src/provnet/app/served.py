"""What is served: a run with its pictures as far as they are there, put together by whoever starts the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from provnet.applications.member import Heldout
from provnet.data.imagedata import ImageData
from provnet.modelfile import Run


@dataclass(frozen=True, eq=False)
class Served:
    """A run and what belongs to it.

    Attributes:
        run: the run, on the device where it shall compute.
        name: what it is called.
        folder: where it lies, or None.
        exposure: `ids`, `thumb` or `full`, how much of training and test pictures may be seen.
        training: the training samples that are still what they were, in the run's order; None where none are there.
        index: (n,) which training sample each of them is.
        facts: what changed among the training data, one line each, or why they are not there.
        test: the run's test split, or None, and why.
        heldout: what an audit kept for verdicts on single pictures, or None.
        opened: the hashes of weights and samples when it was read; those of the folder where none are given.
        keep: where results of costly work and decisions are kept; None keeps them in memory alone.
    """

    run: Run
    name: str
    folder: Path | None = None
    exposure: str = "full"
    training: ImageData | None = None
    index: np.ndarray | None = None
    facts: tuple[str, ...] = ()
    test: ImageData | None = None
    test_why: str = ""
    heldout: Heldout | None = None
    keep: Path | None = None
    opened: Mapping[str, str] = field(default_factory=dict)
