"""`provnet reproduce all --scale tiny`: every experiment runs from embedded data alone, and is not run twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provnet.cli import main
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.records import SCALES, printed_numbers
from provnet_paper.store import plain, read_results


def test_all_experiments_run_tiny_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVNET_DATA", str(tmp_path / "nothing"))
    command = ["reproduce", "all", "--scale", "tiny", "--device", "cpu", "--out", str(tmp_path), "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    for name, experiment in EXPERIMENTS.items():
        results = read_results(tmp_path / "tiny" / f"{name}.json")
        assert set(results.cells) == {cell.name for cell in experiment.cells(SCALES["tiny"])}
        assert results.absent == {}
        page = (tmp_path / "tiny" / f"{name}.md").read_text("utf-8")
        assert experiment.title in page and any(line.endswith("| 1 |") for line in page.splitlines())
    for name in ("table2", "table2-ours"):
        cells = first[name]["cells"]
        for one in printed_numbers("2"):
            if one.data == "mnist":
                rate, n = cells[f"mnist/{one.setting}"]["0"]["figures"][one.figure]
                assert 0 <= rate <= 1 < n
        kinds = ("noise", "shift", "jpeg")
        assert all(f"index_accuracy_perturbed_{kind}" in cells["mnist/single-0"]["0"]["figures"] for kind in kinds)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "tiny/cells").rglob("*.json")}
    monkeypatch.setattr("provnet.cli.reproduce.draw", lambda *given: [])  # what was drawn once is as it would be again
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tiny/cells").rglob("*.json")} == files


def test_each_experiment_has_its_headings_and_cells_that_a_file_can_hold() -> None:
    for name, experiment in EXPERIMENTS.items():
        said = {"title", "claim", "command", "expected", "device", "time", "settings"}
        assert said <= set(experiment.prose) <= said | {"notes"} and all(experiment.prose.values())
        assert experiment.prose["command"].startswith(f"provnet reproduce {name} ")
        for scale in SCALES.values():
            cells = experiment.cells(scale)
            assert len({cell.name.replace("/", ".") for cell in cells}) == len(cells) > 0
            assert all(plain(cell.config) == plain(plain(cell.config)) and cell.seconds > 0 for cell in cells)


def test_absent_data_are_named_with_where_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table2", "--only", "cifar100", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "Get it from https://www.cs.toronto.edu/~kriz/cifar.html" in said.err
    absent = read_results(tmp_path / "out/table2.json").absent
    assert len(absent) == 20
    assert str(tmp_path) not in "".join(absent.values())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["tabel2"], 'Did you mean "table2"?'),
        (["table2", "--scale", "huge"], "allowed: full, small, tiny"),
        (["table2", "--only", "mnits"], "no cell"),
        (["table2", "--scale", "tiny", "--seeds", "0"], "seeds must be 1 or more"),
    ],
)
def test_wrong_words_are_refused(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *given, "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
