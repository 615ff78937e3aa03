"""docs/results.md and the pages beside the results are what these make; what was not run or was missed is said."""

from __future__ import annotations

import csv
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import provnet_paper
from provnet_paper import page
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.measures import MET, MISSED, WITHIN, Known, half_width, verdict
from provnet_paper.networks import DATA, FIGURES, SETTINGS
from provnet_paper.page import alone, draw, main
from provnet_paper.records import SCALES, Printed, Results, printed_numbers, remarks
from provnet_paper.store import _text
from tests.cases import cases

from .made import ROOT, real, with_figures


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a page in a folder of its own; figures are not drawn."""
    monkeypatch.setattr(page, "draw", lambda *given: [])
    (tmp_path / "results").mkdir()
    return ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "page.md")]


def test_the_pages_are_current_and_the_story_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    story = ROOT / "docs/results.md"
    assert main(["--check", "--results", str(ROOT / "results"), "--out", str(story)]) == 0, capsys.readouterr().out
    text = story.read_text("utf-8")
    assert len(text.splitlines()) <= 250
    sections = text.split("\n## ")[1:-1]
    assert len(sections) == len(EXPERIMENTS)
    for section, (name, experiment) in zip(sections, EXPERIMENTS.items(), strict=True):
        title, verdict_, picture, *rest = [part for part in section.split("\n\n") if part.strip()]
        assert title == experiment.title and verdict_.startswith("**Verdict ")
        assert picture.startswith("![") and f"results/{name}" in picture and len(rest) == 1


def test_another_page_is_not_current(tmp_path: Path, written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "results/cost.json", tmp_path / "results")
    assert main(written) == main(["--check", *written]) == 0
    assert {path.stem for path in (tmp_path / "results").glob("*.md")} == set(EXPERIMENTS)
    other = with_figures(real("cost"), "mnist", {"without": (0.5, 10_000)})
    (tmp_path / "results/cost.json").write_text(_text(other), "utf-8")
    assert main(["--check", *written]) == 1
    main(written)
    for file in (tmp_path / "results/table2.md", tmp_path / "page.md"):
        kept = file.read_text("utf-8")
        file.unlink()
        capsys.readouterr()
        assert main(["--check", *written]) == 1
        assert str(file) in capsys.readouterr().out
        file.write_text(kept, "utf-8")
    assert main(["--check", *written]) == 0


def test_without_results_every_experiment_and_every_number_of_the_paper_is_there(
    tmp_path: Path, written: list[str]
) -> None:
    assert main(written) == 0
    words = " ".join((tmp_path / "page.md").read_text("utf-8").split())
    assert words.count("**Not run** at full scale yet.") == len(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        alone_ = (tmp_path / f"results/{name}.md").read_text("utf-8")
        assert "**Not run** at full scale yet." in alone_ and experiment.prose["settings"] in alone_
        for one in printed_numbers(experiment.printed):
            assert f"paper {one.text}" in alone_, one
        absent = {cell.name: "get it from there" for cell in experiment.cells(SCALES["full"])}
        nothing = Results(name, "full", {}, {}, absent)
        assert "get it from there" in alone(experiment, nothing, tmp_path)


@cases("name", EXPERIMENTS)
def test_a_page_has_every_figure_with_its_interval_and_nothing_is_judged_below_full_scale(name: str) -> None:
    results, experiment = real(name), EXPERIMENTS[name]
    text = alone(experiment, results, ROOT / "results")
    assert "nan" not in text and "None" not in text
    small = alone(experiment, replace(results, scale="small"), ROOT / "results")
    assert not any(word in small for word in ("**Verdict", "## Sentences", "; paper ", "missed**"))
    for shown in experiment.tables:
        for data, row, column in itertools.product(shown.data, shown.rows, shown.columns):
            cell, figure = (one.format(data=data, row=row, column=column) for one in (shown.cell, shown.figure))
            ours = page.known(experiment.measured(results), cell, figure)
            assert ours is None or (str(ours) if shown.brief else ours.spread) in text
    few = {cell: seeds for cell, seeds in results.cells.items() if not cell.startswith("fashion-mnist")}
    assert "ot run" in alone(experiment, replace(results, cells=few), ROOT / "results")


def test_a_miss_is_named_and_one_without_an_explanation_stands_out() -> None:
    low = with_figures(real("sharing"), "mnist/small-1", {"any_at_1": (0.1, 10_000)})
    text = alone(EXPERIMENTS["sharing"], low, ROOT / "results")
    assert "Missed: MNIST, Small, level 1, consistency, top 1: 10.00 (paper 81.7)" in " ".join(text.split())
    assert "paper 81.7: **missed**" in text
    assert "- MNIST, Small, level 1, consistency, top 1: **a miss without an explanation yet.**" in text


def test_the_bar_is_the_papers_number_less_the_half_width() -> None:
    paper = Printed("mnist", "x", "y", "90")
    for value, expected in ((0.9, MET), (0.95, MET), (0.8995, WITHIN), (0.89, MISSED)):
        assert verdict(paper, Known((value, 10_000))) == expected
    for text, n in itertools.product(("50", "99.08", "100"), (1_000, 60_000)):
        one = Printed("mnist", "x", "y", text)
        half = half_width(one.value, n)
        assert verdict(one, Known((one.value - half * 0.999, n))) == WITHIN
        assert verdict(one, Known((one.value - half * 1.001, n))) == MISSED
    assert verdict(paper, None) == "not run"


def test_the_papers_numbers_are_all_there_and_belong_to_cells() -> None:
    counts = {"2": 50, "subsets": 40, "sharing": 128, "mixing": 12, "embeddings": 1}
    for name, experiment in EXPERIMENTS.items():
        keys = [(one.data, one.setting, one.figure) for one in printed_numbers(experiment.printed)]
        assert len(set(keys)) == len(keys) == counts.get(experiment.printed, 0)
        assert {f"{data}/{setting}" for data, setting, _ in keys} <= {
            cell.name for cell in experiment.cells(SCALES["full"])
        }
        assert all(0 < one.value <= 1 for one in printed_numbers(experiment.printed)), name
    assert [sum(one.data == data for one in printed_numbers("2")) for data in DATA] == [10] * 5
    assert {one.figure for one in printed_numbers("2")} == set(FIGURES) and {
        one.setting for one in printed_numbers("2")
    } == set(SETTINGS)
    of_table = {(one.data, one.setting.removeprefix("single-"), one.figure): one.text for one in printed_numbers("2")}
    assert all(of_table[one.data, one.setting, one.figure] == one.text for one in printed_numbers("mixing"))


def test_remarks_speak_of_numbers_that_exist() -> None:
    with (Path(provnet_paper.__file__).parent / "remarks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        numbers = printed_numbers(EXPERIMENTS[row["experiment"]].printed)
        said = [one for one in numbers if row["remark"] in remarks(row["experiment"], one, missed=True)]
        assert said and all(row["data"] in ("*", one.data) for one in said), row


@cases("name", ["table2", "cost", "mixing", "subsets", "instance"])
def test_figures_are_drawn_of_what_there_is(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    experiment, results = EXPERIMENTS[name], real(name)
    few = {cell: seeds for cell, seeds in results.cells.items() if not cell.startswith("fashion-mnist")}
    (file,) = draw(experiment, replace(results, cells=few), tmp_path / f"{name}.json")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert draw(experiment, Results(name, "full", {}, {}), tmp_path / "none.json") == []
