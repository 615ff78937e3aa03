"""Where results of costly work and decisions are kept: a folder beside the run, named after what they belong to.

Everything kept names the state of the run that it was made of (weights, samples, which are withheld); results of
another state are not read, decisions are. Files are safetensors and JSON, replaced as one, and bounded by the size of
the run.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
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
LARGEST = 64_000_000  # bytes of a JSON file that is read back


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
        return self._write(f"{name}.json", write_json({**value, "run": self.identity}, name))

    def read_json(self, name: str, *, any_state: bool = False) -> dict[str, Any] | None:
        """Plain values that were kept of this state of the run, or of any, or None."""
        if self.folder is None or not (self.folder / f"{name}.json").is_file():
            return None
        try:
            value = read_json(read_file(self.folder / f"{name}.json", LARGEST), name, limit=LARGEST)
        except ProvnetError as error:
            LOG.warning("%s was kept and is not used: %s", name, error)
            return None
        return value if any_state or value.get("run") == self.identity else None

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
