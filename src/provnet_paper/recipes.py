"""Our recipe for each data set and setting of table 2: the one place to change them.

A cell's recipe is BASE of its data set with what CHANGED says of the cell. `changes` are fields of TrainConfig, laid
over the preset; the rest is what `fit` is told. A cell whose recipe changed is run again, the others stay kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """How one network is trained.

    Attributes:
        preset, changes: of `train_config`.
        backbone: a name in BACKBONES, `auto`, or `pretrained.BACKBONE`.
        head: a name in HEADS.
        key_width: numbers of a key, 0 to have it chosen.
        pixels: side that parts of pictures are enlarged to while a pretrained backbone is trained.
        seconds: about how long the cell takes on an H200.
    """

    preset: str = "robust"
    changes: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "auto"
    head: str = "exemplar"
    key_width: int = 0
    pixels: int = 0
    seconds: float = 60.0

    def with_changes(self, **changes: Any) -> Recipe:
        """The same recipe with some fields of TrainConfig changed."""
        return replace(self, changes={**self.changes, **changes})


PRETRAINED = Recipe(
    backbone="efficientnet-lite0",
    changes={
        "augment": "photos",
        "epochs": 30,
        "batch_size": 128,
        "lr": 5e-4,
        "weight_decay": 0.05,
        "index_weight": 0.2,
        "task_smoothing": 0.1,
    },
    pixels=192,
    seconds=240.0,
)

# The preset `robust` knows many digits and many photos by itself: see MANY_SAMPLES in training/config.py.
BASE: dict[str, Recipe] = {
    "mnist": Recipe(seconds=30.0),
    # clothes may be mirrored, so the augmentation of photos; and a backbone for more than digits
    "fashion-mnist": Recipe(backbone="residual", changes={"augment": "photos"}, seconds=125.0),
    "cifar10": Recipe(seconds=135.0),
    "cifar100": Recipe(seconds=135.0),
    "stanford-dogs": Recipe(
        changes={"epochs": 100, "batch_size": 128, "lr": 3e-3, "weight_decay": 0.2}
        | {"index_weight": 0.2, "task_smoothing": 0.1},
        seconds=110.0,
    ),
}

CHANGED: dict[tuple[str, str], Mapping[str, Any]] = {
    # a single branch learns from indices alone, which takes fewer epochs
    ("fashion-mnist", "single-0"): {"epochs": 40},
    ("cifar10", "single-0"): {"epochs": 40},
}


def recipe_of(data: str, setting: str) -> Recipe:
    """The recipe of a cell.

    >>> recipe_of("fashion-mnist", "single-0").changes
    {'augment': 'photos', 'epochs': 40}
    """
    base = BASE[data]
    if "-pretrained" in setting:
        base = PRETRAINED
    return base.with_changes(**CHANGED.get((data, setting), {}))


def words_of(recipe: Recipe, backbone: str, used: Mapping[str, Any]) -> str:
    """A recipe as it was used, in a few words.

    >>> words_of(Recipe(), "medium", {"epochs": 3, "augment": "digits"})
    'preset robust, backbone medium, head exemplar; augment digits, epochs 3'
    """
    parts = [f"preset {recipe.preset}", f"backbone {recipe.backbone if recipe.pixels else backbone}"]
    parts.append(f"head {recipe.head}" + (f" with keys of {recipe.key_width}" if recipe.key_width else ""))
    if recipe.pixels:
        parts.append(f"trained on parts of pictures enlarged to {recipe.pixels}×{recipe.pixels}")
    told = ", ".join(f"{name.replace('_', ' ')} {used[name]}" for name in TOLD if name in used)
    return f"{', '.join(parts)}; {told}"


TOLD = ("augment", "epochs", "batch_size", "lr", "weight_decay", "index_weight", "task_smoothing")


@dataclass(frozen=True)
class Setting:
    """A network of table 2."""

    network: str
    alpha: float
    words: str


SETTINGS: dict[str, Setting] = {
    "class-conditional": Setting("class-conditional", 0.0, "two branch, class conditional"),
    "class-independent": Setting("class-independent", 0.0, "two branch, class independent"),
    "single-0": Setting("single", 0.0, "single branch, α = 0"),
    "single-0.5": Setting("single", 0.5, "single branch, α = 0.5"),
}

DATA: dict[str, str] = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stanford-dogs": "Stanford Dogs",
}
# training samples and their shape, which recipes may depend on
SIZES: dict[str, tuple[int, tuple[int, int, int]]] = {
    "mnist": (60_000, (1, 28, 28)),
    "fashion-mnist": (60_000, (1, 28, 28)),
    "cifar10": (50_000, (3, 32, 32)),
    "cifar100": (50_000, (3, 32, 32)),
    "stanford-dogs": (12_000, (3, 64, 64)),
}
MAIN = ("mnist", "fashion-mnist", "cifar10")  # the rows whose 30 numbers are counted

FIGURES: dict[str, str] = {
    "class_accuracy": "class",
    "stage_2": "index, given the class",
    "index_accuracy": "index",
    "any_at_1": "class through the index, top 1",
    "any_at_5": "class through the index, any of 5",
    "index_accuracy_sampled_targets": "index, sampled targets",
}
