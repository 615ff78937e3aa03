"""Sentences of the paper that are tested by name, each in its own direction and on what it was said of."""

from __future__ import annotations

import pytest

from provnet.experiments.catalogue import EXPERIMENTS
from provnet.experiments.records import Results

from .made_others import made
from .test_verdicts_other import line_of, with_figures, with_told

BOTH = ("mnist", "fashion-mnist")


def verdict(results: Results, words: str) -> str:
    """The verdict of the one sentence that holds these words."""
    return line_of(results, words).split("**")[1]


@pytest.mark.parametrize(("rate", "found"), [(1.0, "confirmed"), (0.97, "confirmed"), (0.95, "contradicted")])
def test_pure_memorising_is_judged_at_alpha_0(rate: float, found: str) -> None:
    results = made("mixing")
    for data in BOTH:
        results = with_figures(results, f"{data}/0", {"index_accuracy": (rate, 60_000)})
    assert verdict(results, "At α = 0 about 99 % of indices are right") == found


def test_which_samples_semantic_accuracy_is_of_is_said_and_the_other_reading_told() -> None:
    results = made("mixing")
    for data in BOTH:
        results = with_figures(results, f"{data}/1", {"any_at_1": (0.9, 10_000), "any_at_1_train": (0.9995, 60_000)})
        results = with_figures(results, f"{data}/0.3", {"any_at_1_train": (0.972, 60_000)})
    line = line_of(results, "about 100 % of classes of unseen samples are right")
    assert "**contradicted**: MNIST 90.00; FashionMNIST 90.00; if classes of training samples are meant" in line
    assert line.endswith("which the paper does not say: MNIST 99.95, FashionMNIST 99.95.")
    assert line_of(results, "97 % of classes of unseen samples are").endswith(": MNIST 97.20, FashionMNIST 97.20.")


def test_mixing_above_70_to_80_per_cent_is_more_than_80_too() -> None:
    results = made("robustness")  # where α = .9 beats the CNN under occlusion, and .8 does not under translation
    few = {cell: seeds for cell, seeds in results.cells.items() if cell in {f"{data}/cnn" for data in BOTH}}
    late = {f"{data}/0.9": results.cells[f"{data}/0.9"] for data in BOTH}
    words = 'a mixing "above 70–80%" beats the CNN'
    assert verdict(Results("robustness", "full", few | late, {}), words) == "confirmed"
    assert "of 14 compared." in line_of(results, words)
    assert "70–80%" in " ".join(EXPERIMENTS["robustness"].headings["Claim"].split())


@pytest.mark.parametrize(
    ("lost", "found"), [(0.0, "confirmed"), (0.01, "confirmed"), (0.02, "undecided"), (0.04, "contradicted")]
)
def test_subsets_of_30_to_50_per_cent_may_lose_less_than_two_points(lost: float, found: str) -> None:
    results = made("subsets")
    for data in BOTH:
        for share, rate in ((30, 0.9 - lost), (50, 0.9 - lost), (100, 0.9)):
            results = with_figures(results, f"{data}/stratified-{share}", {"class_accuracy": (rate, 10_000)})
    words = '"30-50% subsets with minimal accuracy loss"'
    assert verdict(results, words) == found and "of 4 compared." in line_of(results, words)


def test_the_index_head_shrinks_with_the_samples() -> None:
    results = made("subsets")
    words = '"70% parameter reduction in the index head"'
    assert "**confirmed**: MNIST 30 % of the samples, 4.61 of 15.36 M; " in line_of(results, words)
    results = with_told(results, "mnist/stratified-30", index_head=256 * 60_000)
    results = with_told(results, "fashion-mnist/stratified-50", index_head=256 * 60_000)
    assert verdict(results, words) == "contradicted"


@pytest.mark.parametrize(("rate", "found"), [(1.0, "confirmed"), (0.995, "undecided"), (0.98, "contradicted")])
def test_half_of_the_digits_are_found_by_their_index(rate: float, found: str) -> None:
    results = with_figures(made("subsets"), "mnist/stratified-50", {"index_accuracy": (rate, 29_997)})
    results = with_figures(results, "fashion-mnist/stratified-50", {"index_accuracy": (0.5, 30_000)})  # not said of it
    assert verdict(results, '"reaches 100% using only 50% of the data on MNIST"') == found
