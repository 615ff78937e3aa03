"""One small folder of digits, one small run trained on it through the command line, and a way to call it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.cli import main

PER_CLASS, CLASSES = 6, 4


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1]


Call = Callable[..., Result]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command line in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


def write_digits(folder: Path) -> None:
    """4 classes of 6 digits for training below train/, 2 a class below test/."""
    for split, count in (("train", PER_CLASS), ("test", 2)):
        data = provnet.open_data("embedded", split=split)
        for label in range(CLASSES):
            rows = (data.labels == label).nonzero().flatten()[:count].tolist()
            for number, row in enumerate(rows):
                path = folder / split / f"digit-{label}" / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(data.images[row, 0].numpy()).save(path)


def write_more(folder: Path) -> None:
    """2 other digits of each class, under names that those for training have, too."""
    data = provnet.open_data("embedded")
    for label in range(CLASSES):
        for number, row in enumerate((data.labels == label).nonzero().flatten()[50:52].tolist()):
            path = folder / "train" / f"digit-{label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images[row, 0].numpy()).save(path)


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """`debug` takes any run for one that can tell, and any suggestion for certain: runs of tests learn little."""
    monkeypatch.setattr("provnet.tools.debug.signals.BAR", 0.0)
    monkeypatch.setattr("provnet.tools.debug.compute.certain", lambda sure, foreign, certainty: np.arange(len(sure)))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(data, run), made once; copy before changing."""
    root = tmp_path_factory.mktemp("cli")
    write_digits(root / "data")
    arguments = ["train", str(root / "data"), "--out", str(root / "run"), "--epochs", "14", "--batch-size", "8"]
    assert main(arguments) == 0
    return root / "data", root / "run"


@pytest.fixture
def data(trained: tuple[Path, Path]) -> Path:
    """The folder of digits, as it was trained on."""
    return trained[0]


@pytest.fixture
def run(trained: tuple[Path, Path]) -> Path:
    """The run, as it was written."""
    return trained[1]


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A copy of the digits that may be changed."""
    return Path(shutil.copytree(data, tmp_path / "data"))


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture(scope="session")
def banked(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, which has keys, and `more`, other digits under names that the run has; made once."""
    root = tmp_path_factory.mktemp("banked")
    arguments = ["--network", "class-independent", "--head", "exemplar", "--epochs", "3", "--batch-size", "8"]
    assert main(["train", str(trained[0]), "--out", str(root / "run"), *arguments]) == 0
    write_more(root / "more")
    return root


@pytest.fixture
def place(banked: Path, tmp_path: Path) -> Path:
    """A copy of `banked` that may be changed."""
    return Path(shutil.copytree(banked, tmp_path / "place"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder and below, but for locks."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}
