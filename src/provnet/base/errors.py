"""The few exception types of provnet, each with the exit code that the command line gives it.

Every class is also the builtin that a caller would expect, so `except ValueError` still works.
A message says what was given, what is allowed and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class ProvnetError(Exception):
    """Base of everything that provnet raises on purpose."""

    exit_code = 1


class UsageError(ProvnetError, ValueError):
    """A wrong argument, name or setting (exit code 2)."""

    exit_code = 2


class DataError(ProvnetError, ValueError):
    """Bad data: unreadable, truncated, contradictory (exit code 3)."""

    exit_code = 3


class NonFiniteError(DataError, ArithmeticError):
    """A NaN or infinity where a score, loss or pixel was expected (exit code 3)."""


class DiskError(ProvnetError, OSError):
    """The disk is full, or a folder may not be written to (exit code 4)."""

    exit_code = 4


class MemoryLimitError(ProvnetError, MemoryError):
    """The job would not fit into memory (exit code 5)."""

    exit_code = 5


class IntegrityError(ProvnetError, ValueError):
    """A file or data set is not what its hash says it was (exit code 6)."""

    exit_code = 6


class UnsafeFileError(ProvnetError, ValueError):
    """A file that could run code or exhaust the machine (exit code 7)."""

    exit_code = 7


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return a hint with the closest option, or an empty string.

    >>> did_you_mean("mnits", ["mnist", "cifar10"])
    ' Did you mean "mnist"?'
    """
    close = difflib.get_close_matches(str(name), list(options), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look a name up in a literal table; an unknown one is refused with what is allowed.

    >>> choose("shape", "circle", {"circle": 1})
    1
    """
    if not isinstance(name, str) or name not in table:  # a list cannot be looked up
        allowed = ", ".join(sorted(table))
        raise UsageError(f'unknown {kind} "{name}"; allowed: {allowed}.{did_you_mean(name, table)}')
    return table[name]


def choose_all(kind: str, names: Iterable[str], table: Mapping[str, T]) -> list[T]:
    """Look a list of names up; a lone name is not one.

    >>> choose_all("shape", ["circle"], {"circle": 1})
    [1]
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"{kind}s must be a list of names, got {names!r:.80}; allowed: {', '.join(table)}")
    return [choose(kind, name, table) for name in names]


def one_of(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Return `name` if it is allowed, else refuse it with the list.

    >>> one_of("split", "train", ("train", "test"))
    'train'
    """
    return choose(kind, name, {option: option for option in allowed})
