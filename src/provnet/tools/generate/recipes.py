"""How generators are trained: the paper's two recipes and ours, by the name that `--generator` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from provnet.base.errors import UsageError, choose, did_you_mean, one_of
from provnet.base.options import NetworkOptions, Train
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.training.config import TrainConfig, check_batch_size, train_config
from provnet.training.fit import fit


def recipe(generator: str = "modern", **changes: Any) -> TrainConfig:
    """A recipe with some settings of its training changed; None leaves a setting as it is.

    >>> recipe("paper").epochs, recipe("faces", epochs=3).epochs
    (70, 3)
    """
    found = choose("generator", generator, RECIPES)
    known = {field.name for field in fields(TrainConfig)}
    for name in changes:
        if name not in known:
            raise UsageError(f'unknown setting "{name}" of a training.{did_you_mean(name, known)}')
    return replace(found, **{k: v for k, v in changes.items() if v is not None})


def fit_generator(data: ImageData, generator: str = "modern", *, changes: Any = None, **how: Any) -> Run:
    """Train a generator; `changes` are settings of its training, `how` goes to `fit` (where, test, on_epoch).

    >>> import provnet
    >>> run = fit_generator(provnet.open_data("embedded", limit=40), "faces", changes={"epochs": 1})
    >>> run.config.network.backbone
    'vae-faces'
    """
    if changes is not None and not (isinstance(changes, Mapping) and all(isinstance(name, str) for name in changes)):
        raise UsageError(f'changes must be settings by name, as {{"epochs": 40}}; got {changes!r:.80}')
    return fit(data, recipe(generator, **(changes or {})), **how)


# Adam at 1e-3 throughout, batches of 128, .6 (reconstruction + divergence) + .4 (class + index)
_PAPER = TrainConfig(
    preset="paper-vae",
    epochs=70,
    batch_size=128,
    lr=1e-3,
    weight_decay=0.0,
    betas=(0.9, 0.999),
    schedule="step",
    warmup=0.0,
    step_factor=1.0,
    smoothing=0.0,
    task_weight=0.4,
    index_weight=0.4,
)
_MODERN = TrainConfig(
    preset="modern-vae",
    epochs=40,
    lr=2e-3,
    weight_decay=1e-4,
    betas=(0.9, 0.99),
    warmup=2.0,
    smoothing=0.0,
    task_weight=5.0,
    index_weight=1.0,
)
_LAYERS, _KEYS = ("class-conditional-heads", "plain"), ("class-conditional", "exemplar")


def _with(config: TrainConfig, backbone: str, network: str, head: str) -> TrainConfig:
    return config.using(network=network, backbone=backbone, head=head)


RECIPES: dict[str, TrainConfig] = {
    "paper": _with(_PAPER, "vae-paper", *_LAYERS),
    "paper-mean": _with(replace(_PAPER, preset="paper-mean-vae"), "vae-paper-mean", *_LAYERS),
    "faces": _with(replace(_PAPER, preset="faces-vae", epochs=150), "vae-faces", *_LAYERS),
    "modern": _with(_MODERN, "vae-modern", *_KEYS),
}
GENERATOR_NAMES = tuple(RECIPES)


TASKS = ("classify", "generate")


def chosen_recipe(asked: Train) -> TrainConfig:
    """How to train, and which network: by preset, or by the name of a generator, which brings its own."""
    how, network = asked.recipe, asked.network
    one_of("task", how.task, TASKS)
    changes = {name: getattr(how, name) for name in ("epochs", "batch_size", "lr", "augment", "seed")}
    if how.task == "classify":
        if how.generator is not None:
            raise UsageError("--generator goes with --task generate; give that too, or leave it out")
        changes["finetune"] = how.finetune or None
        return replace(train_config(how.preset or "default", **changes), wanted=network)

    own = [name for name in BROUGHT if getattr(network, name) != getattr(NetworkOptions(), name)]
    own += [] if asked.subset.index_subset is None else ["index_subset"]
    own += [] if how.preset is None else ["preset"]
    if own:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise UsageError(f"a generator brings its own network and recipe: leave {words} out, choose with --generator")
    if how.batch_size is not None:
        check_batch_size(how.batch_size)
    found = recipe(how.generator or "modern", **changes)
    return found.using(key_type=network.key_type, key_width=network.key_width)


BROUGHT = ("network", "backbone", "head", "alpha", "conditional", "level")
