"""`fit` by keywords: tests say what a run differs in, whichever of its three arguments that belongs to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from provnet.base.options import NetworkOptions, RunOptions
from provnet.runs.run import Run
from provnet.training import fit as module
from provnet.training.config import TrainConfig, train_config

NETWORK = {one.name for one in fields(NetworkOptions)}
WHERE = {one.name for one in fields(RunOptions)}


def fit(data: Any, *, config: TrainConfig | None = None, **wishes: Any) -> Run:
    network = {name: value for name, value in wishes.items() if name in NETWORK}
    where = {name: value for name, value in wishes.items() if name in WHERE}
    rest = {name: value for name, value in wishes.items() if name not in NETWORK | WHERE}
    asked = (config or train_config("fast")).using(**network) if network else config
    return module.fit(data, asked, RunOptions(**where), **rest)
