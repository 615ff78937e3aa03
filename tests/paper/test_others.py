"""The experiments beside table 2: sections, figures and verdicts from results made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provnet_paper.beside import number
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import CONFIRMED, MIXED, apart, told
from provnet_paper.page import draw
from provnet_paper.records import Figure, Result, Results, printed
from provnet_paper.store import _text, read_results

from .made_others import OTHERS, made


@pytest.mark.parametrize("name", OTHERS)
def test_a_section_is_made_of_the_file_alone_and_says_what_was_found(name: str, tmp_path: Path) -> None:
    results = made(name, seeds=2)
    (tmp_path / "x.json").write_text(_text(results), "utf-8")
    again = read_results(tmp_path / "x.json")
    lines = EXPERIMENTS[name].section(again)
    assert lines == EXPERIMENTS[name].section(results)
    text = "\n".join(lines)
    assert any(f"**{verdict}**" in text for verdict in (CONFIRMED, MIXED))
    assert "| not run" not in text and "Not run" not in text
    assert "nan" not in text and "None" not in text


@pytest.mark.parametrize("name", OTHERS)
def test_what_was_not_run_stays_visible(name: str) -> None:
    some = made(name, only="mnist")
    text = "\n".join(EXPERIMENTS[name].section(some))
    assert "ot run" in text
    why = {cell: "get it from there" for cell in made(name).cells if cell not in some.cells}
    assert "get it from there" in "\n".join(EXPERIMENTS[name].section(replace(some, absent=why)))


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_judged_below_full_scale(name: str) -> None:
    text = "\n".join(EXPERIMENTS[name].section(made(name, scale="tiny")))
    assert f"**{CONFIRMED}**" not in text and "missed" not in text and ": met" not in text


@pytest.mark.parametrize("name", OTHERS)
def test_figures_are_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    experiment = EXPERIMENTS[name]
    files = draw(experiment, made(name, only="mnist"), tmp_path / f"{name}.json")
    assert files
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert draw(experiment, Results(name, "full", {}, {}), tmp_path / "none.json") == []


@pytest.mark.parametrize(("table", "count"), [("subsets", 40), ("sharing", 128), ("mixing", 12), ("embeddings", 1)])
def test_the_papers_numbers_are_all_there_and_belong_to_cells(table: str, count: int) -> None:
    cells = set(made(table).cells)
    keys = [(one.data, one.setting, one.figure) for one in printed(table)]
    assert len(set(keys)) == len(keys) == count
    assert {f"{data}/{setting}" for data, setting, _ in keys} <= cells
    assert all(0.4 < one.value <= 1 for one in printed(table))


def test_mixing_is_compared_with_the_numbers_of_table_2() -> None:
    of_table = {(one.data, one.setting.removeprefix("single-"), one.figure): one.text for one in printed("2")}
    assert all(of_table[one.data, one.setting, one.figure] == one.text for one in printed("mixing"))


def changed(results: Results, cell: str, **figures: Figure) -> Results:
    one = results.cells[cell][0]
    other = Result({**one.figures, **figures}, one.told, one.origin)
    return replace(results, cells={**results.cells, cell: {0: other}})


def verdict_of(results: Results, words: str) -> str:
    """The verdict of the one sentence that holds these words."""
    (line,) = [line for line in EXPERIMENTS[results.name].section(results) if line.startswith("- ") and words in line]
    return line.split("**")[1]


# experiment and sentence -> cell, its new figures, verdict before, after
FLIPS: dict[tuple[str, str], tuple[str, dict[str, Figure], str, str]] = {
    ("mixing", "memory is lost"): ("mnist/1", {"index_accuracy": (0.4, 60_000)}, "confirmed", "holds in part"),
    ("mixing", "costs more on"): ("mnist/0", {"any_at_1": (0.3, 10_000)}, "confirmed", "contradicted"),
    ("mixing", "Memorising costs more"): ("mnist/0", {"any_at_1": (0.78, 50)}, "confirmed", "undecided"),
    ("subsets", "30 % of MNIST match"): (
        "mnist/stratified-30",
        {"class_accuracy": (0.993, 10_000)},
        "contradicted",
        "confirmed",
    ),
    ("subsets", "Improvements plateau"): (
        "mnist/stratified-50",
        {"class_accuracy": (0.9, 10_000)},
        "undecided",
        "not confirmed",
    ),
    ("subsets", "steadier than top 1"): (
        "mnist/stratified-10",
        {"any_at_5": (0.1, 10_000)},
        "confirmed",
        "holds in part",
    ),
    ("subsets", "may be more effective"): (
        "fashion-mnist/boundary-10",
        {"class_accuracy": (0.9, 10_000)},
        "undecided",
        "not confirmed",
    ),
    ("embeddings", "94 of 10,000"): (
        "mnist/class-conditional",
        {"any_at_1": (0.9, 10_000)},
        "confirmed",
        "contradicted",
    ),
    ("instance", "question.* MNIST: indices are as good"): (
        "mnist/index",
        {"probe_plain_from_plain": (0.99, 10_000)},
        "contradicted",
        "confirmed",
    ),
    ("instance", "question.* FashionMNIST: indices are as good"): (
        "fashion-mnist/index",
        {"probe_plain_from_plain": (0.989, 10_000)},  # below, but that may be chance
        "contradicted",
        "undecided",
    ),
    ("vae", "Index prediction"): (
        "lfw/faces",
        {"index_at_mean_2_to_25": (0.95, 6_000), "index_at_sample_2_to_25": (0.95, 6_000)},
        "contradicted",
        "confirmed",
    ),
    ("vae", "sums does all at once"): ("mnist/paper", {"agreement": (0.66, 2_000)}, "confirmed", "holds in part"),
    ("vae", "keys does all at once"): ("mnist/modern", {"agreement": (0.9, 2_000)}, "confirmed", "holds in part"),
    ("subsets", "saturates beyond 50"): (
        "fashion-mnist/stratified-90",
        {"class_accuracy": (0.99, 10_000)},
        "confirmed",
        "contradicted",
    ),
    ("subsets", "index accuracy drops"): (
        "mnist/stratified-100",
        {"index_accuracy": (0.9, 60_000)},
        "undecided",
        "holds in part",
    ),
    ("mixing", "about 100 % of classes"): ("mnist/1", {"any_at_1": (0.9, 10_000)}, "confirmed", "holds in part"),
    ("mixing", "α = .3 about 60"): (
        "mnist/0.3-as-printed",
        {"index_accuracy_sampled_targets": (0.61, 60_000), "any_at_1": (0.97, 10_000)},
        "contradicted",
        "holds in part",
    ),
    ("vae", "closely resemble"): ("mnist/paper", {"agreement": (0.66, 2_000)}, "confirmed", "holds in part"),
    ("debugging", "a useful measure"): (
        "mnist/odd",
        {"low_entropy_auc_low": (0.45, 10_000), "low_entropy_auc_high": (0.6, 10_000)},
        "confirmed",
        "holds in part",
    ),
    ("debugging", "planted wrong labels"): (
        "mnist/wrong",
        {"low_entropy_auc_low": (0.4, 10_000)},
        "confirmed",
        "holds in part",
    ),
}


@pytest.mark.parametrize("which", FLIPS, ids=" ".join)
def test_verdicts_follow_the_numbers(which: tuple[str, str]) -> None:
    (name, words), (cell, figures, before, after) = which, FLIPS[which]
    results = made(name)
    assert verdict_of(results, words) == before
    assert verdict_of(changed(results, cell, **figures), words) == after


@pytest.mark.parametrize(("fall", "verdict"), [(0.0, "undecided"), (0.014, "undecided"), (0.02, "confirmed")])
def test_one_fall_of_many_steps_may_be_chance(fall: float, verdict: str) -> None:
    results = made("subsets")
    assert apart((0.8 - 0.014, 10_000), (0.8, 10_000)).sign == -1  # by itself it would be sure
    for cell in [name for name in results.cells if "stratified" in name]:
        late = cell.startswith("mnist") and int(cell.split("-")[1]) > 40
        results = changed(results, cell, any_at_1=(0.8 - (fall if late else 0.0), 10_000))
    assert verdict_of(results, "not grow monotonically") == verdict


def test_membership_is_judged_by_its_intervals() -> None:
    results = made("membership")
    assert verdict_of(results, "close to perfect") == verdict_of(results, "entropy, class branch less") == "confirmed"
    for data in ("mnist", "fashion-mnist", "cifar10"):
        one = results.cells[f"{data}/class-conditional"][0]
        low = {"value": 0.9, "n": 10_000, "low": 0.89, "high": 0.91}
        changed_ = {"index_confidence": low, "class_entropy": one.told["auc"]["index_entropy"]}
        other = Result(one.figures, {**one.told, "auc": {**one.told["auc"], **changed_}}, one.origin)
        results = replace(results, cells={**results.cells, f"{data}/class-conditional": {0: other}})
    assert (
        verdict_of(results, "close to perfect") == verdict_of(results, "entropy, class branch less") == "holds in part"
    )
    assert verdict_of(results, "entropy (app. 7.7), index branch") == "confirmed"


def test_misattributed_samples_lie_at_borders_only_beyond_chance() -> None:
    results = made("embeddings", only="mnist")
    one = results.cells["mnist/class-conditional"][0]
    right = [one.told["map"]["xy"][0]] * 30  # test samples in the middle of a class
    one = replace(one, told={**one.told, "map": {**one.told["map"], "right": right}})
    results = replace(results, cells={"mnist/class-conditional": {0: one}})
    assert verdict_of(results, "borders of clusters") == "confirmed"
    inside = one.told["map"]["xy"][:1]
    for missed in (inside, [*inside, one.told["map"]["missed"][0]]):  # one of two may be chance
        other = replace(one, told={**one.told, "map": {**one.told["map"], "missed": missed}})
        found = replace(results, cells={"mnist/class-conditional": {0: other}})
        assert verdict_of(found, "borders of clusters") == "undecided"


def test_larger_batches_are_compared_with_the_printed_ones() -> None:
    results = made("sharing")

    def asked(results: Results) -> str:
        (line,) = [line for line in EXPERIMENTS["sharing"].section(results) if "Larger batches change" in line]
        return line

    assert "**undecided**: surely higher in 0, surely lower in 0, too near to say in 8; most: " in asked(results)
    results = changed(results, "mnist/small-3-as-printed", any_at_1=(0.5, 10_000))
    assert (
        "**holds in part**: surely higher in 1, surely lower in 0, too near to say in 7; most: MNIST, Small"
        in asked(results)
    )
    for name in ("mnist/small-3-as-printed", "mnist/large-4-as-printed"):
        higher = dict.fromkeys(("class_accuracy", "index_accuracy", "any_at_1", "any_at_5"), (1.0, 10000))
        results = changed(results, name, **higher)
    lower = asked(results)
    assert "surely higher in 0, surely lower in " in lower and "**confirmed**" in lower
    few = replace(results, cells={cell: seeds for cell, seeds in results.cells.items() if "printed" not in cell})
    assert not any("Larger batches change" in line for line in EXPERIMENTS["sharing"].section(few))


def test_every_area_has_its_interval() -> None:
    lines = EXPERIMENTS["debugging"].section(made("debugging"))
    rows = [line for line in lines if "odd pictures |" in line]
    assert len(rows) == 10 and all(line.count("(0.7") == line.count("(0.9") == 1 for line in rows)


def test_differences_shrink_with_n_and_are_none_at_equal_rates() -> None:
    assert apart((0.9, 100), (0.8, 100)).sign == 1
    assert apart((0.9, 20), (0.8, 20)).sign == 0
    assert apart((1.0, 50), (1.0, 50)).sign == 0
    assert apart((0.8, 1000), (0.9, 1000)).sign == -1


def test_a_section_without_claims_has_no_note_on_chance() -> None:
    assert told([], made("mixing")) == [""]


def test_borders_are_compared_with_other_test_samples_where_the_map_has_them() -> None:
    results = made("embeddings")
    cell = "mnist/class-conditional"
    one = results.cells[cell][0]
    line = next(line for line in EXPERIMENTS["embeddings"].section(results) if "near the borders" in line)
    assert " training samples, +" in line and "where no other test samples are on the map" in line
    right = [[100.0, 100.0]] * 30  # far from all but one place, so of the same ten neighbours each
    laid = {**one.told["map"], "right": right}
    told = {**one.told, "map": laid}
    other = replace(results, cells={cell: {0: Result(one.figures, told, one.origin)}})
    line = next(line for line in EXPERIMENTS["embeddings"].section(other) if "near the borders" in line)
    assert "more often than of rightly attributed test samples; judged on digits" in line
    assert "% of 30 rightly attributed, " in line and "training samples, " not in line


def test_generators_stand_side_by_side_and_one_that_was_not_run_is_named() -> None:
    results = made("vae")
    lines = EXPERIMENTS["vae"].section(results)
    row = next(line for line in lines[lines.index("### FashionMNIST") :] if line.startswith("| index at the mean |"))
    cells = [results.cells[f"fashion-mnist/{name}"][0] for name in ("paper", "paper-mean", "modern")]
    rates = [one.figures["index_at_mean"][0] for one in cells]
    assert [part.split(" (")[0] for part in row.split(" | ")[1:4]] == [number(rate) for rate in rates]
    few = replace(results, cells={cell: seeds for cell, seeds in results.cells.items() if cell != "mnist/modern"})
    lines = EXPERIMENTS["vae"].section(few)
    assert "MNIST, ours with keys: not run" in lines
    assert "| number | the paper's VAE | the paper's VAE, losses as means | n |" in lines
