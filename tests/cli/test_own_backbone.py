"""Commands on a run whose backbone was given as an object: refused with the way, which leads through Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import provnet
from provnet.cli import main
from provnet.runs.run import read_samples
from provnet.training.config import train_config
from tests.fitting import fit

from .conftest import Call, write_digits

ASKED: dict[str, Callable[[Path, Path], list[object]]] = {
    "explain": lambda run, root: ["test:0", "--html", root / "report.html"],
    "evaluate": lambda run, root: [],
    "debug": lambda run, root: ["--out", root],
    "audit": lambda run, root: ["--out", root, "--null", run.parent / "null"],
    "member": lambda run, root: [run.parent / "data/test/digit-0/0.png"],
    "robustness": lambda run, root: ["--out", root, "--conditions", "blur-1"],
    "map": lambda run, root: ["--out", root],
    "credit": lambda run, root: [run.parent / "data/test", "--by", sources(run), "--out", root],
    "attribute": lambda run, root: [run.parent / "data/test/digit-0", "--out", root],
    "check": lambda run, root: ["--out", root],
    "add": lambda run, root: [run.parent / "data/test"],
    "withhold": lambda run, root: ["--id", "train/digit-0/0.png"],
}


def sources(run: Path) -> Path:
    """Who gave which sample, as a file beside the run."""
    ids = read_samples(run)[1].sample_ids
    path = run.parent / "sources.csv"
    path.write_text("".join(["sample_id,contributor\n", *(f"{name},{name.split('/')[1]}\n" for name in ids)]))
    return path


def body() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 16), nn.ReLU())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own")
    write_digits(root / "data")
    data, test = (provnet.open_data(root / "data", split=split) for split in ("train", "test"))
    fit(data, test=test.spec, backbone=body(), head="exemplar", config=train_config("fast", epochs=2), out=root / "run")
    others = provnet.open_data("embedded")
    fit(others.select(others.labels > 4).select(range(40)), config=train_config("fast", epochs=1), out=root / "null")
    return root


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A run of one's own, that commands may change."""
    return Path(shutil.copytree(made, tmp_path / "place")) / "run"


@pytest.mark.parametrize("command", ASKED)
def test_a_command_takes_the_module_from_python(own: Path, command: str, tmp_path: Path) -> None:
    arguments = [command, str(own), *map(str, ASKED[command](own, tmp_path))]
    assert main(arguments, backbone=body()) == 0
    if "--out" in arguments or "--html" in arguments:
        assert "<html" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize("command", ASKED)
def test_without_it_the_error_names_that_way(own: Path, command: str, tmp_path: Path, call: Call) -> None:
    found = call(command, own, *ASKED[command](own, tmp_path))
    assert found.code == 2
    way = 'provnet.cli.main(["explain", ...], backbone=module)'
    assert way in " ".join(found.err.split())
    page = (Path(__file__).parents[2] / "docs/pretrained.md").read_text("utf-8")
    assert re.search(r'provnet\.cli\.main\(\["explain".*?backbone=body\(\)\)', page, re.DOTALL)


def test_info_and_verify_see_the_weights(own: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown (the backbone was given as an object)" in call("info", own).out
    assert "weights not loaded" in call("verify", own).out
    assert main(["info", str(own)], backbone=body()) == 0
    assert main(["verify", str(own)], backbone=body()) == 0
    said = capsys.readouterr().out
    assert "unknown (the" not in said
    assert "weights not loaded" not in said


def test_another_module_and_what_is_none(own: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["info", str(own)], ["verify", str(own)]):
        assert main(command, backbone=nn.Flatten()) == 2
        assert "is not the one that this run was trained with" in " ".join(capsys.readouterr().err.split())
        assert main(command, backbone="resnet") == 2  # type: ignore[arg-type]
        assert "backbone must be an nn.Module" in " ".join(capsys.readouterr().err.split())
    assert call("info", own).code == 0  # it is forgotten after the command


def test_an_audit_needs_a_run_that_saw_neither(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(own), "--out", str(tmp_path)], backbone=body()) == 2
    assert "cannot be drawn anew; give a run that saw neither: null=run, --null RUN" in capsys.readouterr().err


def test_a_run_that_needs_none_is_opened_as_ever(run: Path) -> None:
    assert main(["info", str(run)], backbone=body()) == 0


@pytest.mark.parametrize("command", ["train", "demo", "reproduce"])
def test_commands_that_make_networks_take_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"], backbone=body()) == 2
    assert f"{command} builds networks by name" in " ".join(capsys.readouterr().err.split())
