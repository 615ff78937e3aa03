"""What holds for all tests: how long an example takes on a busy machine is no failure, and no power cut is feared."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("provnet", deadline=None)
settings.load_profile("provnet")

FORCED = ("modelfile", "decisions", "cache")  # rooms that test what is forced to the disk, and when


@pytest.fixture(autouse=True, scope="module")
def _a_fast_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Elsewhere nothing is forced to the disk by this process: it takes longer than most of what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in FORCED:
            patch.setattr(os, "fsync", lambda handle: None)
        yield
