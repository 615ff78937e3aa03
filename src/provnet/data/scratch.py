"""Room for the inputs of many samples: in memory where they fit, else in a file that is mapped into memory.

The file has no name once it is open (where the system allows that), so nothing is left of it when the program ends.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from provnet.base import files
from provnet.base.atomic import explain_disk
from provnet.base.batches import Fields, Inputs, join, pieces
from provnet.base.errors import MemoryLimitError
from provnet.base.files import file_size, shown

SHARE = 4  # what takes more than this part of the free memory goes to a file
PIECE = 256  # samples that are copied at a time


class Room:
    """Room for n rows of bytes of one shape, filled from the first on."""

    def __init__(self, n: int, shape: tuple[int, ...], folder: Path) -> None:
        self.shape, self.filled = shape, 0
        needed, free = n * math.prod(shape), files.free_memory()
        self.folder = folder if free is not None and needed > free // SHARE else None
        self._file: IO[bytes] | None = None if self.folder is None else _file(self.folder, needed)
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        self._rows = np.empty((n if self._file is None else 0, *shape), dtype=np.uint8)

    def put(self, rows: np.ndarray) -> None:
        """Add rows (n, ...) after those that are there."""
        if self._file is None:
            self._rows[self.filled : self.filled + len(rows)] = rows
        else:
            self._file.write(np.ascontiguousarray(rows).data)  # written, not mapped: such pages are not this program's
        self.filled += len(rows)

    def rows(self) -> np.ndarray:
        """All rows that were put in; those in a file are mapped, and none can be added any more."""
        if self._file is not None and self.filled:
            self._file.flush()
            self._rows = np.memmap(self._file, np.uint8, "r+", 0, (self.filled, *self.shape))
            self._file.close()  # what is mapped stays
            self._file = None
        return self._rows[: self.filled]


def copy_rows(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Some rows of inputs, copied; bytes that do not fit into memory go from file to file.

    >>> copy_rows(torch.arange(4), np.array([2, 0])).tolist()
    [2, 0]
    """
    if isinstance(inputs, Fields) or inputs.dtype != torch.uint8 or inputs.device.type != "cpu":
        return inputs[torch.from_numpy(rows)]
    room = Room(len(rows), tuple(inputs.shape[1:]), cache_folder())
    if room.folder is None:
        return inputs[torch.from_numpy(rows)]
    if np.array_equal(rows, np.arange(len(inputs))):
        return inputs
    for part in pieces(len(rows), PIECE):
        room.put(inputs[torch.from_numpy(rows[part])].numpy())
    return torch.from_numpy(room.rows())


def concatenate_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Inputs one after the other; a single part as it is.

    >>> concatenate_inputs([torch.zeros(2, 3), torch.zeros(1, 3)]).shape
    torch.Size([3, 3])
    """
    if len(parts) == 1:
        return parts[0]
    tensors = [part for part in parts if isinstance(part, Tensor) and part.dtype == torch.uint8]
    if len(tensors) < len(parts):
        joined: Inputs = join(parts)
        return joined
    room = Room(sum(map(len, tensors)), tuple(tensors[0].shape[1:]), cache_folder())
    for tensor in tensors:
        for part in pieces(len(tensor), PIECE):
            room.put(tensor[part].numpy())
    return torch.from_numpy(room.rows())


def cache_folder(given: str | None = None) -> Path:
    """Where large files are kept while a command runs: as given, else $PROVNET_CACHE, else the user's cache."""
    if given or os.environ.get("PROVNET_CACHE"):
        return Path(given or os.environ["PROVNET_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provnet"


def _file(folder: Path, needed: int) -> IO[bytes]:
    with explain_disk(folder, needed):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise MemoryLimitError(
                f"the pictures as the network sees them take {file_size(needed)}, more than memory holds, and "
                f"{shown(str(folder))} has {file_size(free)} left; name a folder on a larger disk (PROVNET_CACHE), or "
                "give a smaller size or limit (train --size, --limit)"
            )
        return tempfile.TemporaryFile(dir=folder, prefix="provnet-", suffix=".tmp")
