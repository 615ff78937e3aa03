"""The paper's sentences on size and sharing, and robustness in pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from provnet_paper import sharing as sharing_words
from provnet_paper.beside import apart, judged, number
from provnet_paper.glance import headline
from provnet_paper.pairs import Known, difference, kept_hits, known, less
from provnet_paper.records import Result, Results
from provnet_paper.robustness import CNN, gains, section
from provnet_paper.sharing_claims import CLAIMS, CONSISTENCY, PAIRS, Claim, Look, papers
from provnet_paper.sharing_curves import convergence

from .made import ORIGIN, told
from .made_others import made

OWN = {  # what the paper's sentences are worth by its own tables
    "achieves higher accuracy": "holds in part",
    "further improves the larger": "holds in part",
    "can hurt the smaller": "confirmed",
    'optimal for most configurations" (memorisation)': "holds in part",
    'optimal for most configurations" (class consistency,': "holds in part",
    'optimal for most configurations" (class accuracy)': "undecided",
    "performance degradation": "confirmed",
    "particularly for Medium and XLarge": "confirmed",
    'underperformed on Fashion-MNIST …" (class consistency,': "confirmed",
    "substantially exceeded": "confirmed",
    "highest class consistency": "not confirmed",
    "most pronounced in larger models": "holds in part",
    "diminish with capacity": "confirmed",
    "increased capacity reduces interference": "undecided",
    "near-perfect performance": "holds in part",
    "even Small models": "confirmed",
    "outperforms minimal sharing": "holds in part",
    "generally improved class consistency": "holds in part",
    "minimal degradation": "confirmed",
}


@pytest.mark.parametrize("words", OWN)
def test_sentences_on_the_papers_own_tables(words: str) -> None:
    (claim,) = [claim for claim in CLAIMS if words in claim.sentence]
    assert judged(claim.cases(papers, claim.data), claim.said) == OWN[words]


def test_every_sentence_is_expected_above() -> None:
    assert len(OWN) == len(CLAIMS)


def level_by_level(*rates: float) -> Look:
    """The same rates at levels 1 to 4 for all sizes and data."""

    def look(data: str, size: str, level: int, figure: str) -> Known:
        return Known((rates[level - 1], 60_000))

    return look


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.cases.__name__)
def test_no_sentence_holds_where_nothing_differs_or_nothing_was_run(claim: Claim) -> None:
    told = {"minimal degradation": "confirmed", "substantially exceeded": "contradicted"}  # the same is within a point
    told |= {"near-perfect performance": "contradicted"}  # .9 is none
    same = next((verdict for words, verdict in told.items() if words in claim.sentence), "undecided")
    assert judged(claim.cases(level_by_level(0.9, 0.9, 0.9, 0.9), PAIRS), claim.said) == same
    assert judged(claim.cases(lambda *cell: None, PAIRS), claim.said) == "not tested"


def test_level_3_is_best_only_where_it_is() -> None:
    best = next(claim for claim in CLAIMS if "optimal" in claim.sentence)
    assert judged(best.cases(level_by_level(0.9, 0.9, 0.95, 0.9), PAIRS)) == "confirmed"
    assert judged(best.cases(level_by_level(0.9, 0.9, 0.95, 0.99), PAIRS)) == "contradicted"


def test_memorisation_and_consistency_are_judged_apart() -> None:
    def look(data: str, size: str, level: int, figure: str) -> Known:
        return Known((0.9 + (0.02 * level if figure in CONSISTENCY else 0.0), 60_000))

    found = {claim.cases.__name__: judged(claim.cases(look, claim.data), claim.said) for claim in CLAIMS}
    assert (found["level_1_underperforms"], found["level_1_is_less_consistent"]) == ("undecided", "confirmed")
    assert (found["level_3_is_best"], found["level_3_is_most_consistent"]) == ("undecided", "contradicted")


def test_consistency_is_that_of_the_first_sample_and_that_of_five() -> None:
    def look(data: str, size: str, level: int, figure: str) -> Known:
        gain = {"any_at_1": 0.02, "any_at_5": -0.02}.get(figure, 0.0) * (level == 3)
        return Known((0.9 + gain, 60_000))

    (claim,) = [claim for claim in CLAIMS if claim.cases.__name__ == "level_3_is_most_consistent"]
    cases = list(claim.cases(look, iter(PAIRS)))
    assert (cases.count(1), cases.count(-1)) == (8, 8)


def test_near_perfect_is_judged_by_the_interval_that_is_printed() -> None:
    (claim,) = [claim for claim in CLAIMS if "near-perfect" in claim.sentence]
    assert set(claim.cases(lambda *cell: Known((0.9918, 10_000)), PAIRS)) == {0}  # 98.98 to 99.34
    assert set(claim.cases(lambda *cell: Known((0.993, 10_000)), PAIRS)) == {1}


def unstable(at_level_4: float, data: str) -> Results:
    """Small pairs whose index loss rises in a fifth of the epochs, at level 4 in another share."""
    results = made("sharing", only=data)
    cells = dict(results.cells)
    for level in (1, 2, 3, 4):
        share = at_level_4 if level == 4 else 0.2
        every = round(1 / share)
        losses = np.cumsum([1.0 if step % every == 0 else -0.1 for step in range(150)]).tolist()
        one = cells[f"{data}/small-{level}"][0]
        cells[f"{data}/small-{level}"] = {
            0: replace(one, told={**one.told, "loss": {"index": losses, "class": losses}})
        }
    return replace(results, cells=cells)


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "confirmed"), (0.25, "undecided"), (0.05, "contradicted")])
def test_instability_is_compared_with_the_levels_below_and_needs_a_margin_either_way(
    share: float, verdict: str
) -> None:
    found = convergence(unstable(share, "mnist"))
    (one,) = [finding for finding in found if "introduced instability" in finding.claim]
    assert one.verdict == verdict


def test_degradation_is_minimal_only_below_a_point() -> None:
    slight = next(claim for claim in CLAIMS if "minimal degradation" in claim.sentence)
    assert judged(slight.cases(level_by_level(0.9, 0.9, 0.9, 0.85), PAIRS)) == "contradicted"
    assert judged(slight.cases(level_by_level(0.9, 0.9, 0.9, 0.895), PAIRS)) == "confirmed"


def of(words: str) -> Claim:
    (claim,) = [claim for claim in CLAIMS if words in claim.sentence]
    return claim


def by_size(small: tuple[float, ...], larger: tuple[float, ...]) -> Look:
    """Rates of levels 1 to 4 for Small and for all other sizes."""

    def look(data: str, size: str, level: int, figure: str) -> Known:
        return Known(((small if size == "small" else larger)[level - 1], 60_000))

    return look


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.05, "confirmed"), (0.01, "undecided"), (0.005, "contradicted"), (-0.05, "contradicted")]
)
def test_a_substantial_excess_is_more_than_a_point(gap: float, verdict: str) -> None:
    def look(data: str, size: str, level: int, figure: str) -> Known:
        return Known((0.9 + (gap if figure == "any_at_5" else 0.0), 60_000))

    assert judged(of("substantially exceeded").cases(look, PAIRS)) == verdict


def test_a_gain_is_most_pronounced_only_where_there_is_one() -> None:
    pronounced = of("most pronounced").cases
    grows, grows_more, falls = (0.8, 0.8, 0.8, 0.82), (0.8, 0.8, 0.8, 0.9), (0.8, 0.8, 0.8, 0.7)
    assert judged(pronounced(by_size(grows, grows_more), PAIRS)) == "confirmed"
    assert judged(pronounced(by_size(grows_more, grows), PAIRS)) == "contradicted"
    assert (
        judged(pronounced(by_size((0.8, 0.8, 0.8, 0.5), falls), PAIRS)) == "contradicted"
    )  # less of a loss is no gain


def test_small_is_hurt_especially_on_clothes() -> None:
    def look(data: str, size: str, level: int, figure: str) -> Known:
        fall = {"mnist": digits, "fashion-mnist": clothes}[data] if level == 4 else 0.0
        return Known((0.9 - fall, 60_000))

    hurt = of("performance degradation").cases
    digits, clothes = 0.02, 0.1
    assert list(hurt(look, PAIRS)) == [1, 1, 1]
    digits, clothes = 0.1, 0.02
    assert list(hurt(look, PAIRS)) == [1, 1, -1]
    assert list(hurt(look, ("mnist",))) == [1, None]


def test_a_missed_number_of_sharing_is_explained_by_what_was_measured() -> None:
    results = made("sharing")
    assert "### Where we differ" not in sharing_words.section(results)
    cell = "mnist/large-4"
    one = results.cells[cell][0]
    low = replace(one, figures={**one.figures, "class_accuracy": (0.95, 10_000)})
    few = {name: seeds for name, seeds in results.cells.items() if not name.endswith("-as-printed")}
    without = replace(results, cells={**few, cell: {0: low}})
    (line,) = [line for line in sharing_words.section(without) if line.startswith("- MNIST, Large, level 4, CNN1, ")]
    assert line.startswith("- MNIST, Large, level 4, CNN1, class: 95.00, paper 99.2. Levels 1 to 4 of Large on MNIST: ")
    assert "Levels 1 to 4 of Large on FashionMNIST: " in line and "; Medium " in line
    assert line.endswith("With the printed batches: not run.")
    printed = replace(without, cells={**without.cells, f"{cell}-as-printed": {0: one}})
    (line,) = [line for line in sharing_words.section(printed) if line.startswith("- MNIST, Large, level 4, CNN1, ")]
    rate = number(one.figures["class_accuracy"][0])
    assert f"With the printed batches: {rate}, ours with larger ones less it " in line
    assert headline(printed).startswith("Missed: MNIST, Large, level 4, CNN1, class. ")


def test_curves_decide_on_convergence() -> None:
    found = {finding.claim.split('"')[1]: finding.verdict for finding in convergence(made("sharing"))}
    assert found["CNN1 classification typically plateaued within 20 epochs"] == "confirmed"
    assert found["Higher sharing levels accelerated CNN2 convergence in larger models"] == "contradicted"
    assert found["Level 4 sharing introduced instability in Small models"] == "confirmed"
    assert found["CNN2 memorization exhibited slower, more gradual improvement"] == "confirmed"
    epochs = [finding for finding in convergence(made("sharing")) if "throughout" not in finding.claim]
    assert not any("urely" in finding.evidence for finding in epochs)  # epochs and losses have no intervals
    nothing = convergence(made("sharing", only="nowhere"))
    assert {finding.verdict for finding in nothing} == {"not tested"}


def test_a_gain_is_sure_only_where_seeds_agree() -> None:
    chance = np.random.default_rng(0)
    base = chance.random(10_000)
    better, theirs, worse = base < 0.95, base < 0.9, base < 0.89
    assert difference([(better, theirs)], 11).sign == 1
    assert difference([(better, theirs), (better, theirs)], 11).sign == 1
    assert difference([(better, theirs), (worse, theirs)], 11).sign == 0
    assert difference([(worse, theirs), (worse, theirs)], 11).sign == -1
    few = slice(0, 40)
    assert difference([(better[few], theirs[few])], 11).sign == 0


def test_cells_that_kept_their_answers_are_compared_sample_by_sample() -> None:
    base = np.random.default_rng(0).random(10_000)
    hits = {"mnist/small-1": base < 0.990, "mnist/small-2": base < 0.992}
    cells = {
        cell: {
            seed: Result(
                {"class_accuracy": (float(right.mean()), 10_000)}, told() | kept_hits({"class_accuracy": right}), ORIGIN
            )
            for seed in (0, 1)
        }
        for cell, right in hits.items()
    }
    kept = Results("sharing", "full", cells, {})
    bare = Results("sharing", "full", {cell: {0: replace(one[0], told=told())} for cell, one in cells.items()}, {})
    found = [
        less(*(known(results, cell, "class_accuracy") for cell in ("mnist/small-2", "mnist/small-1")))
        for results in (kept, bare)
    ]
    assert found[0] is not None and found[1] is not None
    assert found[0].value == pytest.approx(found[1].value)
    assert (found[0].sign, found[1].sign) == (1, 0)  # two of a thousand are beyond chance only in pairs
    assert less(known(kept, "mnist/small-2", "class_accuracy"), known(kept, "mnist/none", "class_accuracy")) is None


def test_answers_to_other_samples_are_no_pairs() -> None:
    few, many = Known((0.5, 2), {0: np.array([True, False])}), Known((0.5, 4), {0: np.array([True, False] * 2)})
    assert less(few, many) == apart((0.5, 2), (0.5, 4))


def test_networks_are_paired_with_the_cnn_of_their_seed() -> None:
    results = made("robustness", seeds=2)
    found = gains(results, "mnist")
    assert found["occlusion-4", 0.9].sign == 1 and found["noise-0.1", 0.0].sign == -1
    alone = {cell: seeds for cell, seeds in results.cells.items() if cell != f"mnist/{CNN}"}
    assert gains(type(results)("robustness", "full", alone, {}), "mnist") == {}


def test_the_printed_batch_is_compared_where_it_was_run() -> None:
    results = made("robustness")
    lines = section(results)
    sure = "α = 0.3 is surely better than the CNN under 0 conditions, surely worse under 15, of 15."
    assert any(line.endswith(f"With batches of 128 {sure}") for line in lines)
    (row,) = [line for line in lines[lines.index("### Batches as printed") :] if line.startswith("| no distortion |")]
    value = f"{100 * results.cells['mnist/0.3-as-printed'][0].figures['clean_top_1'][0]:.2f}"
    assert row.split(" | ")[4] == value
    few = {cell: seeds for cell, seeds in results.cells.items() if cell != "mnist/cnn-as-printed"}
    assert "### Batches as printed" not in section(type(results)("robustness", "full", few, {}))
