"""TrainConfig: how a network is trained; PRESETS: the paper's recipe and ours. `robust` goes with an exemplar head."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from provnet.base.errors import UsageError, choose, did_you_mean, one_of
from provnet.base.options import NetworkOptions
from provnet.data.modalities.augment import POLICIES, auto_policy
from provnet.models.backbones import MANY

PRECISIONS = ("auto", "32-true", "bf16-mixed")
SCHEDULES = ("one-cycle", "step")
LARGEST_BATCH = 1_000_000


@dataclass(frozen=True)
class TrainConfig:
    """One training recipe. Every field affects the result, so all fields are compared before a run resumes.

    Attributes:
        preset: the name it came from.
        epochs, lr, weight_decay, betas: as usual (AdamW).
        batch_size: 0 lets `for_samples` choose it by the size of the data.
        schedule: `one-cycle` (linear up for `warmup` epochs, cosine to zero) or `step` (linear up, then times
            `step_factor` every `step_every` epochs).
        smoothing, task_smoothing: label smoothing of the index loss and of the class loss, over valid slots only.
        task_weight, index_weight: weights of the two losses (two-branch networks).
        precision: `auto` is bf16-mixed on a GPU that has it, else 32-true.
        negatives: keys that a sample is compared with in each step (exemplar heads); 0 means all.
        finetune: also train a pretrained backbone, which is frozen otherwise.
        augment: a name in POLICIES, or `auto` to choose it by the shape of the samples; the copies keep their index.
        seed: order, targets, dropout and initial weights are functions of it.
        asked: the fields that were given by name, which `for_samples` does not change.
        wanted: the network, of which "auto" is resolved by the data.
    """

    preset: str = "fast"
    epochs: int = 20
    batch_size: int = 0
    lr: float = 2e-3
    weight_decay: float = 5e-2
    betas: tuple[float, float] = (0.9, 0.99)
    schedule: str = "one-cycle"
    warmup: float = 3.0
    step_every: int = 8
    step_factor: float = 0.6
    smoothing: float = 0.05
    task_smoothing: float = 0.0
    task_weight: float = 1.0
    index_weight: float = 0.7
    precision: str = "auto"
    negatives: int = 0
    finetune: bool = False
    augment: str = "none"
    seed: int = 0
    asked: tuple[str, ...] = ()
    wanted: NetworkOptions = field(default_factory=NetworkOptions)

    def __post_init__(self) -> None:
        for name, least, most in (
            ("epochs", 1, 100_000),
            ("step_every", 1, 100_000),
            ("negatives", 0, 2**31),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value <= most:
                raise UsageError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
        if self.batch_size != 0 or type(self.batch_size) is not int:
            check_batch_size(self.batch_size)
        for name in ("lr", "weight_decay", "warmup", "step_factor", "task_weight", "index_weight"):
            value = getattr(self, name)
            if not _is_real(value) or not math.isfinite(value) or value < 0 or (name == "lr" and value == 0):
                allowed = "above 0" if name == "lr" else "of 0 or more"
                raise UsageError(f"{name} must be a finite number {allowed}, got {value!r}")
        for name, count in (("betas", 2), ("smoothing", 1), ("task_smoothing", 1)):
            value = getattr(self, name)
            parts = value if isinstance(value, tuple | list) else (value,)
            if len(parts) != count or not all(_is_real(part) and 0 <= part < 1 for part in parts):
                what = "two numbers, each" if count == 2 else "a number"
                raise UsageError(f"{name} must be {what} in [0, 1); got {value!r}")
        if not _is_whole(self.seed) or not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be a whole number in 0..2^63-1, got {self.seed!r}")
        one_of("precision", self.precision, PRECISIONS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("augment", self.augment, ("auto", *POLICIES))

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary of the recipe; who asked for it does not count, and the network is kept on its own."""
        left_out = ("asked", "wanted") if self.finetune else ("asked", "wanted", "finetune")
        recipe = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        return recipe | {"betas": list(self.betas)}

    def using(self, **wishes: Any) -> TrainConfig:
        """The same recipe for another network; wishes are fields of `provnet.base.options.NetworkOptions`.

        >>> TrainConfig().using(network="single").wanted.network
        'single'
        """
        return replace(self, wanted=replace(self.wanted, **wishes))


def check_batch_size(value: Any) -> int:
    """A batch size as people may ask for it: BatchNorm compares samples, so one is not enough.

    >>> check_batch_size(64)
    64
    """
    if not isinstance(value, int) or not 2 <= value <= LARGEST_BATCH:
        raise UsageError(
            f"batch_size (--batch-size) must be a whole number from 2 to {LARGEST_BATCH:,}, got {value!r}; "
            "leave it out to have it chosen"
        )
    return value


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real)


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral)


def train_config(preset: str = "default", **changes: Any) -> TrainConfig:
    """A preset with some fields changed, also those of the network; None keeps the value of the preset.

    >>> train_config("paper", epochs=40, network="single").batch_size
    128
    """
    network = {one.name: changes.pop(one.name) for one in fields(NetworkOptions) if one.name in changes}
    if changes.get("batch_size") is not None:
        check_batch_size(changes["batch_size"])
    known = {f.name for f in fields(TrainConfig)} - {"asked", "wanted"}
    for name in changes:
        if name not in known:
            raise UsageError(
                f'unknown setting "{name}"; allowed: {", ".join(sorted(known))}.{did_you_mean(name, known)}'
            )
    given: Mapping[str, Any] = {k: v for k, v in changes.items() if v is not None}
    return replace(choose("preset", preset, PRESETS), **given, asked=tuple(sorted(given))).using(**network)


def as_config(given: Any) -> TrainConfig:
    """What `fit` was given, or the usual recipe; anything else is refused.

    >>> as_config(None).preset
    'default'
    """
    if not isinstance(given, TrainConfig | None):
        raise UsageError(f"config must be a TrainConfig, as train_config(...) gives it; got {type(given).__name__}")
    return given or train_config()


def for_samples(config: TrainConfig, n: int, shape: tuple[int, ...]) -> TrainConfig:
    """The recipe for n samples of a shape: a batch size left open becomes about n / 32, from 32 to 512.

    Preset `default` takes EPOCHS for ENOUGH samples and more; from MANY on preset `robust` takes the values of
    MANY_SAMPLES. Neither replaces what was asked for by name.

    >>> for_samples(train_config("fast"), 4_000, (1, 28, 28)).batch_size
    128
    >>> for_samples(train_config("robust"), 60_000, (1, 28, 28)).augment
    'digits'
    >>> for_samples(train_config("robust"), 50_000, (3, 32, 32)).epochs
    120
    """
    batch = config.batch_size or max(32, min(512, 2 ** round(math.log2(max(n, 2) / 32))))
    augment = auto_policy(shape) if config.augment == "auto" else config.augment
    many = MANY_SAMPLES.get(augment, {}) if config.preset == "robust" and n >= MANY else {}
    usual = PRESETS["robust"]
    if config.preset == "default" and n >= ENOUGH and augment in EPOCHS and "epochs" not in config.asked:
        config = replace(config, epochs=EPOCHS[augment])
    left = {k: v for k, v in many.items() if k not in config.asked and getattr(config, k) == getattr(usual, k)}
    return replace(config, batch_size=batch, augment=augment, **left)


def for_pretrained(config: TrainConfig) -> TrainConfig:
    """The recipe for a pretrained backbone: what was not asked for by name is that of FROZEN, or of FINETUNED.

    >>> for_pretrained(train_config(epochs=3)).epochs, for_pretrained(train_config(finetune=True)).augment
    (3, 'photos')
    """
    if not config.finetune and "augment" in config.asked and config.augment != "none":
        raise UsageError(
            "a frozen backbone sees every picture once, so changed copies cannot be trained on; leave augment "
            "(--augment) out, or train the backbone, too: finetune (--finetune)"
        )
    found = FINETUNED if config.finetune else FROZEN
    return replace(config, **{name: value for name, value in found.items() if name not in config.asked})


def for_texts(config: TrainConfig) -> TrainConfig:
    """The recipe for texts: what was not asked for by name is that of TEXTS.

    >>> for_texts(train_config(epochs=3)).epochs, for_texts(train_config()).augment
    (3, 'none')
    """
    if "augment" in config.asked and config.augment != "none":
        raise UsageError("augment (--augment) is for pictures and numbers; leave it out for texts")
    return replace(config, **{name: value for name, value in TEXTS.items() if name not in config.asked})


def learning_rate(config: TrainConfig, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, a pure function of where training is.

    >>> learning_rate(train_config("paper"), step=3 * 10, steps_per_epoch=10)
    0.002
    """
    warm = config.warmup * steps_per_epoch
    if config.schedule == "one-cycle":
        total = config.epochs * steps_per_epoch
        warm = min(warm, total / 3)
        if step < warm:
            return config.lr * (step + 1) / (warm + 1)
        return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(total - warm, 1)))
    if step < warm:
        return config.lr * (step + 1) / warm
    epoch = step // steps_per_epoch
    decays = int((epoch - config.warmup) // config.step_every)
    return config.lr * float(config.step_factor**decays)


PRESETS: dict[str, TrainConfig] = {
    "default": TrainConfig(preset="default", augment="auto"),
    "fast": TrainConfig(),
    "paper": TrainConfig(
        preset="paper",
        epochs=80,
        batch_size=128,
        lr=2e-3,
        weight_decay=2e-5,
        betas=(0.9, 0.999),
        schedule="step",
        warmup=3.0,
        task_weight=0.3,
    ),
    "robust": TrainConfig(preset="robust", epochs=30, augment="auto"),
}
ENOUGH, EPOCHS = 2_000, {"digits": 12}  # by augmentation: so many samples need fewer epochs
# Behind frozen features a linear layer learns in seconds; its weights need a strong decay, or it learns by heart.
FROZEN: dict[str, Any] = {"epochs": 20, "lr": 5e-4, "weight_decay": 1.0, "augment": "none", "schedule": "one-cycle"}
FINETUNED: dict[str, Any] = {"epochs": 5, "lr": 1e-4, "weight_decay": 0.05, "augment": "photos", "batch_size": 32}
# A linear model of thousands of grams; chosen on the validation texts of SST-2 and CLINC150.
TEXTS: dict[str, Any] = {"epochs": 6, "lr": 2e-3, "augment": "none", "schedule": "one-cycle", "warmup": 1.0}
# By augmentation. Few samples need a stronger index loss; many can afford to let the class lead.
MANY_SAMPLES: dict[str, dict[str, Any]] = {
    "digits": {"epochs": 25, "index_weight": 0.3, "task_smoothing": 0.1},
    "photos": {"epochs": 120, "lr": 4e-3, "weight_decay": 0.15, "index_weight": 0.15, "task_smoothing": 0.1},
}
