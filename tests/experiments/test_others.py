"""The experiments beside table 2: sections, figures and verdicts from results made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provnet.experiments.beside import CONFIRMED, MIXED, apart, told
from provnet.experiments.catalogue import EXPERIMENTS
from provnet.experiments.page import draw
from provnet.experiments.paper import printed
from provnet.experiments.records import Figure, Result, Results
from provnet.experiments.store import _text, read_results

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
    ("mixing", "memory is lost"): ("mnist/1", {"index_accuracy": (1.0, 60_000)}, "confirmed", "holds in part"),
    ("mixing", "costs more on"): ("mnist/0", {"any_at_1": (0.3, 10_000)}, "confirmed", "contradicted"),
    ("subsets", "30 % of MNIST"): (
        "mnist/stratified-30",
        {"class_accuracy": (0.993, 10_000)},
        "contradicted",
        "confirmed",
    ),
    ("subsets", "may be more effective"): (
        "mnist/boundary-10",
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
    ("instance", "- MNIST: they are as good"): (
        "mnist/index",
        {"probe_plain_from_plain": (0.99, 10_000)},
        "contradicted",
        "confirmed",
    ),
    ("vae", "Index prediction"): ("lfw/faces", {"index_at_mean_2_to_25": (0.95, 6_000)}, "holds in part", "confirmed"),
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


def test_membership_is_judged_by_its_intervals() -> None:
    results = made("membership")
    assert verdict_of(results, "close to perfect") == "confirmed"
    for data in ("mnist", "fashion-mnist", "cifar10"):
        one = results.cells[f"{data}/class-conditional"][0]
        low = {"value": 0.9, "n": 10_000, "low": 0.89, "high": 0.91}
        other = Result(one.figures, {**one.told, "auc": {**one.told["auc"], "index_confidence": low}}, one.origin)
        results = replace(results, cells={**results.cells, f"{data}/class-conditional": {0: other}})
    assert verdict_of(results, "close to perfect") == "holds in part"


def test_differences_shrink_with_n_and_are_none_at_equal_rates() -> None:
    assert apart((0.9, 100), (0.8, 100)).sign == 1
    assert apart((0.9, 20), (0.8, 20)).sign == 0
    assert apart((1.0, 50), (1.0, 50)).sign == 0
    assert apart((0.8, 1000), (0.9, 1000)).sign == -1


def test_a_section_without_claims_has_no_note_on_chance() -> None:
    assert told([], made("mixing")) == [""]
