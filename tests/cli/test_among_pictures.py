"""No command writes among the pictures of its data: what lies there would be a sample the next time."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.base.errors import UsageError
from provnet.cli import main
from provnet.cli.targets import PAGE, check_outputs, picture_folder
from tests.cases import cases

from .conftest import Call, contents


@pytest.fixture(scope="module")
def place(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data`, `others` (test data of their own, not below them) and `run`, trained on the one."""
    root = tmp_path_factory.mktemp("among")
    shutil.copytree(trained[0] / "train", root / "data")
    shutil.copytree(trained[0] / "test", root / "others")
    assert main(["train", str(root / "data"), "--test", str(root / "others"), "--out", str(root / "run"), *FAST]) == 0
    return root


FAST = ["--epochs", "1", "--batch-size", "8"]


@cases("inside", ["data/digit-0", "data", "data/new/deep", "others/digit-1", "link/digit-1"])
@cases(
    "command",
    [
        ["explain", "run", "test:0", "--png", "OUT/sheet.png"],
        ["explain", "run", "test:0", "--html", "OUT/page.html"],
        ["explain", "run", "test:0", "--log", "OUT/log.jsonl"],
        ["map", "run", "--out", "OUT"],
        ["robustness", "run", "--out", "OUT"],
        ["credit", "run", "test:0", "--out", "OUT"],
        ["attribute", "run", "test.png", "--out", "OUT"],
        ["debug", "run", "--out", "OUT"],
        ["audit", "run", "--out", "OUT"],
        ["audit", "run", "--out", "elsewhere", "--figure", "OUT/roc.png"],
        ["check", "run", "--out", "OUT"],
        ["generate", "run", "--out", "OUT"],
        ["interpolate", "run", "test:0", "test:1", "--out", "OUT"],
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_nothing_is_written_among_the_pictures(
    command: list[str], inside: str, place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    if not Path("link").is_symlink():
        Path("link").symlink_to(place / "data")
    before = contents(place)
    found = call(*(word.replace("OUT", inside) for word in command))
    assert found.code == 2
    folder = place / ("others" if inside.startswith("others") else "data")
    assert f"lies in the data folder; choose a folder outside {folder}" in found.last_line
    assert contents(place) == before


@pytest.mark.parametrize("command", ["attribute", "credit"])
def test_nothing_is_written_into_a_folder_of_queries(command: str, place: Path, tmp_path: Path, call: Call) -> None:
    asked = Path(shutil.copytree(place / "others", tmp_path / "asked"))
    before = contents(asked)
    for out in (asked, asked / "digit-0", asked / "report"):
        found = call(command, place / "run", asked, "--out", out)
        assert found.code == 2
        assert f"lies in the data folder; choose a folder outside {asked}" in found.last_line
    assert contents(asked) == before


def test_beside_the_data_and_in_hidden_folders_all_is_written(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place / "data")  # the data are the folder that one is in, the outputs lie in its parent
    assert call("explain", "../run", "test:0", "--html", "../page.html", "--png", "../run/sheet.png").code == 0
    assert call("explain", "../run", "test:0", "--html", ".reports/page.html").code == 0
    assert call("attribute", "../run", ".", "--out", "../data-traced").code == 0
    for path in (place / "page.html", place / "run/sheet.png", place / "data/.reports", place / "data-traced"):
        assert path.exists()
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_data_that_are_no_picture_folder_have_nothing_to_refuse(tmp_path: Path, place: Path, call: Call) -> None:
    assert picture_folder(provnet.open_data("embedded", limit=10).spec) is None
    assert picture_folder(provnet.open_data(np.zeros((2, 4)), [0, 1]).spec) is None
    assert picture_folder(None) is None
    images = np.random.default_rng(0).integers(0, 256, (8, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", images=images, labels=np.arange(8) % 2)
    assert call("train", tmp_path / "few.npz", "--out", tmp_path / "run", *FAST).code == 0
    assert call("explain", tmp_path / "run", tmp_path / "few.npz", "--html", tmp_path / "page.html").code == 0
    check_outputs({tmp_path / "page.html": PAGE}, [tmp_path / "no run"], ["embedded", tmp_path / "few.npz", None])


def test_train_refuses_by_the_same_check(place: Path, call: Call) -> None:
    before = contents(place / "data")
    found = call("train", place / "data", "--out", place / "data" / "run", *FAST)
    assert found.code == 2
    assert "the run" in found.last_line
    with pytest.raises(UsageError, match=r"the output .* lies in the data folder; choose a folder outside"):
        check_outputs({place / "data" / "digit-0" / "x.html": PAGE}, [], [place / "data"])
    assert contents(place / "data") == before


@pytest.mark.parametrize("name", ["sheet.jpg", "sheet", "sheet.html"])
def test_a_contact_sheet_is_called_what_it_is(name: str, run: Path, tmp_path: Path, call: Call) -> None:
    found = call("explain", run, "test:0", "--png", tmp_path / name)
    assert found.code == 2
    assert f'--png writes a PNG file, not "{name}"; let its name end in .png' in found.last_line
    assert list(tmp_path.iterdir()) == []
    assert call("explain", run, "test:0", "--png", tmp_path / "sheet.PNG").code == 0


@pytest.fixture(scope="module")
def named(place: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of data sets known by name, with one of them, and a run that was trained on it."""
    root = tmp_path_factory.mktemp("named")
    shutil.copytree(place / "data", root / "sets" / "lfw")
    words = ["train", "lfw", "--data-dir", str(root / "sets"), "--holdout", "0.3", "--out", str(root / "run"), *FAST]
    assert main(words) == 0
    return root / "sets", root / "run"


@cases(
    "command",
    [
        ["explain", "RUN", "PICTURE", "--data", "lfw", "--html", "OUT/page.html"],
        ["explain", "RUN", "PICTURE", "--data", "lfw", "--log", "OUT/log.jsonl"],
        ["map", "RUN", "--test", "lfw", "--out", "OUT"],
        ["robustness", "RUN", "--data", "lfw", "--out", "OUT"],
        ["credit", "RUN", "lfw", "--out", "OUT"],
        ["attribute", "RUN", "PICTURE", "--heldout", "lfw", "--out", "OUT"],
        ["debug", "RUN", "--data", "lfw", "--out", "OUT"],
        ["audit", "RUN", "--nonmembers", "lfw", "--out", "OUT"],
        ["check", "RUN", "--other", "lfw", "--out", "OUT"],
        ["generate", "RUN", "--data", "lfw", "--out", "OUT"],
        ["interpolate", "RUN", "test:0", "test:1", "--data", "lfw", "--out", "OUT"],
    ],
    ids=lambda words: f"{words[0]} {words[-2]}",
)
def test_nor_in_a_data_set_known_by_name(
    command: list[str], named: tuple[Path, Path], place: Path, tmp_path: Path, call: Call
) -> None:
    sets, run = named
    moved = Path(shutil.copytree(sets, tmp_path / "moved"))
    asked = place / "others" / "digit-0" / "0.png"
    # a run that was trained on others, one whose data were moved since, and data where they were
    for which, where in ((place / "run", moved), (run, moved), (run, sets)):
        before = contents(where)
        given = {"RUN": str(which), "PICTURE": str(asked), "OUT": str(where / "lfw" / "digit-0")}
        words = [given.get(word, word.replace("OUT", given["OUT"])) for word in command]
        found = call(*words, *([] if where == sets else ["--data-dir", where]))
        assert found.code == 2
        assert f"lies in the data folder; choose a folder outside {where / 'lfw'}" in found.last_line
        assert contents(where) == before
