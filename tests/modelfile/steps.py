"""The steps of writing, counted, and what they leave in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .faults import Faults


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def steps_of(action: Callable[[], object]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, at=None)
        action()
        return faults.steps
