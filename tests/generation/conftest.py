"""One run of each generator, made once."""

from __future__ import annotations

import pytest

from provnet.runs.run import Run

from .made import NAMES, trained


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    """By the name of the generator; do not change them."""
    return {name: trained(name, epochs=5) for name in NAMES}
