"""`provnet evaluate`: the JSON, the file, and training data that changed meanwhile."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.cli.bank import change_run
from provnet.runs import bank
from provnet.runs.run import read_run, write_run

from .conftest import Call, contents

INTERVAL = {"value", "n", "low", "high"}


def test_json_is_exactly_as_promised(own_run: Path, call: Call) -> None:
    found = call("evaluate", own_run, "--json")
    assert found.code == 0
    values = found.json
    plain = ["class_accuracy", "index_accuracy", "index_at_5", "any_at_1", "any_at_5", "majority_at_5"]
    assert set(values) == {*plain, "index_accuracy_perturbed"}
    assert set(values["index_accuracy_perturbed"]) == {"noise", "shift", "jpeg"}
    for figure in [*(values[name] for name in plain), *values["index_accuracy_perturbed"].values()]:
        assert set(figure) == INTERVAL
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
    assert values["class_accuracy"]["n"] == 8
    assert values["index_accuracy"]["n"] == 24


def test_the_file_has_every_figure_and_what_it_was_measured_on(own_run: Path, call: Call) -> None:
    printed = call("evaluate", own_run, "--json").json
    kept = json.loads((own_run / "evaluation.json").read_text())
    assert all(kept[name] == printed[name] for name in printed)
    assert {"any_at_10", "majority_at_10", "stage_1", "stage_2", "end_to_end", "supported"} <= set(kept)
    assert kept["about"]["train"]["left_out"] == 0
    assert "split test" in kept["about"]["test"]["data"]


def test_figures_on_its_own_test_split_go_into_the_model_card(own_run: Path, data: Path, call: Call) -> None:
    untouched = {path.name: path.read_bytes() for path in own_run.glob("*.safetensors")}
    assert "Not evaluated" in (own_run / "README.md").read_text()
    assert call("evaluate", own_run, data / "test", "--json").code == 0  # data that were named: no business of the card
    assert "Not evaluated" in (own_run / "README.md").read_text()
    values = call("evaluate", own_run, "--json").json
    card = (own_run / "README.md").read_text()
    assert f"| class\\_accuracy | {values['class_accuracy']['value']:.4f} |" in card
    assert call("verify", own_run).code == 0  # the manifest knows of it
    assert untouched == {path.name: path.read_bytes() for path in own_run.glob("*.safetensors")}


def test_a_run_that_cannot_be_written_to_is_measured_all_the_same(
    own_run: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    found = call("evaluate", own_run)
    assert found.code == 0
    assert "class accuracy" in found.out
    assert "written to" not in found.out
    assert found.err.count("is not written") == 1
    assert not (own_run / "evaluation.json").exists()


@pytest.mark.parametrize("change", ["samples are withheld", "another run comes"])
@pytest.mark.parametrize("command", [("evaluate",), ("audit", "--no-card", "--limit", "8"), ("check", "--limit", "30")])
def test_figures_of_a_run_that_was_changed_meanwhile_are_not_kept(
    command: tuple[str, ...], change: str, place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run, after = f"provnet.cli.{command[0]}.measure", place / "run", {}
    real = pkgutil.resolve_name(name)
    other = bank.add(read_run(run), provnet.open_data(str(place / "more")))

    def overtaken(*given: object, **more: object) -> object:
        if change == "samples are withheld":
            change_run(run, lambda now: bank.withhold(now, ["train/digit-2/3.png"]))
        else:
            write_run(other, run)
        after.update(contents(run))
        return real(*given, **more)

    monkeypatch.setattr(name, overtaken)
    found = call(command[0], run, *command[1:], *(["--out", place / "out"] if command[0] == "audit" else []))
    assert found.code == 6
    assert "was changed by another process while it was measured" in found.last_line
    assert contents(run) == after
    assert call("info", run, "--json").json["evaluation"] is None


def test_table_for_people(own_run: Path, call: Call) -> None:
    found = call("evaluate", own_run, "--device", "cpu", "--seed", 3)
    assert found.code == 0
    for words in ("class accuracy", "index accuracy under noise", "stage 2", "95 % interval", "evaluation.json"):
        assert words in found.out


def test_other_data_may_lack_classes_but_not_have_new_ones(
    own_run: Path, data: Path, tmp_path: Path, call: Call
) -> None:
    shutil.copytree(data / "test" / "digit-2", tmp_path / "some" / "digit-2")
    found = call("evaluate", own_run, tmp_path / "some", "--json")
    assert found.code == 0
    assert found.json["class_accuracy"]["n"] == 2
    alone = call("evaluate", own_run, "--json").json["class_accuracy"]["value"] * 8  # all four classes
    assert found.json["class_accuracy"]["value"] * 2 <= alone
    (tmp_path / "some" / "digit-2").rename(tmp_path / "some" / "nine")
    found = call("evaluate", own_run, tmp_path / "some")
    assert found.code == 2
    assert 'the first "nine"' in found.last_line


def test_test_samples_that_were_trained_on_are_pointed_out(own_run: Path, data: Path, call: Call) -> None:
    found = call("evaluate", own_run, data / "train", "--json")
    assert "24 of 24 test samples are also training samples" in found.err
    assert found.json["test_in_training"] == 24  # and wherever these figures are read later
    assert json.loads((own_run / "evaluation.json").read_text())["test_in_training"] == 24
    for shown in (call("evaluate", own_run, data / "train").out, call("info", own_run).out):
        assert "on test samples, 24 of them NOT unseen" in shown and "on unseen samples" not in shown
    assert "test_in_training" not in call("evaluate", own_run, "--json").json


def test_data_of_another_size_are_refused(own_run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "other" / "digit-0").mkdir(parents=True)
    Image.new("L", (9, 9)).save(tmp_path / "other" / "digit-0" / "a.png")
    found = call("evaluate", own_run, tmp_path / "other")
    assert found.code == 3
    assert "(1, 9, 9)" in found.last_line
    assert "(1, 28, 28)" in found.last_line


def test_reordered_and_renamed_training_data_give_the_same_figures(own_run: Path, own_data: Path, call: Call) -> None:
    before = call("evaluate", own_run, "--json").json
    for path in sorted((own_data / "train").rglob("*.png")):
        path.rename(path.with_name(f"{9 - int(path.stem)}-renamed.png"))
    found = call("evaluate", own_run, "--json", "--train-data", own_data)
    assert found.code == 0
    assert found.json == before
    assert "the same samples under other names" in found.err


def test_edited_and_missing_training_samples_are_left_out_and_it_is_said(
    own_run: Path, own_data: Path, call: Call
) -> None:
    train = own_data / "train"
    (train / "digit-0" / "0.png").unlink()
    shutil.copy(train / "digit-1" / "1.png", train / "digit-2" / "2.png")
    found = call("evaluate", own_run, "--json", "--train-data", own_data)
    assert found.code == 0
    assert found.json["index_accuracy"]["n"] == 22
    assert "2 of 24 training samples are left out of the figures" in found.err
    assert json.loads((own_run / "evaluation.json").read_text())["about"]["train"]["left_out"] == 2


def test_one_of_two_equal_training_files_may_go(own_data: Path, tmp_path: Path, call: Call) -> None:
    copy = own_data / "train" / "digit-1" / "copy.png"
    shutil.copy(copy.with_name("3.png"), copy)
    out = tmp_path / "fresh"
    assert call("train", own_data, "--out", out, "--epochs", 1).code == 0
    copy.unlink()
    found = call("evaluate", out, "--json")
    assert found.code == 0
    assert found.json["index_accuracy"]["n"] == 25
    assert "1 missing, but the same content is still there under another name" in found.err
    for command in ("debug", "map"):
        found = call(command, out, "--out", tmp_path / command)
        assert found.code == 0
        assert "1 missing, but" in found.err


def test_without_training_data_only_the_test_is_measured(own_data: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "fresh"
    assert call("train", own_data, "--out", out, "--epochs", 1).code == 0
    kept = own_data.rename(tmp_path / "elsewhere")
    found = call("evaluate", out, kept, "--json")
    assert found.code == 0
    assert found.json["class_accuracy"]["n"] == 8
    assert found.json["index_accuracy"]["n"] == 0
    assert "the training data cannot be opened" in found.err
    assert call("evaluate", out, kept, "--train-data", tmp_path / "nowhere").code == 2


def test_limited_training_data_are_found_among_all(own_data: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "limited"
    assert call("train", own_data, "--out", out, "--epochs", 1, "--limit", 8).code == 0
    for path in sorted((own_data / "train").rglob("*.png")):
        path.rename(path.with_name(f"{9 - int(path.stem)}-renamed.png"))  # --limit would now take others
    found = call("evaluate", out, "--json")
    assert found.json["index_accuracy"]["n"] == 8
    assert call("verify", out).code == 0


def test_values_of_another_range_are_pointed_out(own_run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    pixels = np.asarray(Image.open(data / "test" / "digit-1" / "0.png"))
    np.savez(tmp_path / "unit.npz", images=pixels[None] / 255.0, labels=np.array(["digit-1"]))
    found = call("evaluate", own_run, tmp_path / "unit.npz", "--json")
    assert found.code == 0
    assert "the test data: the values lie in 0..0.9961, this run was trained on 0..255" in found.err


def test_what_is_odd_in_a_file_is_said_once_for_both_splits(tmp_path: Path, call: Call) -> None:
    data = provnet.open_data("embedded", limit=24)
    arrays = {"images": data.images[4:], "labels": data.labels[4:], "test_images": data.images[:4]}
    np.savez(tmp_path / "data.npz", **arrays, test_labels=data.labels[:4], comment=np.zeros(3))
    trained = call("train", tmp_path / "data.npz", "--out", tmp_path / "run", "--epochs", 1)
    evaluated = call("evaluate", tmp_path / "run")
    for found in (trained, evaluated):  # once a command, not once a process
        assert found.code == 0, found.err
        assert found.err.count("arrays not used: comment") == 1
