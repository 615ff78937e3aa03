"""A folder of pictures, a place for its cache, and what is decoded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from provnet.base.files import DataWarning
from provnet.data import cache as hashcache
from provnet.data import pictures as picture_files
from tests.data.cache.made import TICK, aged
from tests.data.made import pictures, write_folder


@pytest.fixture
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are a blink old count as old, so that the tests need not wait two seconds."""
    monkeypatch.setattr(hashcache, "YOUNG", TICK)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were decoded, rather than found in the cache."""
    names: list[str] = []
    real = picture_files.decode_whole
    monkeypatch.setattr(
        picture_files, "decode_whole", lambda blob, name, rule: (names.append(name), real(blob, name, rule))[1]
    )
    return names


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return aged(write_folder(tmp_path / "data", pictures("a/1.png", "a/2.png", "a/deep/3.png", "b/4.png", "b/5.png")))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def empty_classes_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*classes without pictures", category=DataWarning)
        yield
