"""What every entry is given: a place of its own, and the small runs made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from provnet.cli import main
from tests.data.made import write_folder

from .entry import Kit, Place, Said
from .made import NETWORK, STEPS, digits, interrupted


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """20 pictures of four classes and a test split; a run of one epoch on them, one on floats, one half done."""
    root = tmp_path_factory.mktemp("kit")
    kit = Kit(write_folder(root / "data", digits()), root / "run", root / "floats", root / "stopped")
    assert main(["train", str(kit.data), "--out", str(kit.run), *NETWORK, "--epochs", "1"]) == 0
    values = np.random.default_rng(3).random((12, 6, 6), dtype=np.float32)
    np.savez(root / "floats.npz", images=values, labels=np.arange(12) % 3)
    assert main(["train", str(root / "floats.npz"), "--out", str(kit.floats), *NETWORK, "--epochs", "1"]) == 0
    with interrupted(at=3):
        assert main(["train", str(kit.data), "--out", str(kit.stopped), *NETWORK, *STEPS]) == 130
    return kit


@pytest.fixture
def places(
    kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], AbstractContextManager[Place]]:
    """A place by its name, which is left when the call is over."""
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    @contextmanager
    def place(name: str) -> Iterator[Place]:
        (tmp_path / name).mkdir()
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            yield Place(tmp_path / name, kit, patch, stack, call)

    return place
