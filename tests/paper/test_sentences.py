"""Sentences of the paper that are tested by name, each in its own direction and on what it was said of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provnet_paper.beside import judged
from provnet_paper.catalogue import EXPERIMENTS
from provnet_paper.pairs import Known
from provnet_paper.records import Results
from provnet_paper.sharing_claims import CLAIMS, Claim, Look
from provnet_paper.sharing_curves import upward

from .made import cost
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
    assert "of 14 compared; " in line_of(results, words)
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
    assert verdict(results, words) == found and "of 4 compared;" in line_of(results, words)


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


def of(words: str) -> Claim:
    (claim,) = [claim for claim in CLAIMS if words in claim.sentence]
    return claim


def without_level_4(*rates: float) -> Look:
    """XLarge was trained at levels 1 to 3 alone."""

    def look(data: str, size: str, level: int, figure: str) -> Known | None:
        return Known((rates[level - 1], 60_000)) if level <= len(rates) else None

    return look


def test_more_sharing_is_judged_by_every_level_that_was_run() -> None:
    improves = of("further improves the larger")
    assert judged(improves.cases(without_level_4(0.8, 0.85, 0.9), improves.data)) == "confirmed"
    assert judged(improves.cases(without_level_4(0.8, 0.7, 0.7), improves.data)) == "contradicted"


def test_level_3_is_compared_with_the_least_sharing() -> None:
    often = of("often outperforms minimal sharing")
    assert judged(often.cases(without_level_4(0.8, 0.95, 0.9), often.data), often.said) == "confirmed"  # whatever 2 is
    assert judged(often.cases(without_level_4(0.9, 0.7, 0.8), often.data), often.said) == "contradicted"


def test_near_perfect_is_99_per_cent_of_medium_and_large_at_level_4() -> None:
    def look(data: str, size: str, level: int, figure: str) -> Known:
        return Known((0.999 if size in ("medium", "large") and level == 4 else 0.5, 60_000))

    claim = of("near-perfect performance on both tasks")
    assert list(claim.cases(look, claim.data)) == [1] * 8


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("subsets", "minimal accuracy loss"),
        ("subsets", "reaches 100% using"),
        ("sharing", "even Small models"),
        ("sharing", "Medium and Large models"),
        ("sharing", "throughout the 150-epoch"),
        ("sharing", "smooth, stable loss"),
        ("sharing", 'particularly on Fashion-MNIST" (app. 7.6; how'),
        ("sharing", "disappeared in larger"),
    ],
)
def test_bars_that_were_set_when_the_results_were_known_say_so(name: str, words: str) -> None:
    assert line_of(made(name), words).endswith("; the bar was set when the results were known.")


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("embeddings", "visually ambiguous, resembling multiple digit classes"),
        ("debugging", "our approach is complementary"),
        ("vae", "generated faces exhibit reasonable fidelity"),
    ],
)
def test_sentences_that_nothing_was_measured_for_are_listed_with_the_reason(name: str, words: str) -> None:
    line = line_of(made(name), words)
    assert "**not tested**: " in line and len(line.split("**not tested**: ")[1]) > 20


def with_area(results: Results, data: str, score: str, low: float, high: float) -> Results:
    cell = f"{data}/class-conditional"
    areas = results.cells[cell][0].told["auc"]
    new = {"value": (low + high) / 2, "n": 10_000, "low": low, "high": high}
    return with_told(results, cell, auc={**areas, score: new})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("robustness", 'a mixing "above 70–80%" beats the CNN'),
        ("membership", "members) exhibited significantly higher confidence"),
        ("embeddings", "They lie near the borders"),
        ("sharing", "Increased layer sharing further improves"),
    ],
)
def test_cases_that_were_chosen_late_say_so(name: str, words: str) -> None:
    assert line_of(made(name), words).endswith("; the cases were chosen when the results were known.")


def test_members_are_said_to_be_surer_in_both_branches() -> None:
    words = "members) exhibited significantly higher confidence"
    results = made("membership")
    assert verdict(results, words) == "confirmed" and "of 8 compared; " in line_of(results, words)
    near = with_area(results, "mnist", "class_confidence", 0.48, 0.52)
    assert "surely so in 7, surely not in 0, too near to say in 1, of 8" in line_of(near, words)
    assert verdict(with_area(near, "cifar10", "class_confidence", 0.4, 0.45), words) == "holds in part"


def test_all_at_once_is_a_sentence_of_the_paper_too() -> None:
    words = "simultaneously generate realistic samples"
    results = made("vae")
    line = line_of(results, words)
    assert not line.startswith("- *Our question.*") and "**confirmed**" in line and "of 10 compared" in line
    results = with_figures(results, "mnist/paper", {"agreement": (0.67, 2_000), "index_at_sample": (0.85, 60_000)})
    assert "**holds in part**" in line_of(results, words)
    assert verdict(results, "sums does all at once") == "holds in part"  # of two data sets one does not


@pytest.mark.parametrize(("rate", "found"), [(0.99, "undecided"), (0.9, "confirmed"), (0.999, "contradicted")])
def test_what_sec_6_says_of_the_cost_is_the_papers_sentence(rate: float, found: str) -> None:
    results = with_figures(cost(), "mnist", dict.fromkeys(("class-conditional", "class-independent"), (rate, 10000)))
    line = line_of(results, "may impact main-task performance")
    assert f"**{found}**" in line and "of 2 compared" in line and "question" not in line
    assert line_of(results, "adds computational cost").startswith('- "The index head also adds computational cost" (s')
    assert "impact main-task performance" in " ".join(EXPERIMENTS["cost"].headings["Claim"].split())
