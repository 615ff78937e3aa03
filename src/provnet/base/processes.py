"""What runs beside us: the processes that train together, as torchrun says them in the environment, and which optional
packages are installed.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from provnet.base.errors import UsageError

RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK")
COUNTS = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")


def rank() -> int:
    """The number of this process; 0 where it is alone.

    >>> rank()
    0
    """
    return _number("RANK", _number("LOCAL_RANK", 0))


def world_size() -> int:
    """How many processes train together."""
    return _number("WORLD_SIZE", 1, least=1)


def local_world_size(usual: int) -> int:
    """How many of them run on this machine."""
    return _number("LOCAL_WORLD_SIZE", usual, least=1)


def check_environment(*, several: bool) -> None:
    """Refuse what cannot be a number of a process, or of the port where `several` meet: they would wait for ever."""
    for name in RANKS:
        _number(name, 0)
    for name in COUNTS:
        _number(name, 1, least=1)
    for name, count in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if name in os.environ and count in os.environ:
            _number(name, 0, most=_number(count, 1, least=1) - 1, why=f" ({count} less one)")
    if several:
        _number("MASTER_PORT", 0, most=65_535)


def _number(name: str, usual: int, *, least: int = 0, most: int = 1_000_000, why: str = "") -> int:
    given = os.environ.get(name)
    if given is None:
        return usual
    if not (given.isascii() and given.isdigit() and len(given) < 20 and least <= int(given) <= most):
        raise UsageError(
            f"the environment variable {name} must be a whole number from {least} to {most:,}{why}, got {given!r:.80}; "
            "torchrun sets it, so unset it where you start one process"
        )
    return int(given)


def is_installed(name: str) -> bool:
    """Whether a package can be imported; it is looked up, none of its code runs.

    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    return find_spec(name) is not None
