"""Which optional packages are there."""

from __future__ import annotations

from importlib.util import find_spec


def is_installed(name: str) -> bool:
    """Whether a package can be imported; it is looked up, none of its code runs.

    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    return find_spec(name) is not None
