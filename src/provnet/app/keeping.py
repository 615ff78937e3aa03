"""Where results of costly work and decisions are kept: a folder beside the run, named after what they belong to.

Everything kept names the state of the run that it was made of (weights, samples, which are withheld); results of
another state are not read, decisions are. Files are safetensors and JSON, replaced as one, and bounded by the size of
the run. Several apps may serve one run: `locked` lets one of them at a time read a file, change it and write it.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from provnet.app.served import Served
from provnet.atomic import sweep, write_bytes
from provnet.card import bank_state
from provnet.data.files import read_file
from provnet.errors import ProvnetError
from provnet.safefile import open_checked, read_tensors
from provnet.safejson import read_json, write_json

LOG = logging.getLogger("provnet.app")
LARGEST = 64_000_000  # bytes of a JSON file
LOCK, ASIDE = ".lock", ".damaged-"


class Keeping:
    """A folder for a run, or nothing where none may be written."""

    def __init__(self, served: Served) -> None:
        self.identity = _identity(served)
        self.folder = served.keep
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                sweep(self.folder)  # what a killed app left
            except OSError:
                self.folder = None
        if self.folder is not None and not os.access(self.folder, os.W_OK):
            self.folder = None

    @property
    def is_kept(self) -> bool:
        """Whether anything survives a restart."""
        return self.folder is not None

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
        """Keep arrays with a little JSON about them; a full disk is logged, not fatal."""
        if self.folder is None:
            return
        content = save({key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in arrays.items()})
        digest = hashlib.sha256(content).hexdigest()
        self._write(f"{name}.safetensors", content)
        self.write_json(name, {**about, "arrays": digest})

    def read_arrays(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """What was kept of this state of the run, or None."""
        about = self.read_json(name)
        if about is None or self.folder is None:
            return None
        try:
            with open_checked(self.folder / f"{name}.safetensors", sha256=str(about.get("arrays"))) as file:
                return {key: value.numpy() for key, value in read_tensors(file).items()}, about
        except ProvnetError as error:
            LOG.warning("%s was kept and is not used: %s", name, error)
            return None

    def write_json(self, name: str, value: Mapping[str, Any]) -> bool:
        """Keep plain values; False where they could not be written."""
        content = write_json({**value, "run": self.identity}, name)
        if len(content) > LARGEST:
            LOG.warning(
                "%s.json cannot be kept: it would have %s bytes, at most %s are read", name, len(content), LARGEST
            )
            return False
        return self._write(f"{name}.json", content)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Plain values that were kept of this state of the run, or None."""
        try:
            value = self.load(name)
        except ProvnetError as error:
            LOG.warning("%s was kept and is not used: %s", name, error)
            return None
        return value if value is not None and value.get("run") == self.identity else None

    def load(self, name: str) -> dict[str, Any] | None:
        """Plain values that were kept of any state of the run, None where none were; a bad file is an error."""
        if self.folder is None or self.stamp(name) is None:
            return None
        path = self.folder / f"{name}.json"
        return read_json(read_file(path, LARGEST), path.name, limit=LARGEST)

    def stamp(self, name: str) -> tuple[int, ...] | None:
        """What is another one after each change of a file of plain values; None where there is no file."""
        if self.folder is None:
            return None
        try:
            found = (self.folder / f"{name}.json").stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns, found.st_size

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Wait for other apps that work on the files, and keep them out meanwhile; False where that cannot be done."""
        handle = self._lock()
        try:
            yield handle is not None
        finally:
            if handle is not None:
                os.close(handle)

    def set_aside(self, name: str) -> Path | None:
        """Give a file of plain values a new name, so that nothing is written over it; None where that fails."""
        assert self.folder is not None
        path = self.folder / f"{name}.json"
        stem = f"{path.name}{ASIDE}{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime())}"
        names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        goal = next(self.folder / one for one in names if not os.path.lexists(self.folder / one))
        try:
            return path.rename(goal)
        except OSError as error:
            LOG.warning("%s cannot be renamed: %s", path, error)
            return None

    def aside(self, name: str) -> list[str]:
        """The names of the files that were set aside and are still there."""
        return [] if self.folder is None else sorted(one.name for one in self.folder.glob(f"{name}.json{ASIDE}*"))

    def _lock(self) -> int | None:
        if self.folder is None or not self.folder.parent.is_dir():
            return None
        try:
            self.folder.mkdir(exist_ok=True)
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            LOG.warning("%s cannot be locked: %s", self.folder, error)
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # some network drives have no locks
            os.close(handle)
            LOG.warning("%s cannot be locked: %s", self.folder, error)
            return None
        return handle

    def _write(self, name: str, content: bytes) -> bool:
        if self.folder is None or not self.folder.parent.is_dir():
            return False  # a run that was removed is not brought back as a folder of decisions
        try:
            write_bytes(self.folder / name, content)
        except (ProvnetError, OSError) as error:
            LOG.warning("%s cannot be kept: %s", name, error)
            return False
        return True


def _identity(served: Served) -> str:
    """What results depend on: the weights and the samples with their flags."""
    digest = hashlib.sha256(bank_state(served.run.samples).encode())
    for name, value in sorted(served.run.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
