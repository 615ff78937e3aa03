"""Data given to a trained run come in its colour mode, as single pictures do; arrays are taken as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.cli import main
from provnet.cli.rundata import open_members, open_others
from provnet.runs.run import read_run

from .conftest import Call


def coloured(folder: Path, target: Path) -> Path:
    """The same pictures, saved as RGB."""
    for path in sorted(folder.rglob("*.png")):
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).convert("RGB").save(copy)
    return target


def listed(folder: Path) -> Path:
    """A manifest of a folder, in it."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.png"))]
    lines = [f"{name},{name.split('/')[-2]}" for name in names]
    (folder / "list.csv").write_text("\n".join(["path,label", *lines, ""]))
    return folder / "list.csv"


@pytest.fixture(scope="module")
def colour_run(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on pictures in colour, without asking for a mode."""
    root = tmp_path_factory.mktemp("colour")
    words = ("train", coloured(trained[0] / "train", root / "data"), "--out", root / "run", "--epochs", 1)
    assert main([str(word) for word in words]) == 0
    return root / "run"


@pytest.mark.parametrize("kind", ["folder", "csv"])
def test_a_grey_run_sees_the_grey_pictures(run: Path, data: Path, tmp_path: Path, kind: str) -> None:
    folder = coloured(data / "test", tmp_path / "colour")
    source, loaded = str(folder if kind == "folder" else listed(folder)), read_run(run)
    wanted = provnet.open_data(data / "test").samples.pixel_sha256
    test = loaded.test(source)
    assert test is not None
    for found in (test, open_others(loaded, source, None), open_members(loaded, source, None)):
        assert found.shape == (1, 28, 28)
        assert (found.samples.pixel_sha256 == wanted).all()


def test_a_colour_run_takes_grey_pictures(colour_run: Path, data: Path, tmp_path: Path) -> None:
    found = read_run(colour_run).test(data)
    assert found is not None
    wanted = provnet.open_data(coloured(data / "test", tmp_path / "colour")).samples
    assert (found.samples.pixel_sha256 == wanted.pixel_sha256).all()


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "RUN", "DATA"),
        ("audit", "RUN", "--nonmembers", "DATA", "--out", "OUT"),
        ("check", "RUN", "--test", "DATA", "--out", "OUT"),
        ("map", "RUN", "--test", "DATA", "--out", "OUT"),
        ("credit", "RUN", "DATA", "--by", "BY", "--out", "OUT"),
        ("robustness", "RUN", "--data", "DATA", "--out", "OUT"),
    ],
)
def test_commands_take_pictures_in_colour(
    place: Path, data: Path, tmp_path: Path, call: Call, command: tuple[str, ...]
) -> None:
    ids = read_run(place / "run").samples.sample_ids
    (tmp_path / "by.csv").write_text("\n".join(["sample_id,contributor", *(f"{name},Ann" for name in ids), ""]))
    names = {"RUN": place / "run", "DATA": coloured(data / "test", tmp_path / "colour"), "OUT": tmp_path / "out"}
    found = call(*((names | {"BY": tmp_path / "by.csv"}).get(word, word) for word in command))
    assert found.code == 0, found.err


def test_added_pictures_in_colour_are_found_again(place: Path, call: Call) -> None:
    more = coloured(place / "more", place / "colour")
    found = call("add", place / "run", more)
    assert found.code == 0, found.err
    assert "added 8 samples" in found.out
    assert read_run(place / "run").config.added[0].options["mode"] == "grey"
    assert call("verify", place / "run", "--strict").code == 0


def test_a_test_split_in_colour_is_tested_on(own_data: Path, tmp_path: Path, call: Call) -> None:
    coloured(own_data / "test", tmp_path / "colour")
    shutil.rmtree(own_data / "test")
    shutil.move(tmp_path / "colour", own_data / "test")
    assert call("train", own_data, "--out", tmp_path / "run", "--epochs", 1).code == 0
    found = call("evaluate", tmp_path / "run", "--json")
    assert (found.code, found.json["class_accuracy"]["n"]) == (0, 8), found.err


def test_arrays_are_taken_as_they_are(run: Path, tmp_path: Path, call: Call) -> None:
    np.savez(tmp_path / "colour.npz", images=np.zeros((4, 3, 28, 28), np.uint8), labels=["digit-0"] * 4)
    found = call("evaluate", run, tmp_path / "colour.npz")
    assert found.code == 3
    assert "samples of shape (3, 28, 28), the run takes (1, 28, 28)" in found.last_line
