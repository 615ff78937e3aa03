"""docs/results.md and the pages beside the results are what these make, and say what was not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provnet_paper import plots
from provnet_paper import sharing as sharing_plots
from provnet_paper import table2 as table2_plots
from provnet_paper import vae as vae_words
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.page import main, section
from provnet_paper.records import Results
from provnet_paper.store import _text

from .made import cost, table2
from .made_others import made as others

ROOT = Path(__file__).parents[2]


def made(folder: Path, *all_of: Results) -> str:
    """The page of some results; those beside them lie in folder / results."""
    (folder / "results").mkdir(exist_ok=True)
    for results in all_of:
        (folder / "results" / f"{results.name}.json").write_text(_text(results), "utf-8")
    assert main(["--results", str(folder / "results"), "--out", str(folder / "page.md")]) == 0
    return (folder / "page.md").read_text("utf-8")


def beside(folder: Path, results: Results) -> str:
    """The page beside these results."""
    made(folder, results)
    return (folder / f"results/{results.name}.md").read_text("utf-8")


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--check", "--results", str(ROOT / "results"), "--out", str(ROOT / "docs/results.md")])
    assert code == 0, capsys.readouterr().out


def test_another_page_is_not_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, table2())
    check = ["--check", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "page.md")]
    assert main(check) == 0
    (tmp_path / "results/table2.json").write_text(_text(table2(above=0.002)), "utf-8")
    assert main(check) == 1
    made(tmp_path, table2())
    for file in (tmp_path / "results/table2.md", tmp_path / "page.md"):
        assert main(check) == 0
        kept = file.read_text("utf-8")
        file.unlink()
        capsys.readouterr()
        assert main(check) == 1
        told = capsys.readouterr().out
        assert str(file) in told and "run python -m provnet_paper.page" in told
        file.write_text(kept, "utf-8")


def test_every_experiment_has_a_paragraph_here_and_a_page_beside_its_results(tmp_path: Path) -> None:
    text = made(tmp_path, table2(), cost())
    pages = {file.stem: file.read_text("utf-8") for file in (tmp_path / "results").glob("*.md")}
    assert set(pages) == set(EXPERIMENTS)
    short = dict(zip(EXPERIMENTS, text.split("\n## ")[2:], strict=True))
    for name, alone in pages.items():
        experiment = EXPERIMENTS[name]
        assert short[name].startswith(f"{experiment.title}\n") and alone.startswith(f"# {experiment.title}\n")
        assert f"[{name}](results/{name}.md) · `{experiment.headings['Command']}`" in short[name]
        assert not any(line.startswith("### ") for line in alone.splitlines())  # no level is passed over
        paragraphs = [part for part in alone.split("\n\n") if part.startswith(("*Claim.*", "*Found.*", "- **"))]
        assert all(part in short[name] for part in paragraphs)
        assert ("*Found.*" in alone) == (name in ("table2", "cost"))


def test_without_results_every_experiment_is_there_and_not_run(tmp_path: Path) -> None:
    text = made(tmp_path)
    assert text.count("\n## ") - 1 == text.count("**Not run** at full scale yet.") == len(EXPERIMENTS)
    alone = (tmp_path / "results/table2.md").read_text("utf-8")
    assert alone.count("**Not run** at full scale yet.") == 1
    assert "99.08 / 98.16" in alone  # the paper's numbers stand there all the same


def test_numbers_are_counted(tmp_path: Path) -> None:
    assert "30 met (29 strictly above), 0 within the interval, 0 missed, 0 not run, of 30" in beside(tmp_path, table2())
    below = beside(tmp_path, table2(above=-0.05))
    assert "0 met (0 strictly above), 0 within the interval, 30 missed, 0 not run, of 30" in below
    assert below.count("**missed** |") == 30
    few = table2()
    some = replace(few, cells={cell: seeds for cell, seeds in few.cells.items() if cell.startswith("mnist/")})
    assert "0 missed, 20 not run, of 30" in beside(tmp_path, some)


def test_cells_side_by_side_share_the_clock(tmp_path: Path) -> None:
    assert "Each second" not in beside(tmp_path, table2(seeds=1))
    few = table2(seeds=2)
    cells: dict[str, Any] = {}
    for place, (cell, seeds) in enumerate(few.cells.items()):  # both seeds at once, and half of the next cell's time
        cells[cell] = {
            seed: replace(one, told={**one.told, "at": [100 * place, 100 * place + 150]}) for seed, one in seeds.items()
        }
    last = list(cells)[-1]
    cells[last] = {1: cells[last][1]}  # of seed 0 a cell is missing
    text = beside(tmp_path, replace(few, cells=cells))
    # 1,250 s in all; to the last cell alone belong the last 100 s, and a third of the 50 s before
    seeds_0 = (1_250 - 100 - 50 / 3) / 2
    assert f"under way: seed 0 {seeds_0:,.0f} s (11 cells), seed 1 {1_250 - seeds_0:,.0f} s (12 cells)." in text


def test_a_miss_without_a_sentence_stands_out() -> None:
    lines = EXPERIMENTS["table2"].section(table2(above=-0.05))
    unexplained = [line for line in lines if "without an explanation" in line]
    assert "- two branch, class independent, class: **a miss without an explanation yet.**" in unexplained
    assert not any("without an explanation" in line for line in EXPERIMENTS["table2"].section(table2()))


def test_our_own_bars_are_judged_by_the_best_network() -> None:
    text = "\n".join(EXPERIMENTS["table2-ours"].section(table2(name="table2-ours")))
    bar = (
        "question.* FashionMNIST, class accuracy of 95% or more: **reached**: `fashion-mnist/class-conditional` 96.11 ("
    )
    assert bar in text
    assert "CIFAR-10, class accuracy of 94% or more: **missed**: `cifar10/class-conditional` 83.26 (" in text
    assert "Stanford Dogs, pretrained, class accuracy of 75% or more: **not tested**: not run." in text


def test_all_experiments_at_a_glance(tmp_path: Path) -> None:
    text = made(tmp_path, table2(), cost())
    rows = {line.split("]")[0][3:]: line for line in text.splitlines() if line.startswith("| [")}
    assert list(rows) == list(EXPERIMENTS)
    assert rows["table2"].endswith("| 12 of 20 | 3 | 30 met | 2 confirmed, 1 contradicted, 1 not tested |  |")
    assert rows["cost"].endswith("| 1 of 3 | 1 |  | 1 confirmed, 1 undecided | 1 confirmed |")
    assert rows["vae"].endswith("| 0 of 7 |  |  |  |  |")


def test_what_was_found_stands_beside_the_claim(tmp_path: Path) -> None:
    text = made(tmp_path, table2(), cost())
    found = [" ".join(part.split()) for part in text.split("\n\n") if part.startswith("*Found.* ")]
    assert len(found) == 2  # the others were not run
    assert found[0].startswith("*Found.* The paper's numbers: 30 met. Class-conditional network: MNIST class 99.18 (")
    assert found[1].startswith("*Found.* Class accuracy of the class-conditional network: MNIST with an index 99.00 (")
    listed = [" ".join(part.split()) for part in text.split("\n\n") if part.startswith("- **C")]
    assert len(listed) == 2
    assert "- **Confirmed so far**: Single branches with stronger" in listed[0]  # two data sets were not run
    assert listed[0].index("- **Contradicted so far**: ") < listed[0].index("- **Not tested**: ")
    assert listed[1].count("(our question)") == 1


def test_mixing_is_laid_beside_table_2_which_has_the_printed_batches(tmp_path: Path) -> None:
    alone = beside(tmp_path, others("mixing"))
    (one,) = [line for line in alone.splitlines() if "Larger batches change the figures: **" in line]
    assert "most: MNIST, α = 0.3, " in one  # the network that was trained with both
    made(tmp_path, table2())
    rows = [line for line in beside(tmp_path, others("mixing")).splitlines() if line.startswith("| MNIST, α = ")]
    assert {row.split(" | ")[0] for row in rows} == {f"| MNIST, α = {alpha}" for alpha in ("0", "0.3", "0.5")}
    (own,) = [row for row in rows if row.startswith("| MNIST, α = 0.5 | class, unseen | ")]
    printed, larger = (
        results.cells[cell][0].figures["any_at_1"][0]
        for results, cell in ((table2(), "mnist/single-0.5"), (others("mixing"), "mnist/0.5"))
    )
    assert own.split(" | ")[2:4] == [f"{100 * printed:.2f}", f"{100 * larger:.2f}"]


def test_how_it_was_done_is_on_the_page(tmp_path: Path) -> None:
    made(tmp_path)
    for name, experiment in EXPERIMENTS.items():
        assert experiment.settings, name
        assert "\n".join(experiment.settings) in (tmp_path / f"results/{name}.md").read_text("utf-8")


def test_mean_std_seeds_n_and_interval_are_shown() -> None:
    lines = EXPERIMENTS["table2"].section(table2())
    row = "| two branch, class conditional | class | 99.08 | 99.18 ± 0.00 | 3 | 10,000 | 98.98 to 99.34 | met, above |"
    assert row in lines


def test_cost_is_told_as_multiples_of_the_network_without_an_index_branch() -> None:
    lines = "\n".join(EXPERIMENTS["cost"].section(cost()))
    assert "| MNIST | class branch alone | 99.00 |" in lines
    assert "2.00 M | 2 s (2.00×) | 2 ms (2.00×) | 20 µs (2.00×) |" in lines
    assert "| CIFAR-10 | not run |" in lines
    assert "found as often as without: **confirmed**: MNIST, class-conditional +0.00 points (-0.28 to +0.28)" in lines
    assert "alone): **confirmed**: MNIST, class-conditional 2.00 and 2.00; MNIST, class-independent 3.00" in lines
    worse = cost().cells["mnist"][0]
    worse = replace(worse, figures={**worse.figures, "class-conditional": (0.9, 10_000)})
    lines = "\n".join(EXPERIMENTS["cost"].section(replace(cost(), cells={"mnist": {0: worse}})))
    assert "found as often as without: **holds in part**" in lines


@pytest.mark.parametrize(
    "results", [table2(), table2(-0.05, seeds=1, name="table2-ours"), cost()], ids=lambda r: r.name
)
def test_figures_are_drawn_and_linked(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    text = made(tmp_path, results)
    assert (tmp_path / f"results/{results.name}.png").read_bytes().startswith(b"\x89PNG")
    assert f"](results/{results.name}.png)" in text


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Drawings as they are before they become PNG."""
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    kept: list[Any] = []

    def keep(drawing: Any) -> bytes:
        kept.append(drawing)
        return b""

    for module in (table2_plots, sharing_plots, vae_words):
        monkeypatch.setattr(module, "png", keep)
    yield kept
    plots.pyplot().close("all")


def some_of(whole: Results) -> Results:
    """All numbers of MNIST, of the others those of one network."""
    some = {cell: seeds for cell, seeds in whole.cells.items() if cell.startswith("mnist/") or "single-0.5" in cell}
    return replace(whole, cells=some)


def test_numbers_stand_at_the_same_height_in_all_panels_also_where_some_are_not_run(drawn: list[Any]) -> None:
    table2_plots.against_paper(some_of(table2()))
    first, *others = drawn[0].axes
    assert [label.get_text() for label in first.get_yticklabels()][-1] == "single α=.5: index, sampled targets"
    assert len(first.get_yticklabels()) == 10
    assert len(first.texts) == 0
    for axes in others:
        assert axes.get_ylim() == first.get_ylim()
        assert not any(label.get_visible() and label.get_text() for label in axes.get_yticklabels())
        assert [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 2][:3] == [7, 8, 9]
        assert [(words.get_text().strip(), words.get_position()[1]) for words in axes.texts] == [
            ("not run", row) for row in range(7)
        ]


@pytest.mark.parametrize(("seeds", "words"), [(1, "one seed"), (3, "whiskers: std over 3 seeds")])
def test_the_figure_says_its_unit_and_how_many_seeds_it_rests_on(drawn: list[Any], seeds: int, words: str) -> None:
    table2_plots.against_paper(table2(seeds=seeds))
    assert {axes.get_xlabel() for axes in drawn[0].axes} == {"percentage points, logarithmic beyond ±1"}
    assert drawn[0].get_suptitle().endswith(words)
    assert ("std" in drawn[0].get_suptitle()) == (seeds > 1)


@pytest.mark.parametrize("name", ["sharing", "vae"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_curve_of_one_epoch_is_a_mark(drawn: list[Any], name: str, epochs: int) -> None:
    course = {"sharing": "curve", "vae": "course"}[name]
    short = {
        cell: {seed: replace(one, told={**one.told, course: one.told[course][:epochs]}) for seed, one in seeds.items()}
        for cell, seeds in others(name, only="mnist").cells.items()
    }
    EXPERIMENTS[name].figures(replace(others(name, only="mnist"), cells=short, scale="tiny"))
    lines = [line for axes in drawn[0].axes for line in axes.lines]
    assert lines
    assert {line.get_marker() for line in lines} == ({"o"} if epochs == 1 else {"None"})


def test_sizes_share_an_axis_and_what_was_not_run_is_named(drawn: list[Any]) -> None:
    whole = others("sharing")
    few = {cell: seeds for cell, seeds in whole.cells.items() if cell != "mnist/xlarge-4"}
    EXPERIMENTS["sharing"].figures(replace(whole, cells=few))
    digits, clothes, last = drawn
    for drawing in (digits, clothes):
        for row in (drawing.axes[:4], drawing.axes[4:]):
            assert len({axes.get_ylim() for axes in row}) == 1
    assert [text.get_text() for axes in digits.axes for text in axes.texts] == ["level 4 not run"]
    assert [text for axes in clothes.axes for text in axes.texts] == []
    assert "not run" not in clothes.get_suptitle()
    assert [len(axes.texts) for axes in last.axes] == [1] * 3 + [0] * 3
    assert [len(axes.collections) for axes in last.axes] == [15] * 3 + [16] * 3  # an interval a pair that was run


def test_a_size_without_any_pair_is_named_above_the_curves(drawn: list[Any]) -> None:
    whole = others("sharing", only="fashion-mnist")
    few = {cell: seeds for cell, seeds in whole.cells.items() if "xlarge" not in cell}
    EXPERIMENTS["sharing"].figures(replace(whole, cells=few))
    assert drawn[0].get_suptitle().endswith("; XLarge not run")


def test_where_results_come_from_is_said_once_a_machine() -> None:
    lines = section(EXPERIMENTS["table2"], table2(), Path("nowhere"))
    assert sum("| NVIDIA H200 | 16 |" in line for line in lines) == 1
    assert any("| 0123456789ab |" in line and line.endswith("| 36 |") for line in lines)
