"""One network of a table: data opened once a process, trained, asked everything; figures as [rate, n]."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from provnet.answers.evaluation import evaluate
from provnet.base.errors import UsageError
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import POLICIES
from provnet.data.open import open_data
from provnet.data.sources.known import NAMES, data_folder, locate
from provnet.models.network import parameter_count
from provnet.training.config import for_samples, train_config
from provnet_paper.recipes import SIZES
from provnet_paper.records import Figure, Job, Scale, Told
from provnet_paper.store import trained_or_taken

STAND_IN = {"mnist": "embedded"}  # what `tiny` uses instead, so that it needs no files
TRAINED = 0.85  # share of a cell's time that is training


def source(data: str, scale: Scale) -> str:
    """The data set that stands for another at this scale.

    >>> source("mnist", Scale("tiny")), source("mnist", Scale("full"))
    ('embedded', 'mnist')
    """
    return STAND_IN[data] if scale.name == "tiny" else data


def missing(data: str, data_dir: str | None) -> str | None:
    """What to do where a data set is not in the data folder; None where it is there.

    >>> missing("embedded", None) is None
    True
    >>> missing("cifar100", "/nowhere")[:38]
    'cifar100 is not in the data folder. Ex'
    """
    known = NAMES[data]
    if not known.places:
        return None
    try:
        locate(data, data_folder(data_dir))
    except UsageError:
        return f"{data} is not in the data folder. Expected: {known.files}. Get it from {known.where}"
    return None


def opened(data: str, job: Job) -> tuple[ImageData, ImageData]:
    """Training and test samples, as many as the scale says."""
    return _opened(source(data, job.scale), job.data_dir, job.scale.train, job.scale.test)


@lru_cache(maxsize=2)
def _opened(name: str, data_dir: str | None, train: int | None, test: int | None) -> tuple[ImageData, ImageData]:
    """Kept for the next cell: opening 20,000 pictures takes as long as training on some."""
    splits = ("train", train), ("test", test)
    found = [open_data(name, split=split, data_dir=data_dir, limit=limit) for split, limit in splits]
    return found[0], found[1]


def train_and_ask(
    data: str, job: Job, *, preset: str, changes: Mapping[str, Any], make: Callable[[], Mapping[str, Any]] = dict
) -> Told:
    """Train one network by a preset with changes, and evaluate it on unseen and on its own samples.

    `make` gives what `fit` is told beside: network, alpha, backbone, head.
    """
    train, test = opened(data, job)
    config = train_config(preset, **{**changes, "seed": job.seed, **_epochs(job.scale)})
    began = time.monotonic()
    run, taken = trained_or_taken(
        train, config, job, lambda row: job.tell(TRAINED * row["epoch"] / config.epochs), **make()
    )
    trained = time.monotonic()
    figures = flat(evaluate(run, test, train, seed=job.seed).to_json())
    seconds = {
        "take" if taken else "train": round(trained - began, 2),
        "evaluate": round(time.monotonic() - trained, 2),
    }
    settings = run.config.training["training"]
    used = {name: settings[name] for name in ("epochs", "batch_size", "augment", "precision")}
    return {
        "figures": figures,
        "seconds": seconds,
        "parameters": parameter_count(run.network),
        "samples": {"train": len(train), "test": len(test), "data": source(data, job.scale)},
        "network": {"backbone": run.config.network.backbone, "head": run.config.network.head, **used},
    }


def recipe(data: str, preset: str, changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The whole recipe of a cell without its seed, for its config: whatever changes it makes the cell run again.

    >>> recipe("mnist", "paper", {}, Scale("full"))["epochs"], recipe("mnist", "robust", {}, Scale("full"))["augment"]
    (80, 'digits')
    """
    n, shape = SIZES[data]
    config = for_samples(train_config(preset, **{**changes, **_epochs(scale)}), min(n, scale.train or n), shape)
    told = {name: value for name, value in config.to_json().items() if name != "seed"}
    return told if config.augment == "none" else {**told, "policy": POLICIES[config.augment].to_json()}


def _epochs(scale: Scale) -> dict[str, int]:
    return {} if scale.epochs is None else {"epochs": scale.epochs}


def flat(found: Mapping[str, Any]) -> dict[str, Figure]:
    """An evaluation as name -> (rate, n), what was not measured left out.

    >>> flat({"a": {"value": 0.5, "n": 2}, "b": {"noise": {"value": None, "n": 0}}, "index_ceiling": 1.0})
    {'a': (0.5, 2), 'index_ceiling': (1.0, 0)}
    """
    out: dict[str, Figure] = {}
    for name, value in found.items():
        if not isinstance(value, Mapping):
            out[name] = (float(value), 0)
        elif "n" not in value:
            inner = flat(value)
            out |= {f"{name}_{part}": figure for part, figure in inner.items()}
        elif value["value"] is not None:
            out[name] = (float(value["value"]), int(value["n"]))
    return out
