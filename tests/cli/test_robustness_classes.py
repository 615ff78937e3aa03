"""The page of `provnet robustness` for a run of few classes, and what it says of the five most probable ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from provnet.cli import main

from .conftest import Call


@pytest.fixture(scope="module")
def single(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A single branch on the four digits: what it names are samples."""
    root = tmp_path_factory.mktemp("single")
    arguments = ["--network", "single", "--epochs", "1", "--batch-size", "8"]
    assert main(["train", str(trained[0]), "--out", str(root / "single"), *arguments]) == 0
    return root / "single"


def measured(call: Call, out: Path, *runs: Path) -> str:
    found = call("robustness", *runs, "--out", out, "--conditions", "blur-1", "--attacks", "none")
    assert found.code == 0
    return (out / "report.html").read_text("utf-8")


def test_five_of_four_classes_are_not_shown(run: Path, tmp_path: Path, call: Call) -> None:
    page = measured(call, tmp_path / "out", run)
    assert "Right answers, top-1" in page
    assert "top-5" not in page
    assert "ten classes" not in page


def test_five_exemplars_of_a_single_branch_are(run: Path, single: Path, tmp_path: Path, call: Call) -> None:
    page = measured(call, tmp_path / "out", run, single)
    block = page[page.index("Right answers, top-5") :].split("</table>")[0]
    assert "Class branches are left out: of 4 classes the right one is always among five." in block
    assert block.count('class="none"') == block.count('class="yes"') == 2  # clean and blur, a column each
    assert "not measured: the right class is always among five" in block
    alone = measured(call, tmp_path / "alone", single)
    assert "Class branches are left out" not in alone
    assert "Right answers, top-5" in alone


def test_ten_classes_are_told(tmp_path: Path, call: Call) -> None:
    arguments = ["--limit", "40", "--epochs", "1", "--batch-size", "8"]
    assert call("train", "embedded", "--out", tmp_path / "run", *arguments).code == 0
    assert "For a class branch five of 10 classes" in measured(call, tmp_path / "out", tmp_path / "run")
