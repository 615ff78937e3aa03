"""`provnet train --test`: data of their own to test on, for sources without a test split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.runs.run import read_run

from .conftest import Call
from .test_colour import coloured, listed
from .test_debug_again import LOW, suggested, unseen

QUICK = ("--epochs", "2", "--batch-size", "8")


def packed(folder: Path, path: Path) -> Path:
    """Pictures as an .npz without a test split."""
    data = provnet.open_data(folder)
    np.savez(path, images=data.images.numpy(), labels=[data.class_names[label] for label in data.samples.labels])
    return path


def given(own_data: Path, kind: str) -> tuple[Path, Path]:
    """Training and test data of one kind, each by itself."""
    train, test = own_data / "train", own_data / "test"
    if kind == "csv":
        return listed(train), listed(test)
    return packed(train, own_data / "train.npz"), packed(test, own_data / "test.npz")


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_what_was_named_is_tested_on(own_data: Path, tmp_path: Path, call: Call, kind: str) -> None:
    (train, test), run = given(own_data, kind), tmp_path / "run"
    found = call("train", train, "--test", test, "--out", run, *QUICK)
    assert found.code == 0, found.err
    assert f"8 samples of {test}, split all" in found.out
    found = call("evaluate", run, "--json")
    assert (found.code, found.json["class_accuracy"]["n"]) == (0, 8)
    assert found.json == call("evaluate", run, test, "--json").json
    assert call("explain", run, "test:7", "--json").code == 0
    assert str(test) in call("info", run).out


def test_a_test_split_is_taken_and_the_rules_of_training_hold(data: Path, tmp_path: Path, call: Call) -> None:
    other = coloured(data, tmp_path / "colour")
    wishes = ("--test", other, "--size", "20", "--limit", "4")
    found = call("train", data / "train", "--out", tmp_path / "run", *QUICK, *wishes)
    assert found.code == 0, found.err
    spec = read_run(tmp_path / "run").config.test
    assert spec is not None
    assert (spec.source, spec.split) == (str(other), "test")
    assert dict(spec.options) == {"size": [20, 20], "fit": "stretch", "mode": "grey", "limit": 4}
    assert call("evaluate", tmp_path / "run", "--json").json["class_accuracy"]["n"] == 4


def test_it_goes_before_a_test_split_of_the_data(data: Path, own_data: Path, tmp_path: Path, call: Call) -> None:
    test = listed(own_data / "test")
    assert call("train", data, "--test", test, "--out", tmp_path / "run", *QUICK).code == 0
    spec = read_run(tmp_path / "run").config.test
    assert spec is not None
    assert spec.source == str(test)


@pytest.mark.parametrize(
    ("wishes", "code", "words"),
    [
        (("--test", "TEST", "--holdout", "0.2"), 2, "give one of them"),
        (("--test", "nowhere"), 2, 'no data set and no path "nowhere"'),
        (("--test", "LARGE"), 3, "samples of shape (1, 30, 30), those to train on have (1, 28, 28)"),
        (("--test", "embedded"), 2, "--test embedded: the data have 10 classes that the run does not know"),
    ],
)
def test_what_cannot_be_tested_on_is_refused_before_training(
    data: Path, tmp_path: Path, call: Call, wishes: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "large" / "digit-0").mkdir(parents=True)
    Image.new("L", (30, 30)).save(tmp_path / "large" / "digit-0" / "0.png")
    names = {"TEST": data / "test", "LARGE": tmp_path / "large"}
    found = call(
        "train", data / "train", "--out", tmp_path / "run", *QUICK, *(names.get(word, word) for word in wishes)
    )
    assert found.code == code
    assert words in found.last_line
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_lie_among_its_test_pictures(data: Path, own_data: Path, call: Call) -> None:
    found = call("train", data / "train", "--test", own_data / "test", "--out", own_data / "test" / "run", *QUICK)
    assert found.code == 2
    assert "lies in the data folder" in found.last_line


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_finished_run_keeps_its_test_data(data: Path, tmp_path: Path, call: Call, json: tuple[str, ...]) -> None:
    words = ("train", data / "train", "--out", tmp_path / "run", *QUICK, *json)
    assert call(*words, "--test", data / "test").code == 0
    assert "--test" not in call(*words, "--resume", "--test", data / "test").err
    assert "--test changes nothing" not in call(*words, "--resume").err
    found = call(*words, "--resume", "--test", listed(coloured(data / "test", tmp_path / "other")))
    assert f"--test changes nothing: the run is finished and keeps its own, {data / 'test'}" in found.err


@pytest.mark.parametrize("kind", ["csv", "npz"])
@pytest.mark.usefixtures("telling")
def test_debug_suggests_the_same_test_data(own_data: Path, tmp_path: Path, call: Call, kind: str) -> None:
    (train, test), run = given(own_data, kind), tmp_path / "run"
    assert call("train", train, "--test", test, "--out", run, *QUICK).code == 0
    words = suggested(call("debug", run, "--out", tmp_path / "d", *LOW).out)
    assert words[words.index("--test") + 1] == str(test)
    assert call(*words, tmp_path / "again").code == 0
    assert unseen(tmp_path / "again") == unseen(run) != set()


@pytest.mark.usefixtures("telling")
def test_a_manifest_is_tested_on_the_split_that_the_data_have(data: Path, tmp_path: Path, call: Call) -> None:
    run = tmp_path / "run"
    wishes = ("--network", "class-independent", "--head", "exemplar", *QUICK)
    assert call("train", data, "--out", run, *wishes).code == 0
    assert call("withhold", run, "--id", "train/digit-2/3.png").code == 0
    words = suggested(call("debug", run, "--out", tmp_path / "d", *LOW).out)
    manifest = tmp_path / "d" / "corrected.csv"
    assert words[1] == str(manifest)
    assert words[words.index("--test") + 1] == str(data)
    paths = [line.split(",")[0] for line in manifest.read_text().splitlines()[1:]]
    # two epochs suggest labels that leave a class without samples: put the right ones back
    manifest.write_text("".join(["path,label\n", *(f"{path},{path.split('/')[-2]}\n" for path in paths)]))
    assert call(*words, tmp_path / "again").code == 0
    assert unseen(tmp_path / "again") == unseen(run) != set()
