"""`provnet verify` and `provnet info`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from provnet import open_data
from provnet.cli.bank import change_run
from provnet.cli.rundata import run_state, with_state
from provnet.runs import bank
from provnet.runs.run import read_samples
from provnet.training.config import train_config
from tests.data.made import noise, write_folder
from tests.fitting import fit

from .conftest import Call


def test_a_good_run(run: Path, call: Call) -> None:
    found = call("verify", run)
    assert found.code == 0
    assert "the same data: 24 samples" in found.out
    assert found.out.rstrip().endswith("verified")


def test_json(run: Path, call: Call) -> None:
    found = call("verify", run, "--json")
    assert found.code == 0
    assert found.json["ok"] is True
    assert found.json["data"]["verdict"] == "same"
    assert found.json["data"]["status"] == {"same": 24}
    assert {"model.safetensors", "manifest.json"} <= {file["name"] for file in found.json["files"]}


def test_a_flipped_bit(own_run: Path, call: Call) -> None:
    path = own_run / "model.safetensors"
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(blob)
    found = call("verify", own_run, "--json")
    assert found.code == 6
    assert [file["name"] for file in found.json["files"] if not file["ok"]] == ["model.safetensors"]
    assert found.json["data"] is None
    assert "failed  model.safetensors" in call("verify", own_run).out


def test_a_pickle_in_its_place(own_run: Path, call: Call) -> None:
    (own_run / "model.safetensors").write_bytes(b"\x80\x04K\x01.")
    assert call("verify", own_run).code == 7


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 6)])
def test_renamed_data(strict: bool, code: int, run: Path, own_data: Path, call: Call) -> None:
    path = own_data / "train" / "digit-0" / "0.png"
    path.rename(path.with_name("other.png"))
    found = call("verify", run, "--data", own_data, "--json", *(["--strict"] if strict else []))
    assert found.code == code
    assert found.json["data"]["verdict"] == "moved"


def test_a_moved_root_is_the_same_data(run: Path, own_data: Path, call: Call) -> None:
    assert call("verify", run, "--data", own_data, "--strict").code == 0


def test_edited_and_other_data(run: Path, own_data: Path, tmp_path: Path, call: Call) -> None:
    shutil.copy(own_data / "train" / "digit-1" / "1.png", own_data / "train" / "digit-0" / "0.png")
    found = call("verify", run, "--data", own_data)
    assert found.code == 6
    assert "1 edited (the name holds other content now): train/digit-0/0.png" in found.out
    found = call("verify", run, "--data", "digits", "--json")
    assert found.code == 6
    assert found.json["data"]["verdict"] == "other"


def test_data_that_are_gone(own_data: Path, tmp_path: Path, call: Call) -> None:
    assert call("train", own_data, "--out", tmp_path / "run", "--epochs", 1).code == 0
    shutil.rmtree(own_data)
    found = call("verify", tmp_path / "run")
    assert found.code == 0
    assert "not compared" in found.out
    for command in (("evaluate",), ("explain", "test:0"), ("robustness", "--out", tmp_path / "out")):
        asked = call(command[0], tmp_path / "run", *command[1:])
        assert asked.code == 2
        assert f"the run's test split cannot be opened: {own_data} no longer exists; put it back" in asked.err
    assert call("verify", tmp_path / "run", "--strict").code == 6
    assert call("verify", tmp_path / "run", "--data", own_data).code == 2
    assert "data" not in call("verify", tmp_path / "run", "--no-data").out
    assert call("verify", tmp_path / "run", "--no-data", "--strict").code == 2


def test_info(own_run: Path, call: Call) -> None:
    found = call("info", own_run)
    assert found.code == 0
    for words in ("class-conditional", "24", "digit-0, digit-1", "epochs 14", "torch", "not evaluated yet"):
        assert words in found.out
    assert call("evaluate", own_run).code == 0
    assert "index accuracy under noise" in call("info", own_run).out


def test_info_as_json(own_run: Path, call: Call) -> None:
    before = call("info", own_run, "--json").json
    assert before["samples"] == 24
    assert before["parameters"] > 100_000
    assert before["network"]["network"] == "class-conditional"
    assert before["evaluation"] is None
    call("evaluate", own_run)
    assert call("info", own_run, "--json").json["evaluation"]["class_accuracy"]["n"] == 8


@pytest.mark.parametrize("name", ["model_sha256", "samples_sha256"])
def test_an_evaluation_of_another_state_is_left_out(own_run: Path, data: Path, call: Call, name: str) -> None:
    call("evaluate", own_run, data)  # data that are named: figures go into the file alone
    path = own_run / "evaluation.json"
    kept = json.loads(path.read_text())
    kept["about"][name] = "0" * 64
    path.write_text(json.dumps(kept))
    found = call("info", own_run, "--json")
    assert found.json["evaluation"] is None
    assert "belongs to other weights or samples" in found.err
    assert call("evaluate", own_run).code == 0
    path.write_text(json.dumps(kept))
    assert call("info", own_run, "--json").json["evaluation"]["class_accuracy"]["n"] == 8  # those that the run holds
    path.write_text("not JSON")
    found = call("info", own_run, "--json")
    assert found.code == 0
    assert "the evaluation is left out" in found.err


def test_a_decoder_that_makes_other_pictures_of_the_same_files(tmp_path: Path, call: Call) -> None:
    """As after an upgrade of the decoder: options and bytes are those of training, the pixels are not."""
    files = {f"{c}/{i}.png": noise((8, 8, 4), i) for i, c in enumerate("ababab")}
    trained = open_data(write_folder(tmp_path / "data", files), background="black")
    spec = replace(trained.spec, options={})
    fit(replace(trained, spec=spec), config=train_config("fast", epochs=1), out=tmp_path / "run")
    found = call("verify", tmp_path / "run", "--json")
    assert found.code == 6
    assert found.json["data"]["verdict"] == "decoded differently"
    assert found.json["data"]["status"] == {"decoded differently": 6}
    assert "another version of the decoder" in found.json["data"]["facts"][-1]
    assert "not verified (exit code 6)" in call("verify", tmp_path / "run").out
    page = tmp_path / "page.html"
    found = call("explain", tmp_path / "run", tmp_path / "data" / "a" / "0.png", "--html", page)
    assert found.code == 0
    assert "decoded differently from training" in found.err
    assert page.read_text("utf-8").count("<img ") == 1  # the input alone


def test_a_run_that_is_changed_while_it_is_read_is_read_again(place: Path) -> None:
    read: list[int] = []

    def reading(run: Path) -> int:
        read.append(int(read_samples(run)[1].withheld.sum()))
        if len(read) == 1:
            change_run(run, lambda now: bank.withhold(now, ["train/digit-2/3.png"]))
        return read[-1]

    assert with_state(place / "run", reading) == (1, run_state(place / "run"))
    assert read == [0, 1]
