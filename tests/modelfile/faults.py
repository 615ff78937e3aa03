"""A system that fails at a chosen step: every call that changes the disk goes through here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch

from provnet.runs import run as modelfile

CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir")


class KilledError(BaseException):
    """The process is dead: no clean-up of its own has any effect."""


class Faults:
    """Counts the steps; at step `at` dies (and stays dead), or fails once with an error number."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None, errno: int | None = None) -> None:
        self.at, self.errno, self.steps, self.dead = at, errno, 0, False
        for name in CALLS:
            patch.setattr(os, name, self._wrap(name, getattr(os, name)))
        patch.setattr(modelfile, "save_file", self._wrap("save_file", safetensors.torch.save_file))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*args, **kwargs)
            if self.dead:
                raise KilledError
            self.steps += 1
            if self.steps - 1 != self.at:
                return real(*args, **kwargs)
            self._fail(name, real, args)
            raise AssertionError("unreachable")

        return call

    def _fail(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """A write fails when half is on the disk; everything else before it has any effect."""
        if name == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        if name == "save_file":
            real(*args)
            os.truncate(args[1], args[1].stat().st_size // 2)
        if self.errno is not None:
            raise OSError(self.errno, os.strerror(self.errno))
        self.dead = True
        raise KilledError
