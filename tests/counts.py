"""How often the long tests repeat: small by default, in full under PROVNET_SOAK=1 (`make soak`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])
SOAK = os.environ.get("PROVNET_SOAK") == "1"


def count(small: int, full: int) -> int:
    """`small`, or `full` under PROVNET_SOAK=1."""
    return full if SOAK else small


def grows(test: Test) -> Test:
    """Mark a test whose count grows: it runs small with the others, and in full under `make soak`."""
    return pytest.mark.soak(test) if SOAK else test
