"""What verdicts of membership, debugging, embeddings and instance may not say: more than was compared."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from provnet_paper.debugging import of_kinds, widened
from provnet_paper.embeddings import purity
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.membership import _rocs
from provnet_paper.records import Figure, Results
from provnet_paper.samples import by_chance, nearer, together
from provnet_paper.sharing import upward

from .made_others import made

CELL = "mnist/class-conditional"


def line_of(results: Results, words: str) -> str:
    """The one line of a section that holds these words."""
    (line,) = [line for line in EXPERIMENTS[results.name].section(results) if words in line]
    return line


def with_told(results: Results, cell: str, **told: Any) -> Results:
    one = results.cells[cell][0]
    return replace(results, cells={**results.cells, cell: {0: replace(one, told={**one.told, **told})}})


def with_figures(results: Results, cell: str, figures: Mapping[str, Figure]) -> Results:
    one = results.cells[cell][0]
    return replace(results, cells={**results.cells, cell: {0: replace(one, figures={**one.figures, **figures})}})


def with_right(results: Results, data: str, right: Sequence[Sequence[float]]) -> Results:
    """The map with test samples that are attributed rightly at these places."""
    cell = f"{data}/class-conditional"
    return with_told(results, cell, map={**results.cells[cell][0].told["map"], "right": right})


def inside(results: Results, count: int = 30) -> list[list[float]]:
    """Places within one class, far from any border."""
    laid = results.cells[CELL][0].told["map"]
    xy, labels = np.array(laid["xy"]), np.array(laid["labels"])
    mine = xy[labels == 0]
    return mine[np.linalg.norm(mine - mine.mean(0), axis=1).argsort()][:count].tolist()


def test_training_samples_alone_decide_nothing_on_borders() -> None:
    results = made("embeddings")
    line = line_of(results, "near the borders")
    assert (
        "**undecided**: MNIST 91.67 % of 12 against 3.60 % of 500 training samples, +" in line
    )  # though far more often than training samples
    assert "left open on MNIST and FashionMNIST, where no" in line and "3.60 % and 3.60 % of them count" in line
    assert "no clusters are sought" in line
    results = with_right(results, "mnist", inside(results))
    line = line_of(results, "near the borders")
    assert "**confirmed**" in line and "left open on FashionMNIST, where" in line  # of which the paper says nothing
    results = with_right(results, "fashion-mnist", inside(results))
    line = line_of(results, "near the borders")
    assert "**confirmed**" in line and "left open" not in line
    at_borders = results.cells[CELL][0].told["map"]["missed"] * 3
    for data in ("mnist", "fashion-mnist"):
        results = with_right(results, data, at_borders)
    assert "**undecided**" in line_of(results, "near the borders")
    results = with_right(results, "mnist", [])  # none of them is as good as no such list
    assert "left open on MNIST, where" in line_of(results, "near the borders")


def alike(results: Results, rates: Mapping[str, float], n: int = 60) -> Results:
    """Both likenesses of each data set at this rate."""
    for data, share in rates.items():
        cell = f"{data}/class-conditional"
        groups = results.cells[cell][0].told["groups"]
        more = {"together": [share, n], "by_chance": 0.125}
        results = with_told(results, cell, groups={label: {**group, **more} for label, group in groups.items()})
        results = with_figures(results, cell, {"nearer_than_own_class": (share, n)})
    return results


def test_styles_and_likeness_are_not_tested_where_they_were_not_measured() -> None:
    results = made("embeddings")
    for words in ("k-means within a class", "by visual similarity rather than"):
        assert "**not tested**: these results were made before it was measured" in line_of(results, words)
    line = line_of(alike(results, {"mnist": 0.9}), "by visual similarity rather than")
    assert "**confirmed**: MNIST 90.00 (79.85 to 95.34) % of 60." in line


@pytest.mark.parametrize(
    ("mnist", "fashion", "verdict"),
    [
        (0.9, 0.8, "confirmed"),
        (0.5, 0.55, "undecided"),
        (0.1, 0.2, "contradicted"),
    ],
)
def test_styles_and_likeness_are_judged_by_what_most_samples_are_near(
    mnist: float, fashion: float, verdict: str
) -> None:
    results = alike(made("embeddings"), {"mnist": mnist, "fashion-mnist": fashion})
    assert f"**{verdict}**: MNIST " in line_of(results, "by visual similarity rather than")
    digits = alike(made("embeddings"), {"mnist": mnist, "fashion-mnist": 0.5})  # said of digits alone
    assert f"**{verdict}**: MNIST " in line_of(digits, "by visual similarity rather than")
    styles = line_of(results, "k-means within a class")
    assert f'**{verdict}**: MNIST "6" ' in styles and styles.count("by chance 12.50 %") == 3


def test_likeness_by_pixels_is_the_same_one_by_one() -> None:
    chance = np.random.default_rng(0)
    images = torch.from_numpy(chance.integers(0, 256, (1_100, 1, 3, 3), np.uint8))  # more than are held at a time
    groups = chance.integers(0, 4, len(images))
    flat = images.flatten(1).numpy().astype(int)
    for row in chance.integers(0, len(images), 20).tolist():
        away = ((flat - flat[row]) ** 2).sum(1)
        away[row] = away.max() + 1
        assert together(images, groups)[row] in set(groups[away == away.min()] == groups[row])
    others = torch.from_numpy(chance.integers(0, 256, (2, 1_100, 1, 3, 3), np.uint8))
    away = ((images - 0.0 - others) ** 2).flatten(2).sum(2)
    assert nearer(images, *others).tolist() == (away[0] < away[1]).tolist()
    drawn = [groups[one] == groups[other] for one, other in itertools.permutations(range(60), 2)]
    assert by_chance(groups[:60]) == pytest.approx(np.mean(drawn))


def test_purity_is_told_for_each_map() -> None:
    chance = np.random.default_rng(0)
    places, labels = chance.normal(size=(1_200, 2)), chance.integers(0, 10, 1_200)  # more than a chunk
    assert purity(places, labels) == pytest.approx(0.1, abs=0.02)
    assert purity(places + 100 * labels[:, None], labels) == 1
    away = np.linalg.norm(places[:, None] - places[None], axis=2)
    near = away.argsort(axis=1)[:, 1:11]
    assert purity(places, labels) == pytest.approx(float((labels[near] == labels[:, None]).mean()))
    lines = EXPERIMENTS["embeddings"].section(made("embeddings"))
    told = [line for line in lines if "Of the 10 nearest of the 600 training samples on the map 99.42 % have" in line]
    assert len(told) == 2


KINDS = ("inverted", "two_mixed", "noise", "letters")


def of_kind(kind: str, value: float, low: float, high: float) -> dict[str, Figure]:
    ends = {"": value, "_low": low, "_high": high}
    return {f"low_entropy_auc_{kind}{end}": (number, 9_925) for end, number in ends.items()}


def test_entropy_is_judged_in_one_direction_and_told_by_kind() -> None:
    results = made("debugging")
    line = line_of(results, "a useful measure")
    assert "one score for all kinds and in one direction" in line and "**confirmed**" in line
    turned = {f"low_entropy_auc{end}": (value, 10_000) for end, value in (("", 0.2), ("_low", 0.18), ("_high", 0.23))}
    for cell in ("mnist/odd", "fashion-mnist/odd", "mnist/wrong", "fashion-mnist/wrong"):
        results = with_figures(results, cell, turned)
    assert "**contradicted**" in line_of(results, "a useful measure")  # another score than the one that is judged
    assert "the other way round at most 0.820" in line_of(results, "a useful measure")


def test_kinds_are_counted_at_the_bar_and_in_both_directions() -> None:
    results = made("debugging")
    for data in ("mnist", "fashion-mnist"):
        results = with_told(results, f"{data}/odd", planted=100)
    kinds = {
        **of_kind("inverted", 0.9, 0.82, 0.95),
        **of_kind("two_mixed", 0.52, 0.47, 0.57),
        **of_kind("noise", 0.66, 0.53, 0.77),
        **of_kind("letters", 0.23, 0.13, 0.375),
    }
    results = with_figures(results, "fashion-mnist/odd", kinds)
    line = line_of(results, "a useful measure")
    assert "intervals widened for 10 comparisons: surely 0.7 or more in that direction 7 (MNIST inverted, " in line
    assert "surely in the other direction 1 (FashionMNIST letters, 0.770 that way)" in line
    assert "surely below 0.7 but not surely in the other direction 1, too near to say 1." in line
    many = line_of(results, "activate many neurons")
    assert "surely low for 5 (MNIST inverted, MNIST two mixed, MNIST noise, MNIST letters, FashionMNIST inv" in many
    assert "surely high for 1 (FashionMNIST letters), too near to say 2." in many


def test_a_kind_that_is_sure_only_by_itself_is_too_near_to_say() -> None:
    results = with_figures(made("debugging"), "mnist/odd", of_kind("inverted", 0.659, 0.517, 0.778))
    _, low, high = of_kinds(results)["MNIST inverted"]
    assert low < 0.5 and high > 0.778
    assert "surely low for 7 (MNIST two mixed, " in line_of(results, "activate many neurons")


def test_widened_intervals_hold_for_more_comparisons() -> None:
    value, low, high = 0.66, 0.517, 0.778
    assert widened((value, low, high), 1) == pytest.approx((value, low, high))
    ends = [widened((value, low, high), count)[1:] for count in (1, 2, 10, 100)]
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in itertools.pairwise(ends))
    assert widened((1.0, 0.9, 1.0), 10)[2] == pytest.approx(1.0) and widened((1.0, 0.9, 1.0), 10)[1] < 0.9


def sure_of(results: Results, data: str, members: int, others: int) -> Results:
    """The class branch is all but sure of so many of 5,000 on each side."""
    cell = f"{data}/class-conditional"
    every = results.cells[cell][0].told["curves"]
    sides = {side: [5_000 - sure, *[0] * 38, sure] for side, sure in (("members", members), ("nonmembers", others))}
    return with_told(results, cell, curves={**every, "class_confidence": {**every["class_confidence"], **sides}})


def test_the_class_branch_is_called_sure_only_where_it_is() -> None:
    results = made("membership")
    for data in ("mnist", "fashion-mnist", "cifar10", "cifar100"):
        results = sure_of(results, data, 4_990, 4_000)
    line = line_of(sure_of(results, "stanford-dogs", 5_000, 222), "is all but sure of most samples")
    holds, other = line.split("This does not hold where it is not that sure of both: ")
    assert "CIFAR-10 4,990 and 4,000 above 0.975 (AUC 0.6000)" in holds and "Dogs" not in holds
    assert other == "Stanford Dogs (not among the paper's four) 5,000 and 222 above 0.975 (AUC 0.6000)."
    every = line_of(sure_of(results, "stanford-dogs", 5_000, 2_501), "is all but sure of most samples")
    assert "does not hold" not in every and "Stanford Dogs" in every
    few = made("membership", only="stanford-dogs")
    text = "\n".join(EXPERIMENTS["membership"].section(sure_of(few, "stanford-dogs", 5_000, 222)))
    assert "all but sure of most" not in text and "not that sure of both: Stanford" in text


def test_data_sets_that_were_not_run_are_named_beside_the_verdict() -> None:
    results = made("membership")
    assert "(on 4 of the paper's 4 data sets)." in line_of(results, "close to perfect")
    few = {cell: seeds for cell, seeds in results.cells.items() if not cell.startswith("cifar100/")}
    line = line_of(replace(results, cells=few), "close to perfect")
    assert "**confirmed**" in line
    assert line.endswith("(on 3 of the paper's 4 data sets); 1 not run: CIFAR-100.")


def test_curves_begin_at_one_false_alarm() -> None:
    plt = pytest.importorskip("matplotlib.pyplot", reason="figures need the extra plots")
    results = sure_of(sure_of(made("membership"), "mnist", 4_000, 4_000), "cifar10", 4_000, 4_000)
    found = {data: results.cells[f"{data}/class-conditional"][0].told["curves"] for data in ("mnist", "cifar10")}
    drawing = _rocs(found)
    try:
        axes = drawing.axes[1]
        assert axes.get_xlim() == pytest.approx((1 / 5_000, 1))
        assert min(line.get_xdata().min() for line in axes.get_lines()) == pytest.approx(1 / 5_000)
        chance = axes.get_lines()[-1]
        assert np.array_equal(chance.get_xdata(), chance.get_ydata()) and len(chance.get_xdata()) > 100
    finally:
        plt.close(drawing)


def test_the_index_of_membership_networks_is_judged_where_it_was_measured() -> None:
    results = made("membership")
    assert "**not tested**: it was not measured on these networks" in line_of(results, "near-perfect levels across")
    for data in ("mnist", "fashion-mnist", "cifar10"):
        rates: dict[str, Figure] = {"index_accuracy": (0.998, 60_000), "index_at_5": (1.0, 60_000)}
        results = with_figures(results, f"{data}/class-conditional", rates)
    line = line_of(results, "near-perfect levels across")
    assert "**confirmed**: MNIST 99.80 and 100; " in line and "2 not run" in line
    results = with_figures(results, "mnist/class-conditional", {"index_accuracy": (0.9, 60_000)})
    assert "**holds in part**" in line_of(results, "near-perfect levels across")


def verdict(results: Results, words: str) -> str:
    """The verdict of the one sentence that holds these words."""
    return line_of(results, words).split("**")[1]


def test_the_index_head_shrinks_with_the_samples() -> None:
    results = made("subsets")
    words = '"70% parameter reduction in the index head"'
    assert "**confirmed**: MNIST 30 % of the samples, 4.61 of 15.36 M; " in line_of(results, words)
    results = with_told(results, "mnist/stratified-30", index_head=256 * 60_000)
    results = with_told(results, "fashion-mnist/stratified-50", index_head=256 * 60_000)
    assert verdict(results, words) == "contradicted"


def with_losses(results: Results, losses: dict[str, float]) -> Results:
    """Cells whose names end so have an index loss that falls from 9 to 1 and goes up so far in every other epoch."""
    for cell in results.cells:
        up = next((up for end, up in losses.items() if cell.endswith(end)), 0.0)
        loss = [9 - 8 * epoch / 149 + up * (epoch % 2) for epoch in range(150)]
        results = with_told(results, cell, loss={"index": loss, "class": loss})
    return results


def test_a_loss_that_has_settled_is_no_more_unstable_than_one_that_falls() -> None:
    falling = [9 - 0.06 * epoch for epoch in range(150)]
    settled = [9 - 0.06 * epoch + (0.0601 if epoch > 75 and epoch % 2 else 0.0) for epoch in range(150)]
    swinging = [9 - 0.06 * epoch + epoch % 2 for epoch in range(150)]
    assert upward(falling) == 0 and upward(settled) < 0.01 and upward(swinging) > 0.4
    assert upward([]) == upward([1.0]) == upward([1.0, 1.0]) == 0


def test_where_losses_are_unstable_is_told_by_size_and_data() -> None:
    smooth, small, clothes, larger = (
        "smooth, stable loss curves",
        "introduced instability in Small",
        'particularly on Fashion-MNIST" (app. 7.6; how',
        "instability disappeared in larger",
    )

    def verdicts(losses: dict[str, float]) -> list[str]:
        results = with_losses(made("sharing"), losses)
        return [verdict(results, f"{words}") for words in (smooth, small, clothes, larger)]

    assert verdicts({}) == ["confirmed", "undecided", "undecided", "confirmed"]
    assert verdicts({"small-4": 1.0}) == ["confirmed", "confirmed", "undecided", "confirmed"]
    assert verdicts({"fashion-mnist/small-4": 1.0})[1:3] == ["holds in part", "confirmed"]
    assert verdicts({"/mnist/small-4": 1.0, "fashion-mnist/small-4": 0.0, "mnist/small-4": 1.0})[2] == "contradicted"
    assert verdicts({"-4": 1.0})[3] == "contradicted"
    assert verdicts({"-1": 1.0, "-2": 1.0})[0] == "holds in part"


def test_instability_needs_both_measures() -> None:
    often = "rises in more epochs, and more of its way is up"
    results = with_losses(made("sharing"), {"small-4": 0.06})  # in every other epoch, but hardly
    assert verdict(results, often) == "undecided"
    assert "per cent of epochs in which CNN2's training loss rose, levels 1 to 4: MNIST 0, 0, 0, " in line_of(
        results, often
    )
    assert verdict(with_losses(made("sharing"), {"small-4": 1.0}), often) == "confirmed"


def test_memorising_goes_on_to_the_end_only_where_the_curve_still_rises() -> None:
    results = made("sharing")
    words = "throughout the 150-epoch training period"
    assert verdict(results, words) == "confirmed"
    for cell, seeds in results.cells.items():
        flat = [{**row, "index": 1.0 if row["epoch"] > 60 else 0.5} for row in seeds[0].told["curve"]]
        results = with_told(results, cell, curve=flat)
    assert verdict(results, words) == "undecided"
    few = {cell: seeds for cell, seeds in made("sharing").cells.items() if "xlarge" not in cell}
    assert "of 24 compared, 8 not run;" in line_of(replace(results, cells=few), words)
