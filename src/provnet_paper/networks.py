"""One network of a table: data opened once a process, trained, asked everything; figures as [rate, n]."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from provnet.answers.evaluation import evaluate
from provnet.base.errors import UsageError
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import POLICIES
from provnet.data.open import open_data
from provnet.data.sources.known import NAMES, data_folder, locate
from provnet.models.network import parameter_count
from provnet.runs.run import Run
from provnet.training.config import TrainConfig, for_samples, train_config
from provnet_paper.records import Cell, Figure, Job, Scale, Told
from provnet_paper.store import trained_or_taken


@dataclass(frozen=True)
class Recipe:
    """How one network is trained by the preset `robust` with changes, and about how long that takes on an H200.

    `pixels` is the side that parts of pictures are enlarged to while a pretrained backbone is trained.
    """

    seconds: float
    changes: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "auto"
    pixels: int = 0

    @property
    def wishes(self) -> dict[str, Any]:
        """What `fit` is told beside."""
        return {"backbone": self.backbone, "head": "exemplar", "key_width": 0}


PHOTOS = {"augment": "photos"}
SLOWLY = {"batch_size": 128, "index_weight": 0.2, "task_smoothing": 0.1}
# The preset `robust` knows many digits and many photos by itself: see MANY_SAMPLES in training/config.py.
BASE: dict[str, Recipe] = {
    "mnist": Recipe(30.0),
    "fashion-mnist": Recipe(125.0, PHOTOS, "residual"),  # clothes may be mirrored; and a backbone for more than digits
    "cifar10": Recipe(135.0),
    "cifar100": Recipe(135.0),
    "stanford-dogs": Recipe(110.0, {"epochs": 100, "lr": 3e-3, "weight_decay": 0.2, **SLOWLY}),
}
PRETRAINED = Recipe(
    240.0, {"epochs": 30, "lr": 5e-4, "weight_decay": 0.05, **PHOTOS, **SLOWLY}, "efficientnet-lite0", pixels=192
)
FEWER = ("fashion-mnist", "single-0"), ("cifar10", "single-0")  # these learn from indices alone: 40 epochs are enough


def recipe_of(data: str, setting: str) -> Recipe:
    """The recipe of a cell."""
    base = PRETRAINED if "-pretrained" in setting else BASE[data]
    return replace(base, changes={**base.changes, "epochs": 40}) if (data, setting) in FEWER else base


def words_of(recipe: Recipe, backbone: str, used: Mapping[str, Any]) -> str:
    """A recipe as it was used, in a few words."""
    parts = ["preset robust", f"backbone {recipe.backbone if recipe.pixels else backbone}", "head exemplar"]
    if recipe.pixels:
        parts.append(f"trained on parts of pictures enlarged to {recipe.pixels}×{recipe.pixels}")
    names = ("augment", "epochs", "batch_size", "lr", "weight_decay", "index_weight", "task_smoothing")
    told = ", ".join(f"{name.replace('_', ' ')} {used[name]}" for name in names if name in used)
    return f"{', '.join(parts)}; {told}"


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

# words, and training samples and their shape, which recipes may depend on
SIZES: dict[str, tuple[str, int, tuple[int, int, int]]] = {
    "mnist": ("MNIST", 60_000, (1, 28, 28)),
    "fashion-mnist": ("FashionMNIST", 60_000, (1, 28, 28)),
    "cifar10": ("CIFAR-10", 50_000, (3, 32, 32)),
    "cifar100": ("CIFAR-100", 50_000, (3, 32, 32)),
    "stanford-dogs": ("Stanford Dogs", 12_000, (3, 64, 64)),
}
DATA = {name: words for name, (words, *_) in SIZES.items()}
PAIRS = {name: DATA[name] for name in ("mnist", "fashion-mnist")}  # what most experiments look at
MAIN = ("mnist", "fashion-mnist", "cifar10")  # the rows whose 30 numbers are counted

FIGURES: dict[str, str] = {
    "class_accuracy": "class",
    "stage_2": "index, given the class",
    "index_accuracy": "index",
    "any_at_1": "class through the index, top 1",
    "any_at_5": "class through the index, any of 5",
    "index_accuracy_sampled_targets": "index, sampled targets",
}


STAND_IN = {"mnist": "embedded"}  # what `tiny` uses instead, so that it needs no files


def source(data: str, scale: Scale) -> str:
    """The data set that stands for another at this scale."""
    return STAND_IN[data] if scale.name == "tiny" else data


def missing(data: str, data_dir: str | None) -> str | None:
    """What to do where a data set is not in the data folder; None where it is there."""
    known = NAMES[data]
    if not known.places:
        return None
    try:
        locate(data, data_folder(data_dir))
    except UsageError:
        return f"{data} is not in the data folder. Expected: {known.files}. Get it from {known.where}"
    return None


def open_samples(data: str, job: Job) -> tuple[ImageData, ImageData]:
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
    found, train, test, told = train_network(data, job, preset=preset, changes=changes, **make())
    began = time.monotonic()
    figures = flat(evaluate(found, test, train, seed=job.seed).to_json())
    told["seconds"]["evaluate"] = round(time.monotonic() - began, 2)
    settings, shape = found.config.training["training"], found.config.network
    used = {name: settings[name] for name in ("epochs", "batch_size", "augment", "precision")}
    return {**told, "figures": figures, "network": {"backbone": shape.backbone, "head": shape.head, **used}}


def recipe(data: str, preset: str, changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The whole recipe of a cell without its seed, for its config: whatever changes it makes the cell run again."""
    _, n, shape = SIZES[data]
    config = for_samples(train_config(preset, **changes_at_scale(changes, scale)), min(n, scale.train or n), shape)
    return _without_seed(config)


def _without_seed(config: TrainConfig) -> dict[str, Any]:
    """With what its augmentation does, where it has one."""
    told = {name: value for name, value in config.to_json().items() if name != "seed"}
    return told if config.augment == "none" else {**told, "policy": POLICIES[config.augment].to_json()}


def flat(found: Mapping[str, Any]) -> dict[str, Figure]:
    """An evaluation as name -> (rate, n), what was not measured left out."""
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


class Trained(NamedTuple):
    """A run on its device, the data behind it, and what a cell says of both."""

    run: Run
    train: ImageData
    test: ImageData
    told: Told


def cell(
    name: str, data: str, scale: Scale, run: Callable[[Job], Told], seconds: float, config: Mapping[str, Any]
) -> Cell:
    """A cell on a data set, which is not run where its files are missing."""
    files = source(data, scale)
    whole = {"data": files, "samples": [scale.train, scale.test], **config}
    return Cell(name, whole, run, seconds, partial(missing, files))


def train_network(
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
    train, test = open_samples(data, job)
    train = train if given is None else given
    config = train_config(preset, **{**changes_at_scale(changes or {}, job.scale), "seed": job.seed})
    began = time.monotonic()
    first, last = part
    run, taken = trained_or_taken(
        train, config, job, lambda row: job.tell(first + (last - first) * row["epoch"] / config.epochs), **wishes
    )
    took = round(time.monotonic() - began, 2)
    told: Told = {
        "seconds": {"take" if taken else "train": took},
        "parameters": parameter_count(run.network),
        "samples": {"train": len(train), "test": len(test), "data": source(data, job.scale)},
    }
    return Trained(run, train, test, told)


def light(scale: Scale) -> dict[str, Any]:
    """What `tiny` asks for beside: a backbone that a CPU trains in a second."""
    return {"backbone": "small"} if scale.name == "tiny" else {}


def changes_at_scale(changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """What is changed of a preset at this scale: epochs are never more than the scale's."""
    return {**changes, **({} if scale.epochs is None else {"epochs": scale.epochs})}


def words_of_preset(preset: str, changes: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The whole recipe without its seed, for a cell's config; with what its augmentation does, where it has one."""
    config = train_config(preset, **changes_at_scale(changes, scale))
    return _without_seed(config)
