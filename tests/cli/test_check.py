"""`provnet check`: outcomes on the screen, in files and in the model card, whose hashes stay valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.cli import main
from provnet.training.session import run_lock

from .conftest import CLASSES, Call, contents

KEPT = ("model.safetensors", "samples.safetensors", "history.safetensors")


def section(run: Path) -> str:
    return (run / "README.md").read_text("utf-8").split("## Trust checks")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def inverted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 inverted digits: other data."""
    path = tmp_path_factory.mktemp("inverted") / "inverted.npz"
    data = provnet.open_data("embedded", split="test", limit=30)
    np.savez(path, images=255 - data.images[:, 0].numpy(), labels=data.samples.labels)
    return path


@pytest.fixture(scope="module")
def lacking(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without the last class."""
    import shutil

    root = tmp_path_factory.mktemp("lacking")
    shutil.copytree(trained[0], root / "data", ignore=shutil.ignore_patterns(f"digit-{CLASSES - 1}"))
    assert main(["train", str(root / "data"), "--out", str(root / "run"), "--epochs", "2", "--batch-size", "8"]) == 0
    return root / "run"


def test_every_file_is_written_and_the_card_stays_valid(
    own_run: Path, inverted: Path, lacking: Path, tmp_path: Path, call: Call
) -> None:
    assert "Not checked" in section(own_run)
    assert call("evaluate", own_run).code == 0
    before = contents(own_run)
    out = tmp_path / "out"
    found = call("check", own_run, "--out", out, "--other", inverted, "--left-out", lacking, "--limit", 30, "--json")
    assert found.code == 0, found.err
    values = json.loads((out / "check.json").read_text())
    assert values["outcomes"] == found.json["outcomes"]
    words = [one["words"] for one in values["outcomes"]]
    assert any("index head drawn anew" in each for each in words)
    assert any(f"told from left-out class digit-{CLASSES - 1}: AUROC" in each for each in words)
    assert any("inverted.npz called unsupported" in each for each in words)
    assert all(one["passed"] is not None for one in values["outcomes"])
    page = (out / "report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    after = contents(own_run)
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
    assert after["evaluation.json"] == before["evaluation.json"]
    lines = section(own_run).strip().splitlines()[2:]
    assert len(lines) == len(words)
    assert call("verify", own_run).code == 0
    assert not re.search(r"\b20\d\d-\d\d", section(own_run))
    assert "belongs to other weights" not in call("info", own_run).err


def test_outcomes_for_people(own_run: Path, call: Call) -> None:
    found = call("check", own_run, "--limit", 30)
    assert found.code == 0
    for words in ("pass", "pixels: Spearman", "calibration error", "uniform noise called unsupported", "README.md"):
        assert words in found.out
    assert "[green]" not in found.out


def test_the_same_check_writes_the_same_card(own_run: Path, call: Call) -> None:
    assert call("check", own_run, "--limit", 30).code == 0
    first = (own_run / "README.md").read_bytes()
    assert call("check", own_run, "--limit", 30).code == 0
    assert (own_run / "README.md").read_bytes() == first


def test_the_card_may_be_left_alone(own_run: Path, call: Call) -> None:
    before = contents(own_run)
    assert call("check", own_run, "--limit", 30, "--no-card").code == 0
    assert contents(own_run) == before


def test_a_changed_run_is_not_called_checked(place: Path, call: Call) -> None:
    run = place / "run"
    assert call("check", run, "--limit", 30).code == 0
    assert "| pass |" in section(run)
    assert call("withhold", run, "--id", "train/digit-1/2.png").code == 0
    assert "Checked before samples were added, withheld or erased" in section(run)
    found = call("check", run, "--limit", 30, "--json")
    assert found.json["about"]["withheld"] == 1
    assert found.json["dependence"]["samples"] == 23
    assert found.json["dependence"]["fresh"] is not None
    assert "| pass |" in section(run)


def test_without_data_less_is_measured(own_run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    import shutil

    aside = Path(shutil.move(data, tmp_path / "gone"))
    try:
        found = call("check", own_run, "--limit", 30, "--test", aside, "--json")
    finally:
        shutil.move(aside, data)
    assert found.code == 0, found.err
    states = {one["key"]: one["passed"] for one in found.json["outcomes"]}
    assert states["index head"] is states["sample confidence"] is None
    assert states["own pictures"] is not None
    assert "some checks are not measured" in found.err
    assert "not measured" in section(own_run)


def test_a_run_in_use_is_left_alone(own_run: Path, call: Call) -> None:
    before = contents(own_run)
    with run_lock(own_run):
        found = call("check", own_run, "--limit", 30)
    assert found.code == 2
    assert "in use" in found.last_line
    assert contents(own_run) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--limit", "5"], "--limit must be 20 or more"),
        (["--other", "TRAIN"], "are training samples of the run"),
        (["--other", "nowhere.npz"], "nowhere.npz"),
        (["--left-out", "RUN"], "has all of the classes"),
        (["--left-out", "nowhere"], "no run at nowhere"),
    ],
)
def test_what_cannot_be_checked(
    arguments: list[str], words: str, own_run: Path, data: Path, tmp_path: Path, call: Call
) -> None:
    before = contents(own_run)
    given = [{"TRAIN": str(data / "train"), "RUN": str(own_run)}.get(one, one) for one in arguments]
    found = call("check", own_run, "--out", tmp_path / "out", *given)
    assert found.code == 2, found.err
    assert words in found.last_line
    assert not (tmp_path / "out").exists()
    assert contents(own_run) == before


def test_bars_that_were_not_measured_are_not_called_met(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    import shutil

    own = shutil.copytree(run, tmp_path / "own")
    aside = Path(shutil.move(data, tmp_path / "gone"))
    try:
        found = call("check", own, "--limit", 30, "--test", aside)
    finally:
        shutil.move(aside, data)
    assert re.search(r"all bars are met of those that were measured; \d+ were not", found.out)
