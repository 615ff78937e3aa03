"""`provnet train`: what it says, what it refuses, how it goes on."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from provnet.runs.run import read_run
from tests.cases import cases

from .conftest import Call

QUICK = ("--epochs", 1, "--batch-size", 8)


def test_summary_and_result(data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data, "--out", tmp_path / "run", *QUICK)
    assert found.code == 0
    assert "24 samples, 4 classes, 1 x 28 x 28" in found.out
    assert "the test split of" in found.out
    assert "class-conditional, exemplar head, backbone small," in found.out
    assert "parameters" in found.out
    assert "n = 24" in found.out
    assert f"provnet evaluate {tmp_path / 'run'}" in found.out
    config = read_run(tmp_path / "run").config
    assert config.test is not None
    assert config.test.split == "test"


def test_json_is_all_of_stdout(data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data, "--out", tmp_path / "run", "--json", "--network", "single", "--alpha", 0.5, *QUICK)
    assert found.code == 0
    assert found.json["samples"] == 24
    assert found.json["network"] == "single"
    assert set(found.json["class_accuracy"]) == {"value", "n", "low", "high"}
    assert read_run(tmp_path / "run").config.network.alpha == 0.5


def test_flags_reach_the_run(data: Path, tmp_path: Path, call: Call) -> None:
    wishes = ["--lr", 1e-3, "--seed", 7, "--no-conditional", "--size", "20x16", "--mode", "rgb", "--limit", 12]
    assert call("train", data, "--out", tmp_path / "run", *QUICK, *wishes).code == 0
    config = read_run(tmp_path / "run").config
    assert config.network.input_shape == (3, 20, 16)
    assert not config.network.conditional
    assert config.training["training"]["lr"] == 1e-3
    assert config.training["training"]["seed"] == 7
    assert config.data is not None
    assert config.data.options == {"size": [20, 16], "fit": "stretch", "mode": "rgb", "limit": 12}


def test_a_flag_left_out_is_the_preset_s(data: Path, tmp_path: Path, call: Call) -> None:
    from provnet.training.config import PRESETS

    out = tmp_path / "run"
    assert call("train", data, "--out", out, "--preset", "paper", "--epochs", 1, "--backbone", "small").code == 0
    settings = read_run(out).config.training["training"]
    assert settings == {**PRESETS["paper"].to_json(), "epochs": 1}


def test_held_out_samples_are_the_test_split(data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data / "train", "--out", tmp_path / "run", "--holdout", 0.34, *QUICK)
    assert found.code == 0
    assert "8 samples held out" in found.out
    evaluated = call("evaluate", tmp_path / "run", "--json")
    assert evaluated.json["class_accuracy"]["n"] == 8
    assert evaluated.json["index_accuracy"]["n"] == 16


def test_no_test_split_is_said(data: Path, tmp_path: Path, call: Call) -> None:
    assert "with --holdout" in call("train", data / "train", "--out", tmp_path / "run", *QUICK).out
    found = call("evaluate", tmp_path / "run", "--json")
    assert found.json["class_accuracy"] == {"value": None, "n": 0, "low": None, "high": None}
    assert "class accuracy is not measured" in found.err


def test_odd_data_are_flagged(own_data: Path, tmp_path: Path, call: Call) -> None:
    train = own_data / "train"
    shutil.copy(train / "digit-0" / "0.png", train / "digit-0" / "copy.png")
    shutil.copy(train / "digit-0" / "0.png", train / "digit-1" / "copy.png")
    for path in sorted((train / "digit-3").iterdir())[1:]:
        path.unlink()
    (train / "digit-2" / "broken.png").write_bytes(b"")
    found = call("train", own_data, "--out", tmp_path / "run", "--skip-bad", *QUICK)
    assert found.code == 0
    assert "1 group of exact duplicates, 3 of 21 samples" in found.err
    assert "can reach at most 0.9048" in found.err
    assert "1 group of equal pictures carries different labels" in found.err
    assert "1 class has one sample, which is named whatever input is taken for that class: digit-3" in found.err
    assert "1 bad file left out; the first: train/digit-2/broken.png" in found.err
    independent = ("--skip-bad", "--overwrite", "--network", "class-independent")
    found = call("train", own_data, "--out", tmp_path / "run", *QUICK, *independent)
    assert found.code == 0
    assert "one sample" not in found.err  # which may be any, of any class


def test_a_bad_file_is_named_and_nothing_is_left(own_data: Path, tmp_path: Path, call: Call) -> None:
    (own_data / "train" / "digit-2" / "broken.png").write_bytes(b"")
    found = call("train", own_data, "--out", tmp_path / "run", *QUICK)
    assert found.code == 3
    assert "train/digit-2/broken.png" in found.last_line
    assert not (tmp_path / "run").exists()


def test_a_single_class_is_flagged(data: Path, tmp_path: Path, call: Call) -> None:
    shutil.copytree(data / "train" / "digit-0", tmp_path / "data" / "only")
    found = call("train", tmp_path / "data", "--out", tmp_path / "run", *QUICK)
    assert found.code == 0
    assert "class accuracy is meaningless" in found.err


def test_a_run_is_not_replaced_unasked(data: Path, own_run: Path, call: Call) -> None:
    before = (own_run / "manifest.json").read_bytes()
    found = call("train", data, "--out", own_run, *QUICK)
    assert found.code == 2
    assert "--overwrite" in found.last_line
    assert (own_run / "manifest.json").read_bytes() == before
    (own_run / "evaluation.json").write_text("{}")
    assert call("train", data, "--out", own_run, "--overwrite", *QUICK).code == 0
    assert (own_run / "manifest.json").read_bytes() != before
    assert not (own_run / "evaluation.json").exists()  # of the run before


def test_an_overwrite_that_was_killed_can_be_given_again(data: Path, own_run: Path, call: Call) -> None:
    (own_run / "manifest.json").unlink()
    assert call("train", data, "--out", own_run, *QUICK).code == 2
    assert call("train", data, "--out", own_run, "--overwrite", *QUICK).code == 0


def test_other_people_s_files_are_never_overwritten(data: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "README.md").write_text("mine")
    found = call("train", data, "--out", tmp_path, "--overwrite", *QUICK)
    assert found.code == 2
    assert 'it holds "README.md"' in found.last_line
    assert (tmp_path / "README.md").read_text() == "mine"


def test_stopped_and_resumed(data: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ("--epochs", 2, "--batch-size", 8, "--checkpoint-seconds", 0)
    assert call("train", data, "--out", tmp_path / "straight", *common).code == 0

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("provnet.training.fit.write_run", stop)
        stopped = call("train", data, "--out", tmp_path / "run", *common)
    assert stopped.code == 130
    words = shlex.split(stopped.err.split("to continue: ")[1].splitlines()[0])
    assert words == ["provnet", "train", str(data), "--out", str(tmp_path / "run"), *map(str, common), "--resume"]
    changed = call("train", data, "--out", tmp_path / "run", "--resume", *common, "--seed", 5)
    assert changed.code == 2
    assert "1 setting differs: training.seed: 0 -> 5. Give the settings of the first start" in changed.last_line
    resumed = call("train", data, "--out", tmp_path / "run", "--resume", *common, "--json")
    assert resumed.code == 0
    assert resumed.json["epochs"] == 2
    name = "model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    again = call("train", data, "--out", tmp_path / "run", "--resume", *common)
    assert again.code == 0
    assert "already finished" in again.out


def test_warnings_about_data_are_one_line(own_data: Path, tmp_path: Path, call: Call) -> None:
    (own_data / "train" / "digit-0" / "notes.txt").write_text("not a picture")
    found = call("train", own_data, "--out", tmp_path / "run", *QUICK)
    assert found.code == 0
    assert "warning: 1 left out, not pictures: train/digit-0/notes.txt\n" in found.err


def test_different_sizes_are_brought_to_one_and_it_is_said(own_data: Path, tmp_path: Path, call: Call) -> None:
    Image.new("L", (9, 9)).save(own_data / "train" / "digit-0" / "small.png")
    found = call("train", own_data, "--out", tmp_path / "run", *QUICK)
    assert found.code == 0, found.err
    assert "pictures of 2 sizes: the network sees each at 64 x 64 (stretched, nothing is cut)" in found.err
    assert read_run(tmp_path / "run").config.network.input_shape == (1, 64, 64)


def test_the_log_has_one_line_an_epoch(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, 15))


@pytest.mark.parametrize("place", ["run", "train/run", "train/digit-0/run"])
def test_a_run_among_the_pictures_is_refused(place: str, own_data: Path, call: Call) -> None:
    found = call("train", own_data, "--out", own_data / place, *QUICK)
    assert found.code == 2
    assert "lies in the data folder; choose a folder outside" in found.last_line
    assert not (own_data / place).exists()


def test_a_run_beside_the_pictures_or_hidden_among_them_is_fine(own_data: Path, call: Call) -> None:
    for out in (own_data.parent / "beside", own_data / ".run"):
        assert call("train", own_data, "--out", out, *QUICK).code == 0


@cases(
    ("wish", "said"),
    [
        (("--network", "singel"), 'unknown network "singel"'),
        (("--backbone", "smal"), 'unknown backbone "smal"'),
        (("--head", "plane"), 'unknown head "plane"'),
        (("--keys", "fp16"), 'unknown key_type (--keys) "fp16"'),
        (("--device", "gpu"), 'unknown device "gpu"'),
        (("--alpha", "2"), "alpha must lie in [0, 1]"),
        (("--holdout", "2"), "the fraction held out (--holdout) must lie between 0 and 1, such as 0.1; got 2.0"),
        (("--apply", "gone.csv"), "gone.csv: cannot be read"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_wrong_with_any_data_is_said_before_they_are_read(
    call: Call, tmp_path: Path, wish: tuple[str, str], said: str
) -> None:
    """Reading pictures may take hours; here the data are not even there."""
    found = call("train", tmp_path / "no data", *wish, "--out", tmp_path / "run")
    assert found.code in (2, 3)
    assert said in found.last_line
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_replaced_is_there_until_the_new_one_is(data: Path, own_run: Path, call: Call) -> None:
    before = (own_run / "manifest.json").read_bytes()
    found = call("train", data, "--out", own_run, "--overwrite", *QUICK, "--lr", "1e30")
    assert found.code != 0
    assert f"the run that was there before is whole in {own_run / 'replaced'}" in found.err
    assert (own_run / "replaced" / "manifest.json").read_bytes() == before
    assert call("verify", own_run / "replaced").code == 0
    assert call("train", data, "--out", own_run, *QUICK).code == 0
    assert not (own_run / "replaced").exists()


def test_nothing_to_go_on_with_is_said(data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data, "--out", tmp_path / "new", "--resume", *QUICK)
    assert found.code == 0
    assert "there is no checkpoint in" in found.err and "trained in" in found.out


@pytest.mark.parametrize("below", ["", "run"])
def test_an_output_that_is_a_file_is_refused_before_pictures_are_read(tmp_path: Path, call: Call, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    found = call("train", tmp_path / "not there", "--out", tmp_path / "file" / below)
    assert found.code == 2
    assert "is a file" in found.last_line


def test_one_class_has_no_other_label(data: Path, tmp_path: Path, call: Call) -> None:
    shutil.copytree(data / "train" / "digit-0", tmp_path / "data" / "only")
    assert call("train", tmp_path / "data", "--out", tmp_path / "run", *QUICK).code == 0
    found = call("debug", tmp_path / "run", "--out", tmp_path / "d")
    assert found.code == 0
    assert "or else only" not in found.out
