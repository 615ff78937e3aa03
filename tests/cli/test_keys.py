"""Exemplar heads through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provnet.cli import main

from .conftest import Call

KEYS = ("--network", "class-independent", "--head", "exemplar", "--keys", "int8", "--epochs", "1")


@pytest.fixture(scope="module")
def keyed(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an exemplar head on the digits of the other tests."""
    out = tmp_path_factory.mktemp("keyed") / "run"
    assert main(["train", str(trained[0]), "--out", str(out), *KEYS, "--augment", "auto"]) == 0
    return out


def test_flags_reach_the_run(keyed: Path) -> None:
    config = json.loads((keyed / "config.json").read_text())
    assert config["network"]["head"] == "exemplar"
    assert config["network"]["key_type"] == "int8"
    assert config["training"]["training"]["augment"] == "digits"


def test_evaluate_reports_learned_refreshed_and_joint_apart(keyed: Path, call: Call) -> None:
    found = call("evaluate", keyed)
    assert found.code == 0, found.err
    for words in ("index accuracy, exact", "keys as learned", "under shift", "any@1 by joint weights"):
        assert words in found.out
    values = json.loads((keyed / "evaluation.json").read_text())
    assert values["index_accuracy"]["value"] == 1
    assert values["index_accuracy_learned"]["n"] == 24
    assert values["joint_any_at_1"]["n"] == values["any_at_1"]["n"] == 8


def test_joint_weights(keyed: Path, call: Call) -> None:
    plain, joint = (call("explain", keyed, "test:0", "--json", "--weights", weights) for weights in ("plain", "joint"))
    assert plain.code == joint.code == 0
    one, other = ([item["weight"] for item in found.json[0]["exemplars"]] for found in (plain, joint))
    assert one != other
    assert plain.json[0]["predicted"] == joint.json[0]["predicted"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--head", "exemplars", "exemplar"), ("--keys", "fp16", "bf16"), ("--augment", "digit", "digits")],
)
def test_unknown_names_are_refused(data: Path, tmp_path: Path, call: Call, option: str, value: str, says: str) -> None:
    found = call("train", data, "--out", tmp_path / "run", option, value)
    assert found.code == 2
    assert value in found.last_line
    assert says in found.last_line
    assert not (tmp_path / "run").exists()


def test_unknown_weights_are_refused(keyed: Path, call: Call) -> None:
    found = call("explain", keyed, "test:0", "--weights", "both")
    assert found.code == 2
    assert "joint, plain" in found.last_line
