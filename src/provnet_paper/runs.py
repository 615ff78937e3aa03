"""One run of an experiment: data opened, trained by a preset with changes; and the cell around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import POLICIES
from provnet.models.network import parameter_count
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet_paper import networks
from provnet_paper.records import Cell, Job, Scale, Told
from provnet_paper.store import trained_or_taken


class Trained(NamedTuple):
    """A run on its device, the data behind it, and what a cell says of both."""

    run: Run
    train: ImageData
    test: ImageData
    told: Told


def cell(
    name: str, data: str, scale: Scale, run: Callable[[Job], Told], seconds: float, config: Mapping[str, Any]
) -> Cell:
    """A cell on a data set, which is not run where its files are missing.

    >>> cell("mnist/0", "mnist", Scale("tiny"), lambda job: {}, 1.0, {"alpha": 0}).config["data"]
    'embedded'
    """
    source = networks.source(data, scale)
    whole = {"data": source, "samples": [scale.train, scale.test], **config}
    return Cell(name, whole, run, seconds, partial(networks.missing, source))


def trained(
    data: str,
    job: Job,
    *,
    preset: str = "paper",
    changes: Mapping[str, Any] | None = None,
    given: ImageData | None = None,
    part: tuple[float, float] = (0.0, 0.85),
    **wishes: Any,
) -> Trained:
    """Train one network; `given` are other training samples than the data set's, `part` its place in the cell."""
    train, test = networks.opened(data, job)
    train = train if given is None else given
    config = train_config(preset, **{**recipe(preset, changes or {}, job.scale), "seed": job.seed})
    began = time.monotonic()
    first, last = part
    run, taken = trained_or_taken(
        train, config, job, lambda row: job.tell(first + (last - first) * row["epoch"] / config.epochs), **wishes
    )
    took = round(time.monotonic() - began, 2)
    told: Told = {
        "seconds": {"take" if taken else "train": took},
        "parameters": parameter_count(run.network),
        "samples": {"train": len(train), "test": len(test), "data": networks.source(data, job.scale)},
    }
    return Trained(run, train, test, told)


def light(scale: Scale) -> dict[str, Any]:
    """What `tiny` asks for beside: a backbone that a CPU trains in a second.

    >>> light(Scale("tiny")), light(Scale("full"))
    ({'backbone': 'small'}, {})
    """
    return {"backbone": "small"} if scale.name == "tiny" else {}


def recipe(preset: str, changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """What is changed of a preset at this scale: epochs are never more than the scale's.

    >>> recipe("paper", {"epochs": 40}, Scale("tiny", epochs=1)), recipe("paper", {"epochs": 40}, Scale("full"))
    ({'epochs': 1}, {'epochs': 40})
    """
    return {**changes, **({} if scale.epochs is None else {"epochs": scale.epochs})}


def recipe_words(preset: str, changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The whole recipe without its seed, for a cell's config; with what its augmentation does, where it has one."""
    config = train_config(preset, **recipe(preset, changes, scale))
    told = {name: value for name, value in config.to_json().items() if name != "seed"}
    return told if config.augment == "none" else {**told, "policy": POLICIES[config.augment].to_json()}
