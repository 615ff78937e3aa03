"""The four settings of table 2 and the data sets of its rows, with the words for them."""

from __future__ import annotations

from dataclasses import dataclass


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
