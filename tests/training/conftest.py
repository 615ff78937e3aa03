"""What all tests of training share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _a_fast_disk() -> Iterator[None]:
    """In this process nothing is asked of a power cut: see tests/modelfile for what is forced to the disk, and when."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
