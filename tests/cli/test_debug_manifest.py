"""corrected.csv of `provnet debug`: training on it must not lose samples unsaid."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from provnet.runs.run import read_run

from .conftest import CLASSES, PER_CLASS, Call

pytestmark = pytest.mark.usefixtures("telling")
ALL = PER_CLASS * CLASSES


@pytest.fixture(scope="module")
def made(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with keys over half of the digits; copy before changing."""
    from provnet.cli import main

    out = tmp_path_factory.mktemp("half") / "run"
    wishes = ("--network", "class-independent", "--head", "exemplar", "--index-subset", "50%")
    assert main([str(word) for word in ("train", trained[0], "--out", out, *wishes, "--epochs", 1)]) == 0
    return out


@pytest.fixture
def half(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "half"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_samples_without_an_index_are_there(call: Call, half: Path, tmp_path: Path) -> None:
    found = call("debug", half, "--out", tmp_path / "d", "--threshold", "0.000001")
    assert found.code == 0, found.err
    assert "leaves out" not in found.err
    judged = {row["sample_id"]: row for row in rows(tmp_path / "d" / "samples.csv")}
    corrected = rows(tmp_path / "d" / "corrected.csv")
    assert (len(judged), len(corrected)) == (ALL // 2, ALL)
    sure = {name: row["suggested_label"] for name, row in judged.items() if float(row["agreement"]) >= 0.5}
    assert sure
    for row in corrected:
        assert row["path"] == row["id"]
        assert row["label"] == sure.get(row["id"], row["path"].split("/")[1])
    command = next(line for line in found.out.splitlines() if line.startswith("next: ")).split()[2:-1]
    again = call(*command, tmp_path / "again", "--epochs", 1, "--json")
    subset = again.json["subset"]
    assert (again.code, subset["asked"], subset["of"]) == (0, "50%", ALL)


def test_edited_relabelled_and_new_files_keep_their_labels(
    call: Call, run: Path, own_data: Path, tmp_path: Path
) -> None:
    train = own_data / "train"
    shutil.copy(own_data / "test/digit-1/0.png", train / "digit-0/0.png")  # edited
    shutil.copy(own_data / "test/digit-1/1.png", train / "digit-3/new.png")
    (train / "digit-1/1.png").rename(train / "digit-2/moved.png")  # relabelled
    found = call("debug", run, "--data", own_data, "--out", tmp_path / "d")
    assert "leaves out" not in found.err
    labels = {row["path"]: (row["label"], row["id"]) for row in rows(tmp_path / "d" / "corrected.csv")}
    assert len(labels) == ALL + 1
    assert labels["train/digit-0/0.png"] == ("digit-0", "train/digit-0/0.png")
    assert labels["train/digit-3/new.png"] == ("digit-3", "train/digit-3/new.png")
    assert labels["train/digit-2/moved.png"] == ("digit-2", "train/digit-1/1.png")


def test_what_is_missing_or_withheld_is_counted(call: Call, half: Path, own_data: Path, tmp_path: Path) -> None:
    names = read_run(half).samples.sample_ids
    (own_data / names[0]).unlink()
    assert call("withhold", half, "--id", names[1], "--id", names[2]).code == 0
    found = call("debug", half, "--data", own_data, "--out", tmp_path / "d", "--json")
    assert found.json["corrected_left_out"] == 3
    assert "corrected.csv leaves out 1 sample: not among the data any more" in found.err
    assert "corrected.csv leaves out 2 samples: withheld" in found.err
    assert {row["id"] for row in rows(tmp_path / "d" / "corrected.csv")}.isdisjoint(names[:3])
    assert len(rows(tmp_path / "d" / "corrected.csv")) == ALL - 3


def test_what_was_erased_does_not_come_back(call: Call, half: Path, tmp_path: Path) -> None:
    gone = read_run(half).samples.sample_ids[0]
    assert call("withhold", half, "--id", gone, "--erase").code == 0
    found = call("debug", half, "--out", tmp_path / "d", "--json")
    assert found.json["corrected_left_out"] == ALL // 2 + 1
    assert f"leaves out {ALL // 2 + 1} samples: not in the run, where erased ones could be among them" in found.err
    assert gone not in (tmp_path / "d" / "corrected.csv").read_text()
    said = call("debug", half, "--out", tmp_path / "e", "--threshold", "0.000001").out
    command = next(line for line in said.splitlines() if line.startswith("next: ")).split()[2:-1]
    assert len(rows(tmp_path / "e" / "corrected.csv")) == ALL // 2 - 1
    assert "--index-subset" not in command  # only indexed samples are left, and they keep their index
