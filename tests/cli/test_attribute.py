"""`provnet attribute`: files, names, held-out pictures, what is withheld, and what is refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .conftest import CLASSES, PER_CLASS, Call

COUNT = CLASSES * PER_CLASS


@pytest.fixture
def made(data: Path, tmp_path: Path) -> Path:
    """A folder of images: a training digit, a noisy copy of another under a hostile name, an unseen one, noise."""
    folder = tmp_path / "made"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(data / "train/digit-0/0.png", folder / "=copy.png")
    pixels = np.asarray(Image.open(data / "train/digit-1/1.png")).astype(np.int16)
    noisy = np.clip(pixels + np.random.default_rng(0).integers(-9, 9, pixels.shape), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(folder / "deep" / "<b>&.png")
    shutil.copy(data / "test/digit-2/0.png", folder / "fresh.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (28, 28), dtype=np.uint8)).save(folder / "noise.png")
    (folder / "notes.txt").write_text("no picture")
    return folder


def test_every_file_is_written_and_agrees(run: Path, made: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    found = call("attribute", run, made, "--out", out, "--json", "-k", "2", "--false-alarms", "0.1")
    assert found.code == 0, found.err
    values = found.json
    assert values == json.loads((out / "attribution.json").read_text())
    assert [one["input"] for one in values["inputs"]] == ["=copy.png", "deep/<b>&.png", "fresh.png", "noise.png"]
    first = values["inputs"][0]
    assert first["near_copy"]["verdict"] and first["near_copy"]["equal_pixels"]
    assert first["near_copy"]["of"]["sample_id"] == "train/digit-0/0.png"
    assert values["inputs"][1]["near_copy"]["of"]["sample_id"] == "train/digit-1/1.png"
    assert len(first["exemplars"]) == 2
    assert values["images"] == 4
    assert values["supported"]["n"] == 4
    assert values["compared"] == COUNT
    with (out / "attribution.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == ["'=copy.png", "deep/<b>&.png", "fresh.png", "noise.png"]
    assert rows[0]["copy_sha256"] == first["near_copy"]["of"]["sha256"]
    assert len(rows[0]) == 15 and None not in rows[0]
    with (out / "sources.csv").open(newline="", encoding="utf-8") as file:
        assert sum(int(row["near_copies"]) for row in csv.DictReader(file)) == round(4 * values["near_copies"]["value"])


def test_the_page_stands_alone_and_trusts_no_name(run: Path, made: Path, tmp_path: Path, call: Call) -> None:
    found = call("attribute", run, made, "--out", tmp_path / "out", "--false-alarms", "0.1")
    assert found.code == 0, found.err
    assert "near-copy: =copy.png of train/digit-0/0.png" in found.out
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert "<script" not in page
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;.png" in page
    assert "equal pixels" in page
    assert "Training images that are used most" in page


def test_few_pictures_are_said_to_be_few(run: Path, made: Path, call: Call) -> None:
    found = call("attribute", run, made / "fresh.png", "--json")
    assert found.code == 0, found.err
    assert "too few for a rate of 0.005" in found.err
    assert found.json["calibration"]["threshold"] is None
    assert found.json["inputs"][0]["input"].endswith("made/fresh.png")


def test_withheld_samples_are_not_compared_with(place: Path, made: Path, call: Call) -> None:
    assert call("withhold", place / "run", "--id", "train/digit-0/0.png").code == 0
    found = call("attribute", place / "run", made, "--json")
    assert found.code == 0, found.err
    assert not found.json["inputs"][0]["near_copy"]["equal_pixels"]
    assert "train/digit-0/0.png" not in found.out
    assert (found.json["withheld"], found.json["compared"]) == (1, COUNT - 1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["made", "-k", "0"], 2, "must be 1 or more"),
        (["made", "--false-alarms", "0.9"], 2, "false alarms"),
        (["empty"], 2, "holds no pictures"),
        (["gone.png"], 3, "gone.png"),
        (["made", "--heldout", "nowhere"], 2, "nowhere"),
        (["made", "--out", "made/fresh.png"], 2, "is a file"),
    ],
)
def test_bad_input_is_refused(
    run: Path, made: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    monkeypatch.chdir(made.parent)
    (made.parent / "empty").mkdir()
    found = call("attribute", run, *arguments)
    assert found.code == code, found.err
    assert words in found.last_line


def test_without_a_test_split_the_right_option_is_named(run: Path, made: Path, tmp_path: Path, call: Call) -> None:
    data = made.parent / "flat"
    shutil.copytree(made, data / "a")
    shutil.copytree(made, data / "b")
    assert call("train", data, "--out", tmp_path / "own", "--epochs", 1, "--size", 28, "--mode", "grey").code == 0
    found = call("attribute", tmp_path / "own", made)
    assert found.code == 0, found.err
    assert "pictures that it never saw with --heldout" in found.err
    assert "--nonmembers" not in found.err


def test_one_array_of_floats_changes_no_other_answer(run: Path, made: Path, tmp_path: Path, call: Call) -> None:
    copy, fresh = made / "=copy.png", made / "fresh.png"
    alone = call("attribute", run, copy, fresh, fresh, fresh, "--json").json["inputs"]  # as many: rounded alike
    whole, odd = tmp_path / "whole.npy", tmp_path / "odd.npy"
    pixels = np.asarray(Image.open(fresh)).astype(np.float32)
    np.save(whole, pixels)
    np.save(odd, pixels * 0.9)
    beside = call("attribute", run, copy, fresh, whole, odd, "--json").json["inputs"]
    assert beside[:2] == alone[:2]
    assert alone[0]["near_copy"]["equal_pixels"]
    assert {**beside[2], "input": ""} == {**alone[2], "input": ""}
    assert 0 < beside[3]["control"]["pixels"]["distance"] < 1
