"""One entry of the table of bad inputs: how the input is made, what is called, what has to come of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Arguments = Sequence[object]


class Said(NamedTuple):
    """What a command gave back; for a call of the library `value` is its result."""

    code: int
    out: str = ""
    err: str = ""
    value: Any = None

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


@dataclass(frozen=True)
class Kit:
    """Made once for all entries, never changed: pictures, a run on them, one on floats, one that was interrupted."""

    data: Path
    run: Path
    floats: Path
    stopped: Path


@dataclass(frozen=True)
class Place:
    """Where one entry happens. What is patched or entered here holds during the call and no longer."""

    tmp: Path
    kit: Kit
    patch: pytest.MonkeyPatch
    stack: ExitStack
    call: Callable[..., Said]
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The run folder, page or log that the command is asked to write."""
        return self.tmp / "out"

    def data(self) -> Path:
        """A copy of the pictures that the run was trained on."""
        return Path(shutil.copytree(self.kit.data, self.tmp / "data"))

    def run(self, kind: str = "run", name: str = "run") -> Path:
        """A copy of a run of the kit; one that the command may write to is called `out`."""
        return Path(shutil.copytree(getattr(self.kit, kind), self.tmp / name))

    def write(self, name: str, content: bytes | str) -> Path:
        """A file."""
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@dataclass(frozen=True)
class Entry:
    """One bad input.

    Attributes:
        row: its number in the list of bad inputs.
        words: what it is.
        given: makes it; gives the command line, or a function of the library to call.
        code: the exit code; 0 where the input must be accepted.
        says: words of the one line (or, where it is accepted or is a report of `verify`, of all that is said).
        after: what else must hold.
        leaves: whether a refused command may leave something in `out` (training that had begun).
    """

    row: int
    words: str
    given: Callable[[Place], Arguments | Callable[[], Any]]
    code: int = 0
    says: tuple[str, ...] = ()
    after: Callable[[Place, Said], None] | None = None
    leaves: bool = False


def tree(folder: Path) -> dict[str, str]:
    """Everything below a folder: its kind, and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and (path.stat().st_size >= 2**24 or not mode & stat.S_IRUSR):
            content = f"{mode:o} {path.stat().st_size}"
        elif stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = str(path.readlink()) if stat.S_ISLNK(mode) else str(stat.S_IFMT(mode))
        found[str(path.relative_to(folder))] = content
    return found
