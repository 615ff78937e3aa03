"""What is served: a run with its pictures as far as they are there, put together by whoever starts the server."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from provnet.base.atomic import sweep, write_bytes
from provnet.base.errors import ProvnetError
from provnet.base.files import read_file
from provnet.data.dataset import ImageData
from provnet.runs.card import bank_state
from provnet.runs.files import RunConfig
from provnet.runs.fileset import read_set
from provnet.runs.run import FILES, Run, read_config
from provnet.runs.safe import open_checked, read_json, read_tensors, write_json
from provnet.tools.membership.member import Heldout


@dataclass(frozen=True, eq=False)
class Served:
    """A run and what belongs to it.

    Attributes:
        run: the run, on the device where it shall compute.
        name: what it is called.
        folder: where it lies, or None.
        exposure: `ids`, `thumb` or `full`, how much of training and test pictures may be seen.
        training: the training samples that are still what they were, in the run's order; None where none are there.
        index: (n,) which training sample each of them is.
        facts: what changed among the training data, one line each, or why they are not there.
        test: the run's test split, or None, and why.
        heldout: what an audit kept for verdicts on single pictures, or None.
        opened: the hashes of weights and samples when it was read; those of the folder where none are given.
        keep: where results of costly work and decisions are kept; None keeps them in memory alone.
        beside: another run whose answers are compared with those of this one, or None.
    """

    run: Run
    name: str
    folder: Path | None = None
    exposure: str = "full"
    training: ImageData | None = None
    index: np.ndarray | None = None
    facts: tuple[str, ...] = ()
    test: ImageData | None = None
    test_why: str = ""
    heldout: Heldout | None = None
    keep: Path | None = None
    opened: Mapping[str, str] = field(default_factory=dict)
    beside: Served | None = None


WEIGHTS, SAMPLES = "model.safetensors", "samples.safetensors"
AGAIN = "This page shows it as it was: end provnet app and start it again to see it as it is."


def hashes(folder: Path | None) -> dict[str, str]:
    """SHA-256 of the weights and of the sample table, as the manifest has them; nothing where there is no run.

    >>> hashes(None)
    {}
    """
    if folder is None:
        return {}
    try:
        entries = read_set(folder, FILES).entries
        return {name: entries[name].sha256 for name in (WEIGHTS, SAMPLES)}
    except (ProvnetError, KeyError, OSError):
        return {}


class OnDisk:
    """The folder of a run that was opened; `opened` is what `hashes` gave before, else what it gives now."""

    def __init__(self, folder: Path | None, opened: Mapping[str, str]) -> None:
        self.folder = folder
        self.opened = dict(opened or hashes(folder))

    def is_other(self) -> bool:
        """Whether the folder has other weights, or none: its card and its log are not those of what is shown."""
        return hashes(self.folder).get(WEIGHTS) != self.opened.get(WEIGHTS)

    def changed(self) -> str:
        """What became of the run since it was opened, in words; empty where it is the same."""
        now = hashes(self.folder)
        if now == self.opened:
            return ""
        if not now:
            return (
                "The run is not in its folder any more. This page shows it as it was opened; "
                "new decisions are kept only until provnet app ends: export them."
            )
        if now[WEIGHTS] != self.opened.get(WEIGHTS):
            return f"The run in this folder is another one now: it was trained anew or replaced. {AGAIN}"
        return f"Samples of the run were added, withheld or erased since it was opened. {AGAIN}"

    def config(self, opened: RunConfig) -> RunConfig:
        """The settings with what was measured since; those that were opened where the folder has another run."""
        if self.folder is None or self.changed():
            return opened
        try:
            return read_config(self.folder)
        except (ProvnetError, OSError):
            return opened


LOG = logging.getLogger("provnet_app")
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


NAME, BEFORE = "shown.csv", "shown-before.csv"
LARGEST_LOG = 5_000_000  # bytes; then the file becomes the one before, which is replaced


class ShownLog:
    """Appends to a file beside the run; where none may be written nothing is logged."""

    def __init__(self, keeping: Keeping, largest: int = LARGEST_LOG) -> None:
        self.path = None if keeping.folder is None else keeping.folder / NAME
        self.largest = largest
        self._lock = threading.Lock()

    def add(self, hashes: Iterable[str]) -> None:
        """Note that pictures were shown; a disk that is full does not keep anybody from seeing them."""
        lines = [f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())},{key}\n" for key in hashes]
        if self.path is None or not lines:
            return
        with self._lock:
            try:
                if self.path.exists() and self.path.stat().st_size > self.largest:
                    self.path.replace(self.path.with_name(BEFORE))
                new = not self.path.exists()
                with self.path.open("a", encoding="ascii") as file:
                    file.writelines([*(["time,sha256\n"] if new else []), *lines])
            except OSError:
                return
