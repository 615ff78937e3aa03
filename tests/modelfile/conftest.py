"""A good run, and a copy of it to spoil."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from provnet.runs.run import write_run

from .made import make_run


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_run(make_run(), folder)
    return folder


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(good, tmp_path / "run")
    yield tmp_path / "run"
    assert not list(tmp_path.rglob("ran")), "the file ran code"
