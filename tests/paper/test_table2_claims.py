"""What the paper says of table 2, on made results."""

from __future__ import annotations

from provnet_paper.records import Result, Results
from provnet_paper.table2_words import findings

from .made import ORIGIN, told


def single(index: float, first: float, *, size: int = 9_000_000) -> Result:
    return Result({"index_accuracy": (index, 60_000), "any_at_1": (first, 10_000)}, told(parameters=size), ORIGIN)


def test_sentences_on_table_2() -> None:
    cells = {
        "mnist/single-0": {0: single(1.0, 0.9)},
        "mnist/single-0.5": {0: single(0.8, 0.98)},
        "mnist/class-conditional": {0: Result({"stage_2": (1.0, 60_000)}, told(), ORIGIN)},
        "mnist/class-independent": {0: Result({}, told(), ORIGIN)},
        "cifar10/class-conditional": {0: Result({"stage_2": (1.0, 50_000)}, told(), ORIGIN)},
        "cifar10/class-independent": {0: Result({"index_accuracy": (0.99, 50_000)}, told(), ORIGIN)},
    }
    assert [one.verdict for one in findings(Results("table2", "full", cells, {}))] == [
        "confirmed",
        "confirmed",
        "contradicted",
        "contradicted",
    ]
    assert findings(Results("table2", "full", cells, {}))[0].evidence.endswith(
        "; 4 not run: FashionMNIST, CIFAR-10, CIFAR-100, Stanford Dogs"
    )
    seeds = {seed: single(index, 0.98) for seed, index in enumerate((0.7, 0.9, 0.8))}
    apart = Results("table2", "full", {**cells, "mnist/single-0.5": seeds}, {})
    assert "+20.00 points (-2" in findings(apart)[0].evidence  # three seeds lie so far apart that it may be luck
    assert findings(apart)[0].verdict == "undecided"
    cells["mnist/single-0"] = {0: single(0.8, 0.98, size=900_000)}
    cells["mnist/single-0.5"] = {0: single(1.0, 0.9)}
    cells["cifar10/class-independent"] = {0: Result({"index_accuracy": (0.8, 50_000)}, told(), ORIGIN)}
    assert [one.verdict for one in findings(Results("table2", "full", cells, {}))] == [
        "contradicted",
        "contradicted",
        "confirmed",
        "confirmed",
    ]
    assert {one.verdict for one in findings(Results("table2", "full", {}, {}))} == {"not tested"}
