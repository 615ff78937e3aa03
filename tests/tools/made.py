"""Small runs for the tests of applications, each trained once however many tests look at it."""

from __future__ import annotations

from functools import cache
from typing import Any

from provnet.runs.run import Run
from provnet.training.config import train_config
from tests.fitting import fit

from ..digits import training


@cache
def isolated(**wishes: Any) -> Run:
    """A CNN whose index branch is not trained."""
    config = train_config("fast", epochs=3, batch_size=16, index_weight=0.0)
    return fit(training(), config=config, **wishes)


@cache
def keyed(network: str = "single") -> Run:
    """A run with keys."""
    return fit(training(), network=network, head="exemplar", config=train_config("fast", epochs=2, batch_size=16))
