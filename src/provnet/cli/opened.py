"""Runs as commands open them: where a backbone was given as an object, with the one that `main` was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import nn

    from provnet.modelfile import Run

Found = TypeVar("Found")
_GIVEN: ContextVar[nn.Module | None] = ContextVar("backbone", default=None)
MAKING = ("demo", "train", "reproduce")  # commands that make networks of their own


@contextmanager
def with_backbone(module: nn.Module | None) -> Iterator[None]:
    """Runs that are opened meanwhile, and need a backbone given as an object, get this one."""
    before = _GIVEN.set(module)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def backbone_for(folder: Path) -> nn.Module | None:
    """The module that `main` was given, where the run in a folder needs one; a command may open others beside it."""
    from provnet.modelfile import read_samples
    from provnet.runconfig import CUSTOM

    given = _GIVEN.get()
    return given if given is not None and read_samples(folder)[0].network.backbone == CUSTOM else None


def open_run(folder: Path) -> Run:
    """The run in a folder, every file checked."""
    from provnet.modelfile import read_run

    return read_run(folder, backbone_for(folder))


def run_state(folder: Path) -> dict[str, str]:
    """The SHA-256 of weights and sample table: what is measured of a run belongs to these."""
    from provnet.fileset import state_of
    from provnet.modelfile import FILES

    return state_of(folder, FILES)


def with_state(folder: Path, read: Callable[[Path], Found]) -> tuple[Found, dict[str, str]]:
    """What `read` finds in the run of a folder, and the state it is of; read again where it was changed meanwhile."""
    from provnet.modelfile import has_run

    if not has_run(folder):
        read(folder)  # says what is wrong
    while True:
        state = run_state(folder)
        found = read(folder)
        if run_state(folder) == state:
            return found, state
